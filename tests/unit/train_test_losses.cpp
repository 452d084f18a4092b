// Losses and their gradients against Keras's numbers (float32, on JAX): every loss, reductions,
// weights, masks, and what is refused.
#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/ops/gradients.h"
#include "runtime/ops/ops.h"
#include "runtime/train/losses.h"
#include "tests/support/interpreter.h"
#include "tests/support/json.h"
#include "tests/unit/train_loss_cases.h"

using Catch::Matchers::Contains;
using namespace tessera;
using namespace tessera::train;
using namespace tessera::train::cases;
using testing::Interpreter;

namespace {

json::Value parse(const std::string& text) { return testing::parse(text, "config.json"); }

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

}  // namespace

TEST_CASE("losses and their gradients are Keras's", "[losses]") {
  for (const LossCase& test : kLossCases) {
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
