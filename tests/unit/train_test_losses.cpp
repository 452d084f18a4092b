// Losses and their gradients against Keras's numbers (float32, on JAX): every loss, reductions,
// weights, masks, and what is refused.
#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/ops/gradients.h"
#include "runtime/ops/ops.h"
#include "runtime/train/losses.h"
#include "tests/support/interpreter.h"

using Catch::Matchers::Contains;
using namespace tessera;
using namespace tessera::train;
using testing::Interpreter;

namespace {

struct Data {
  Shape shape;
  DType dtype;
  std::vector<double> values;

  graph::ValueType type() const { return {shape, dtype}; }
};

const Data kProbabilities{
    {3, 4}, DType::float32, {0.1, 0.6, 0.2, 0.1, 0.3, 0.1, 0.2, 0.7, 0.25, 0.25, 0.4, 0.05}};
const Data kNumbers{
    {3, 4}, DType::float32, {1.5, -0.5, 2, 0.25, -1, 0.75, 3, -2.5, 0.5, 0.15, -0.3, 4}};
const Data kPositive{{3, 4}, DType::float32, {1, 2, 0.5, 3, 0.2, 1.5, 4, 2, 3, 0.1, 0.7, 1.1}};
const Data kOneHot{{3, 4}, DType::float32, {0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0}};
const Data kBinary{{3, 4}, DType::float32, {0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0}};
const Data kSigns{{3, 4}, DType::float32, {-1, 1, 1, -1, 1, -1, -1, 1, 1, 1, -1, -1}};
const Data kLabels{{3}, DType::int32, {1, 3, 0}};
const Data kUnit{
    {5, 4}, DType::float32, {0.40824828, 0.81649655, 0,           0.40824828, 0.81649655,
                             0.40824828, 0.40824828, 0,           0.47140455, 0.7071068,
                             0.23570228, 0.47140455, -0.40824828, 0,          0.81649655,
                             0.40824828, 0,          0.40824828,  0.81649655, 0.40824828}};
const Data kPairs{{5}, DType::int32, {0, 1, 0, 1, 2}};
const Data kPositive2{{3, 4}, DType::float32, {0.4, 1, 2, 2.5, 0.3, 2.5, 3, 1, 2, 0.6, 0.2, 1.4}};
const Data kProbabilities2{
    {3, 4}, DType::float32, {0.2, 0.5, 0.1, 0.2, 0.25, 0.25, 0.4, 0.1, 0.7, 0.1, 0.1, 0.1}};

const Data kSteps{
    {2, 3, 3}, DType::float32, {.5, 1, -1, 2, .1, .3, 0, -1, 1, 1, 1, 2, -.5, .25, .75, 3, 1, 0}};
const Data kStepLabels{{2, 3}, DType::int32, {0, 2, 1, 1, 1, 0}};
const Data kStepMask{{2, 3}, DType::boolean, {1, 1, 0, 1, 0, 0}};
const Data kNoMask{{2, 3}, DType::boolean, {0, 0, 0, 0, 0, 0}};
const Data kStepWeight{{2, 3}, DType::float32, {1, .5, 2, .25, 1, 3}};
const Data kColumnWeight{{2, 1}, DType::float32, {2, .5}};
const Data kRowWeight{{3}, DType::float32, {2, .5, 1}};
const Data kRowColumn{{3, 1}, DType::float32, {2, .5, 1}};
const Data kRowMask{{3}, DType::boolean, {1, 0, 1}};
const Data kZeroWeight{{3}, DType::float32, {0, 0, 0}};

json::Value parse(const std::string& text) {
  json::Problems problems;
  json::Value value = json::parse(text, "config.json", problems);
  problems.throw_if_any();
  return value;
}

std::unique_ptr<Loss> make(const std::string& config, const Data& y_true, const Data& y_pred) {
  json::Problems problems;
  std::unique_ptr<Loss> loss =
      make_loss(parse(config), "compile.loss", {y_true.type(), y_pred.type()}, problems);
  problems.throw_if_any();
  return loss;
}

/// The message of the problems that a loss has.
std::string refusal(const std::string& config, const Data& y_true, const Data& y_pred) {
  json::Problems problems;
  const auto loss =
      make_loss(parse(config), "compile.loss", {y_true.type(), y_pred.type()}, problems);
  CHECK(loss == nullptr);
  std::string text;
  for (const json::Problem& problem : problems.list()) text += json::to_string(problem) + "\n";
  return text;
}

struct Computed {
  double value = 0.0;
  std::vector<double> gradient;  // with respect to the predictions
};

Computed compute(const std::string& config, const Data& y_true, const Data& y_pred,
                 const Data* weight = nullptr, const Data* mask = nullptr) {
  const std::unique_ptr<Loss> loss = make(config, y_true, y_pred);
  graph::VariableTable table;
  graph::Graph graph(table);
  graph::Builder builder(graph);
  std::map<std::string, const Data*> inputs;
  const auto input = [&](const std::string& name, const Data* data) -> SymbolicTensor {
    if (data == nullptr) return {};
    inputs[name] = data;
    return builder.input(name, data->shape, data->dtype);
  };
  const SymbolicTensor predictions = input("predictions", &y_pred);
  const SymbolicTensor targets = input("targets", &y_true);
  const SymbolicTensor value =
      (*loss)(targets, predictions, input("weight", weight), input("mask", mask));
  CHECK(value.shape() == Shape{});
  CHECK(value.dtype() == DType::float32);
  const SymbolicTensor gradient = ops::gradients(builder, value, std::span(&predictions, 1))[0];
  builder.output("loss", value);
  builder.output("gradient", gradient);
  Interpreter interpreter(graph);
  for (const auto& [name, data] : inputs) interpreter.set_input(name, data->values);
  interpreter.run();
  return {interpreter.output("loss")[0], interpreter.output("gradient")};
}

Approx near_to(double value) { return Approx(value).epsilon(2e-5).margin(2e-6); }

struct Case {
  const char* config;
  const Data& y_true;
  const Data& y_pred;
  double value;
  std::vector<double> gradient;
};

const std::vector<Case> kCases = {
    {R"("mean_squared_error")",
     kNumbers,
     kPositive,
     4.6022916,
     {-0.083333336, 0.4166667, -0.25, 0.45833334, 0.20000002, 0.125, 0.16666667, 0.75, 0.4166667,
      -0.008333335, 0.16666667, -0.48333335}},
    {R"("mae")",
     kNumbers,
     kPositive,
     1.7624999,
     {-0.083333336, 0.083333336, -0.083333336, 0.083333336, 0.083333336, 0.083333336, 0.083333336,
      0.083333336, 0.083333336, -0.083333336, 0.083333336, -0.083333336}},
    {R"("mape")",
     kNumbers,
     kPositive,
     256.7361,
     {-5.555556, 16.666668, -4.166667, 33.333336, 8.333334, 11.111112, 2.777778, 3.3333335,
      16.666668, -55.555557, 27.777779, -2.0833335}},
    {R"("msle")",
     kPositive,
     kPositive2,
     0.1238352,
     {-0.042461306, -0.033788763, 0.038508177, -0.006358635, 0.010261878, 0.01602249, -0.009297649,
      -0.033788763, -0.015982337, 0.03903057, -0.048375923, 0.0092730215}},
    {R"("log_cosh")",
     kNumbers,
     kPositive,
     1.2001034,
     {-0.038509756, 0.08221786, -0.07542903, 0.08265498, 0.06947122, 0.05292908, 0.063466184,
      0.08331277, 0.08221786, -0.004163198, 0.063466184, -0.08283024}},
    {R"("poisson")",
     kPositive,
     kPositive2,
     0.66007346,
     {-0.12499995, -0.08333332, 0.0625, -0.016666666, 0.027777795, 0.033333335, -0.027777776,
      -0.08333332, -0.041666664, 0.06944445, -0.20833316, 0.01785715}},
    {R"("kl_divergence")",
     kProbabilities,
     kProbabilities2,
     0.5958321,
     {-0.16666667, -0.40000004, -0.6666667, -0.16666667, -0.40000004, -0.13333334, -0.16666667,
      -2.3333332, -0.11904762, -0.8333333, -1.3333334, -0.16666667}},
    {R"("huber")",
     kNumbers,
     kPositive,
     1.313125,
     {-0.041666668, 0.083333336, -0.083333336, 0.083333336, 0.083333336, 0.0625, 0.083333336,
      0.083333336, 0.083333336, -0.0041666674, 0.083333336, -0.083333336}},
    {R"({"class_name": "Huber", "config": {"delta": 0.5}})",
     kNumbers,
     kPositive,
     0.76468754,
     {-0.041666668, 0.041666668, -0.041666668, 0.041666668, 0.041666668, 0.041666668, 0.041666668,
      0.041666668, 0.041666668, -0.0041666674, 0.041666668, -0.041666668}},
    {R"("cosine_similarity")",
     kNumbers,
     kPositive,
     -0.3576702,
     {-0.046261877, 0.028119963, -0.066217974, 0.0077103125, 0.018443396, -0.0037311679,
      -0.027168767, 0.055291556, 0.02764885, -0.0024357322, 0.01694315, -0.08596653}},
    {R"({"class_name": "CosineSimilarity", "config": {"axis": 0}})",
     kNumbers,
     kPositive,
     -0.35150495,
     {-0.051498655, 0.05956479, -0.027325356, -0.0030653956, 0.044525754, -0.07834255, 0.0009483434,
      0.035396554, 0.014197832, -0.016157607, 0.014099017, -0.0559972}},
    {R"("hinge")",
     kBinary,
     kNumbers,
     1.9625,
     {0.083333336, -0.083333336, -0, 0.083333336, -0.083333336, 0.083333336, 0.083333336,
      -0.083333336, -0.083333336, -0.083333336, 0.083333336, 0.083333336}},
    {R"("hinge")",
     kSigns,
     kNumbers,
     1.9625,
     {0.083333336, -0.083333336, -0, 0.083333336, -0.083333336, 0.083333336, 0.083333336,
      -0.083333336, -0.083333336, -0.083333336, 0.083333336, 0.083333336}},
    {R"("squared_hinge")",
     kBinary,
     kNumbers,
     5.9864583,
     {0.4166667, -0.25, -0, 0.20833334, -0.33333334, 0.2916667, 0.6666667, -0.5833334, -0.083333336,
      -0.14166668, 0.11666667, 0.8333334}},
    {R"("categorical_hinge")",
     kOneHot,
     kNumbers,
     4.8333335,
     {0, -0.33333334, 0.33333334, 0, 0, 0, 0.33333334, -0.33333334, -0.33333334, 0, 0, 0.33333334}},
    {R"("binary_crossentropy")",
     kBinary,
     kProbabilities,
     0.62957036,
     {0.0925926, -0.13888888, -0.4166667, 0.0925926, -0.27777776, 0.0925926, 0.10416667,
      -0.11904763, -0.33333334, -0.33333334, 0.13888888, 0.0877193}},
    {R"({"class_name": "BinaryCrossentropy", "config": {"from_logits": true, "label_smoothing": 0.1}})",
     kBinary,
     kNumbers,
     1.4038339,
     {0.06396454, -0.047704946, -0.0057669086, 0.042681377, -0.056754876, 0.052431557, 0.07521451,
      -0.07284514, -0.027295057, -0.034380846, 0.031296454, 0.07766782}},
    {R"({"class_name": "BinaryFocalCrossentropy", "config": {"gamma": 1.5, "apply_class_balancing": true, "alpha": 0.3}})",
     kBinary,
     kProbabilities,
     0.10545487,
     {0.004964944, -0.02265622, -0.14342493, 0.004964944, -0.086579524, 0.004964944, 0.015253736,
      -0.013194418, -0.10997315, -0.10997315, 0.052864507, 0.0016900967}},
    {R"({"class_name": "BinaryFocalCrossentropy", "config": {"from_logits": true}})",
     kBinary,
     kNumbers,
     1.0123582,
     {0.080118716, -0.043845985, -0.00040591223, 0.03385362, -0.06401956, 0.054148696, 0.09389583,
      -0.093616925, -0.011494748, -0.020149166, 0.016034039, 0.090532996}},
    {R"("categorical_crossentropy")",
     kOneHot,
     kProbabilities,
     0.8216219,
     {0.3333333, -0.22222221, 0.3333333, 0.3333333, 0.25641027, 0.25641027, 0.25641027, -0.21978018,
      -0.9824562, 0.3508772, 0.3508772, 0.3508772}},
    {R"({"class_name": "CategoricalCrossentropy", "config": {"from_logits": true, "label_smoothing": 0.2}})",
     kOneHot,
     kNumbers,
     3.8042164,
     {0.09189115, -0.26864165, 0.1623149, 0.014435667, -0.011253293, 0.014485155, 0.2788936,
      -0.28212547, -0.27388233, -0.010006627, -0.01242004, 0.296309}},
    {R"({"class_name": "CategoricalCrossentropy", "config": {"axis": 0}})",
     kOneHot,
     kProbabilities,
     0.40229997,
     {0.38461542, -0.15350875, -0, 0.29411766, 0.38461542, 0.2631579, -0, -0.06302518, -0.6153846,
      0.2631579, -0, 0.29411766}},
    {R"("categorical_focal_crossentropy")",
     kOneHot,
     kProbabilities,
     0.07820157,
     {0.03376635, -0.022510901, 0.03376635, 0.03376635, 0.03337858, 0.03337858, 0.03337858,
      -0.028610207, -0.26051426, 0.09304081, 0.09304081, 0.09304081}},
    {R"({"class_name": "CategoricalFocalCrossentropy", "config": {"from_logits": true, "alpha": 0.5, "gamma": 1}})",
     kOneHot,
     kNumbers,
     2.007694,
     {0.059355125, -0.17422071, 0.09786005, 0.017005527, 0.0027520033, 0.015836684, 0.15025428,
      -0.16884299, -0.17370935, 0.0035720111, 0.002277614, 0.16785972}},
    {R"("sparse_categorical_crossentropy")",
     kLabels,
     kProbabilities,
     0.8216219,
     {0.3333333, -0.22222221, 0.3333333, 0.3333333, 0.25641027, 0.25641027, 0.25641027, -0.21978018,
      -0.9824562, 0.3508772, 0.3508772, 0.3508772}},
    {R"({"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": true}})",
     kLabels,
     kNumbers,
     4.101716,
     {0.10855778, -0.31864163, 0.17898153, 0.031102326, 0.005413375, 0.03115182, 0.29556024,
      -0.33212546, -0.3238823, 0.0066600395, 0.004246627, 0.31297561}},
    {R"({"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": true, "ignore_class": 3}})",
     kLabels,
     kNumbers,
     3.342439,
     {0.16283667, -0.47796246, 0.26847228, 0.046653487, 0, 0, 0, 0, -0.48582342, 0.009990059,
      0.0063699405, 0.4694634}},
    {R"({"class_name": "SparseCategoricalCrossentropy", "config": {"ignore_class": 0}})",
     kLabels,
     kProbabilities,
     0.56493235,
     {0.5, -0.3333333, 0.5, 0.5, 0.3846154, 0.3846154, 0.3846154, -0.32967034, 0, 0, 0, 0}},
    {R"({"class_name": "CategoricalGeneralizedCrossEntropy", "config": {"q": 0.7}})",
     kLabels,
     kProbabilities,
     0.5441175,
     {-0, -0.38853788, -0, -0, -0, -0, -0, -0.370979, -0.5052389, -0, -0, -0}},
    {R"("dice")",
     kBinary,
     kProbabilities,
     0.5027027,
     {0.05376187, -0.16245435, -0.16245435, 0.05376187, -0.16245435, 0.05376187, 0.05376187,
      -0.16245435, -0.16245435, -0.16245435, 0.05376187, 0.05376187}},
    {R"({"class_name": "Dice", "config": {"axis": [0]}})",
     kBinary,
     kProbabilities,
     0.50741386,
     {0.03915984, -0.120654985, -0.24691357, 0.102264404, -0.14951938, 0.04883654, 0.030864194,
      -0.16800585, -0.14951938, -0.120654985, 0.030864194, 0.102264404}},
    {R"({"class_name": "Tversky", "config": {"alpha": 0.2, "beta": 0.6}})",
     kBinary,
     kProbabilities,
     0.3628809,
     {0.10589238, -0.13581848, -0.13581848, 0.10589238, -0.13581848, 0.10589238, 0.10589238,
      -0.13581848, -0.13581848, -0.13581848, 0.10589238, 0.10589238}},
    {R"({"class_name": "Tversky", "config": {"axis": [1]}})",
     kBinary,
     kProbabilities,
     0.5072077,
     {0.059259243, -0.16296294, -0.16296294, 0.059259243, -0.14080197, 0.06121824, 0.06121824,
      -0.14080197, -0.18768552, -0.18768552, 0.038303167, 0.038303167}},
    {R"({"class_name": "Circle", "config": {"gamma": 4, "margin": 0.3}})",
     kPairs,
     kUnit,
     4.114192,
     {0.8227291,   0.44506627, 0.6014244,   0.03370171, 2.8601341,  2.123905,   -2.7507048,
      -0.3420397,  1.2933402,  0.7450036,   1.057818,   0.13441928, -3.2374449, -0.99808586,
      -0.42146575, 0.62063676, -0.19450524, 0.53914034, 1.3518033,  0.8881922}},
    {R"({"class_name": "Circle", "config": {"gamma": 4, "margin": 0.3, "remove_diagonal": false}})",
     kPairs,
     kUnit,
     4.0803633,
     {0.7230042,   0.44825435, 0.587833,    0.08675228, 2.3023944,  1.7960835,  -2.0856938,
      -0.18265666, 1.0826597,  0.747743,    1.0576727,  0.22566912, -2.5426974, -0.47974464,
      0.27574617,  0.79160404, -0.24003953, 0.70543873, 1.7572658,  1.1556495}},
};

// Losses of a reduction's test.
constexpr const char* kStepsLoss = "SparseCategoricalCrossentropy";
constexpr const char* kRowsLoss = "MeanSquaredError";
constexpr const char* kDiceLoss = "Dice";

struct ReductionCase {
  const char* loss;
  const char* reduction;
  const Data* weight;
  const Data* mask;
  double value;
};

const std::vector<ReductionCase> kReductionCases = {
    {kStepsLoss, "sum_over_batch_size", nullptr, nullptr, 1.3848176},
    {kStepsLoss, "sum_over_batch_size", nullptr, &kStepMask, 1.5310907},
    {kStepsLoss, "sum_over_batch_size", nullptr, &kNoMask, 0},
    {kStepsLoss, "sum_over_batch_size", &kStepWeight, nullptr, 1.4831976},
    {kStepsLoss, "sum_over_batch_size", &kStepWeight, &kStepMask, 0.8120845},
    {kStepsLoss, "sum_over_batch_size", &kStepWeight, &kNoMask, 0},
    {kStepsLoss, "sum_over_batch_size", &kColumnWeight, nullptr, 2.0547671},
    {kStepsLoss, "sum_over_batch_size", &kColumnWeight, &kStepMask, 2.2864592},
    {kStepsLoss, "sum_over_batch_size", &kColumnWeight, &kNoMask, 0},
    {kRowsLoss, "sum_over_batch_size", nullptr, nullptr, 4.6022916},
    {kRowsLoss, "sum_over_batch_size", nullptr, &kRowMask, 3.996875},
    {kRowsLoss, "sum_over_batch_size", &kRowWeight, nullptr, 4.9928126},
    {kRowsLoss, "sum_over_batch_size", &kRowWeight, &kRowMask, 6.035938},
    {kRowsLoss, "sum_over_batch_size", &kRowColumn, nullptr, 4.9928126},
    {kRowsLoss, "sum_over_batch_size", &kRowColumn, &kRowMask, 6.035938},
    {kRowsLoss, "sum_over_batch_size", &kZeroWeight, nullptr, 0},
    {kRowsLoss, "sum_over_batch_size", &kZeroWeight, &kRowMask, 0},
    {kDiceLoss, "sum_over_batch_size", nullptr, nullptr, 0.5027027},
    {kDiceLoss, "sum_over_batch_size", &kRowWeight, nullptr, 0.5864865},
    {kStepsLoss, "mean_with_sample_weight", nullptr, nullptr, 1.3848176},
    {kStepsLoss, "mean_with_sample_weight", nullptr, &kStepMask, 1.5310907},
    {kStepsLoss, "mean_with_sample_weight", nullptr, &kNoMask, 0},
    {kStepsLoss, "mean_with_sample_weight", &kStepWeight, nullptr, 1.1482819},
    {kStepsLoss, "mean_with_sample_weight", &kStepWeight, &kStepMask, 1.3921449},
    {kStepsLoss, "mean_with_sample_weight", &kStepWeight, &kNoMask, 0},
    {kStepsLoss, "mean_with_sample_weight", &kColumnWeight, nullptr, 4.9314413},
    {kStepsLoss, "mean_with_sample_weight", &kColumnWeight, &kStepMask, 1.5243062},
    {kStepsLoss, "mean_with_sample_weight", &kColumnWeight, &kNoMask, 0},
    {kRowsLoss, "mean_with_sample_weight", nullptr, nullptr, 4.6022916},
    {kRowsLoss, "mean_with_sample_weight", nullptr, &kRowMask, 3.996875},
    {kRowsLoss, "mean_with_sample_weight", &kRowWeight, nullptr, 4.2795534},
    {kRowsLoss, "mean_with_sample_weight", &kRowWeight, &kRowMask, 4.023958},
    {kRowsLoss, "mean_with_sample_weight", &kRowColumn, nullptr, 4.2795534},
    {kRowsLoss, "mean_with_sample_weight", &kRowColumn, &kRowMask, 4.023958},
    {kRowsLoss, "mean_with_sample_weight", &kZeroWeight, nullptr, 0},
    {kRowsLoss, "mean_with_sample_weight", &kZeroWeight, &kRowMask, 0},
    {kDiceLoss, "mean_with_sample_weight", nullptr, nullptr, 0.5027027},
    {kDiceLoss, "mean_with_sample_weight", &kRowWeight, nullptr, 0.5027027},
    {kStepsLoss, "sum", nullptr, nullptr, 8.308906},
    {kStepsLoss, "sum", nullptr, &kStepMask, 4.593272},
    {kStepsLoss, "sum", nullptr, &kNoMask, 0},
    {kStepsLoss, "sum", &kStepWeight, nullptr, 8.899185},
    {kStepsLoss, "sum", &kStepWeight, &kStepMask, 2.4362535},
    {kStepsLoss, "sum", &kStepWeight, &kNoMask, 0},
    {kStepsLoss, "sum", &kColumnWeight, nullptr, 12.328603},
    {kStepsLoss, "sum", &kColumnWeight, &kStepMask, 6.859378},
    {kStepsLoss, "sum", &kColumnWeight, &kNoMask, 0},
    {kRowsLoss, "sum", nullptr, nullptr, 13.806875},
    {kRowsLoss, "sum", nullptr, &kRowMask, 7.99375},
    {kRowsLoss, "sum", &kRowWeight, nullptr, 14.978437},
    {kRowsLoss, "sum", &kRowWeight, &kRowMask, 12.071875},
    {kRowsLoss, "sum", &kRowColumn, nullptr, 14.978437},
    {kRowsLoss, "sum", &kRowColumn, &kRowMask, 12.071875},
    {kRowsLoss, "sum", &kZeroWeight, nullptr, 0},
    {kRowsLoss, "sum", &kZeroWeight, &kRowMask, 0},
    {kDiceLoss, "sum", nullptr, nullptr, 0.5027027},
    {kDiceLoss, "sum", &kRowWeight, nullptr, 1.7594595},
};

Computed compute_reduction(const ReductionCase& test, const std::string& reduction) {
  const bool steps = std::string_view(test.loss) == kStepsLoss;
  const bool dice = std::string_view(test.loss) == kDiceLoss;
  const std::string config = std::string(R"({"class_name": ")") + test.loss +
                             R"(", "config": {"reduction": )" + reduction +
                             (steps ? R"(, "from_logits": true}})" : "}}");
  const Data& y_true = steps ? kStepLabels : dice ? kBinary : kNumbers;
  const Data& y_pred = steps ? kSteps : dice ? kProbabilities : kPositive;
  return compute(config, y_true, y_pred, test.weight, test.mask);
}

double value_of(const std::string& config, const Data& y_true, const Data& y_pred,
                const Data* weight = nullptr, const Data* mask = nullptr) {
  return compute(config, y_true, y_pred, weight, mask).value;
}

Data floats(Shape shape, std::vector<double> values) {
  return {shape, DType::float32, std::move(values)};
}
Data integers(Shape shape, std::vector<double> values) {
  return {shape, DType::int32, std::move(values)};
}

}  // namespace

TEST_CASE("losses and their gradients are Keras's", "[losses]") {
  for (const Case& test : kCases) {
    INFO(test.config);
    const Computed computed = compute(test.config, test.y_true, test.y_pred);
    CHECK(computed.value == near_to(test.value));
    REQUIRE(computed.gradient.size() == test.gradient.size());
    for (std::size_t i = 0; i < test.gradient.size(); ++i) {
      INFO("element " << i);
      CHECK(computed.gradient[i] == near_to(test.gradient[i]));
    }
  }
}

TEST_CASE("reductions with weights and masks are Keras's", "[losses]") {
  for (const ReductionCase& test : kReductionCases) {
    INFO(test.loss << " " << test.reduction << (test.weight != nullptr ? " weighted" : "")
                   << (test.mask != nullptr ? " masked" : ""));
    const Computed computed = compute_reduction(test, '"' + std::string(test.reduction) + '"');
    CHECK(computed.value == near_to(test.value));
    for (const double element : computed.gradient) CHECK(std::isfinite(element));
    if (std::string_view(test.reduction) == "sum_over_batch_size") {
      CHECK(compute_reduction(test, R"("mean")").value == near_to(test.value));
    }
    if (std::string_view(test.reduction) == "sum") {
      CHECK(compute_reduction(test, R"("none")").value == near_to(test.value));
      CHECK(compute_reduction(test, "null").value == near_to(test.value));
    }
  }
}

TEST_CASE("a mask of the formula joins that of the output", "[losses]") {
  const std::string config =
      R"({"class_name": "SparseCategoricalCrossentropy",
          "config": {"from_logits": true, "ignore_class": 1}})";
  CHECK(value_of(config, kStepLabels, kSteps) == near_to(1.070558));
  CHECK(value_of(config, kStepLabels, kSteps, nullptr, &kStepMask) == near_to(1.5209137));
  CHECK(value_of(config, kStepLabels, kSteps, &kStepWeight) == near_to(0.8526435));
  CHECK(value_of(config, kStepLabels, kSteps, &kStepWeight, &kStepMask) == near_to(1.0241961));
}

TEST_CASE("a weight for each sample is one for each of its values", "[losses]") {
  const Data weight = floats({2}, {2, .5});
  const std::string config =
      R"({"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": true}})";
  CHECK(value_of(config, kStepLabels, kSteps, &weight) ==
        near_to(value_of(config, kStepLabels, kSteps, &kColumnWeight)));
}

TEST_CASE("published numbers of losses", "[losses]") {
  const Data one_hot = floats({2, 3}, {0, 1, 0, 0, 0, 1});
  const Data sparse = integers({2}, {1, 2});
  const Data p = floats({2, 3}, {.05, .95, 0, .1, .8, .1});
  const Data z = floats({2, 3}, {1, 2, .5, .1, -1, 2});
  const auto with = [](const std::string& name, const std::string& arguments) {
    return R"({"class_name": ")" + name + R"(", "config": {)" + arguments + "}}";
  };
  const auto categorical = [&](const std::string& arguments) {
    return with("CategoricalCrossentropy", arguments);
  };
  const auto of_labels = [&](const std::string& arguments) {
    return with("SparseCategoricalCrossentropy", arguments);
  };
  CHECK(value_of(categorical(""), one_hot, p) == near_to(1.176939));
  CHECK(value_of(categorical(R"("from_logits": true)"), one_hot, z) == near_to(0.3230766));
  CHECK(value_of(categorical(R"("from_logits": true, "label_smoothing": 0.1)"), one_hot, z) ==
        near_to(0.44641));
  CHECK(value_of(of_labels(""), sparse, p) == near_to(1.176939));
  const std::string logits = R"("from_logits": true)";
  CHECK(value_of(of_labels(logits), sparse, z) == near_to(0.3230766));
  CHECK(value_of(of_labels(logits + R"(, "ignore_class": 2)"), sparse, z) == near_to(0.4643687));
  const Data weight = floats({2}, {1, 3});
  CHECK(value_of(of_labels(logits), sparse, z, &weight) == near_to(0.5048611));
  CHECK(value_of(of_labels(logits + R"(, "reduction": "mean_with_sample_weight")"), sparse, z,
                 &weight) == near_to(0.2524306));
  const Data t = floats({2, 2}, {0, 1, 0, 0});
  CHECK(value_of(R"("binary_crossentropy")", t, floats({2, 2}, {.6, .4, .4, .6})) ==
        near_to(0.8149245));
  CHECK(value_of(with("BinaryCrossentropy", logits), t, floats({2, 2}, {.6, .4, -.4, .6})) ==
        near_to(0.7752516));
  CHECK(value_of(R"("mse")", one_hot, p) == near_to(0.2441667));
  CHECK(value_of(R"("mae")", one_hot, p) == near_to(0.3166667));
  CHECK(value_of(R"("huber")", floats({2, 3}, {0, 3, 0, 0, 0, 3}), p) == near_to(0.7127084));
  CHECK(value_of(with("MeanSquaredError", R"("reduction": "sum")"), one_hot, p) ==
        near_to(0.4883333));
  std::vector<double> counting(24);
  for (std::size_t i = 0; i < counting.size(); ++i) counting[i] = static_cast<double>(i);
  CHECK(value_of(R"("mse")", floats({2, 3, 4}, std::vector<double>(24, 0)),
                 floats({2, 3, 4}, counting)) == near_to(180.1667));
}

TEST_CASE("crossentropy goes by the shapes", "[losses]") {
  const auto name = [](const Data& y_true, const Data& y_pred) {
    return make(R"("crossentropy")", y_true, y_pred)->name();
  };
  const Data column = floats({3, 1}, {0, 1, 1});
  CHECK(name(column, floats({3, 1}, {.2, .3, .4})) == "binary_crossentropy");
  CHECK(name(floats({3}, {0, 1, 1}), floats({3, 1}, {.2, .3, .4})) == "binary_crossentropy");
  CHECK(name(kLabels, kProbabilities) == "sparse_categorical_crossentropy");
  CHECK(name(column, kProbabilities) == "sparse_categorical_crossentropy");
  CHECK(name(kOneHot, kProbabilities) == "categorical_crossentropy");
  CHECK(make(R"("CE")", kOneHot, kProbabilities)->name() == "categorical_crossentropy");
  CHECK(value_of(R"("ce")", kLabels, kProbabilities) == near_to(0.8216219));
}

TEST_CASE("targets are fitted to predictions", "[losses]") {
  const Data column = integers({3, 1}, {1, 3, 0});
  CHECK(value_of(R"("sparse_categorical_crossentropy")", column, kProbabilities) ==
        near_to(0.8216219));
  const Data as_floats = floats({3}, {1, 3, 0});
  CHECK(value_of(R"("sparse_categorical_crossentropy")", as_floats, kProbabilities) ==
        near_to(0.8216219));
  CHECK(value_of(R"("mse")", floats({3}, {1, 2, 3}), floats({3, 1}, {1, 4, 4})) ==
        near_to(5.0 / 3.0));
  CHECK(value_of(R"("mse")", floats({3, 1}, {1, 2, 3}), floats({3}, {1, 4, 4})) ==
        near_to(5.0 / 3.0));
  CHECK(value_of(R"("binary_crossentropy")", integers({2}, {1, 0}), floats({2, 1}, {.5, .5})) ==
        near_to(std::log(2.0)));
}

TEST_CASE("a label that is no class has no loss", "[losses]") {
  const Data labels = integers({3}, {1, -1, 4});
  for (const char* logits : {"true", "false"}) {
    const std::string config =
        std::string(
            R"({"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": )") +
        logits + R"(, "reduction": "sum"}})";
    const double one = value_of(config, integers({1}, {1}), floats({1, 4}, {.1, .6, .2, .1}));
    const Computed all = compute(config, labels, kProbabilities);
    CHECK(all.value == near_to(one));
    for (std::size_t i = 4; i < 12; ++i) CHECK(all.gradient[i] == 0);
  }
}

TEST_CASE("hinge keeps labels that are not all 0 or 1", "[losses]") {
  const Data mixed = floats({2, 2}, {0, 1, 1, -1});
  const Data p = floats({2, 2}, {.5, .5, 2, .5});
  // 1 - 0, 1 - .5, max(1 - 2, 0), 1 + .5
  CHECK(value_of(R"("hinge")", mixed, p) == near_to((1 + .5 + 0 + 1.5) / 4));
}

TEST_CASE("circle without any pair has no loss and no gradient", "[losses]") {
  const Data labels = integers({3}, {0, 1, 2});
  const Data rows = floats({3, 2}, {1, 0, 0, 1, .6, .8});
  const Computed computed = compute(R"("circle")", labels, rows);
  CHECK(computed.value == 0);
  for (const double element : computed.gradient) CHECK(element == 0);
}

TEST_CASE("half precision predictions give a float32 loss", "[losses]") {
  Data half = kProbabilities;
  half.dtype = DType::bfloat16;
  CHECK(value_of(R"("mse")", kOneHot, half) ==
        Approx(value_of(R"("mse")", kOneHot, kProbabilities)).epsilon(1e-2));
}

TEST_CASE("one sample and no sample", "[losses]") {
  CHECK(value_of(R"("mse")", floats({1, 1}, {2}), floats({1, 1}, {5})) == near_to(9));
  CHECK(value_of(R"("mse")", floats({0, 3}, {}), floats({0, 3}, {})) == 0);
}

TEST_CASE("losses that are refused", "[losses]") {
  CHECK_THAT(refusal(R"("mean_squared_eror")", kNumbers, kNumbers),
             Contains("config.json:1:1: error: compile.loss: unknown loss \"mean_squared_eror\"; "
                      "did you mean \"mean_squared_error\"?"));
  CHECK_THAT(refusal(R"({"class_name": "Huber", "config": {"delte": 2}})", kNumbers, kNumbers),
             Contains("compile.loss.config.delte: unknown argument \"delte\"; did you mean "
                      "\"delta\"?"));
  CHECK_THAT(refusal(R"({"class_name": "Dice", "config": {"reduction": "auto"}})", kBinary,
                     kProbabilities),
             Contains("expected one of \"sum_over_batch_size\""));
  CHECK_THAT(refusal(R"("categorical_crossentropy")", kLabels, kProbabilities),
             Contains("loss \"categorical_crossentropy\" does not fit targets [batch] and "
                      "predictions [batch, 4]"));
  CHECK_THAT(refusal(R"("mse")", floats({3, 3}, std::vector<double>(9)), kNumbers),
             Contains("does not fit targets [batch, 3] and predictions [batch, 4]"));
  CHECK_THAT(refusal(R"({"class_name": "CategoricalGeneralizedCrossEntropy", "config": {"q": 1}})",
                     kLabels, kProbabilities),
             Contains("q must be in the interval (0, 1)"));
  CHECK_THAT(refusal("3", kNumbers, kNumbers), Contains("expected a name or an object"));
}

TEST_CASE("losses of class ids say how many classes there are", "[losses]") {
  const auto sparse = make(R"("sparse_categorical_crossentropy")", kLabels, kProbabilities);
  CHECK(sparse->classes(Shape{4}) == 4);
  CHECK(sparse->classes(Shape{7, 4}) == 4);
  CHECK_FALSE(sparse->ignored_class().has_value());
  const auto ignoring = make(R"({"class_name": "SparseCategoricalCrossentropy",
                                 "config": {"ignore_class": -1}})",
                             kLabels, kProbabilities);
  CHECK(ignoring->ignored_class() == -1);
  const auto first =
      make(R"({"class_name": "SparseCategoricalCrossentropy", "config": {"axis": 1}})", kStepLabels,
           kSteps);
  CHECK(first->classes(Shape{3, 5}) == 3);
  CHECK(make(R"("mse")", kNumbers, kNumbers)->classes(Shape{4}) == 0);
  CHECK(make(R"("categorical_crossentropy")", kOneHot, kProbabilities)->classes(Shape{4}) == 0);
}

TEST_CASE("names of losses", "[losses]") {
  const std::string named = R"({"class_name": "Huber", "config": {"name": "mine", "dtype": null}})";
  CHECK(make(R"("mse")", kNumbers, kNumbers)->name() == "mean_squared_error");
  CHECK(make(R"({"class_name": "Huber"})", kNumbers, kNumbers)->name() == "huber_loss");
  CHECK(make(named, kNumbers, kNumbers)->name() == "mine");
  CHECK(make(R"({"class_name": "function", "config": "mean_absolute_error"})", kNumbers, kNumbers)
            ->name() == "mean_absolute_error");
  json::Problems problems;
  CHECK(make_loss(json::make_null(), "loss", {}, problems) == nullptr);
  CHECK(problems.empty());
}
