// Metrics over two batches against Keras's results (float32, on JAX): every metric, weights, masks,
// names, and what is refused.
#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/ops/ops.h"
#include "runtime/train/metrics.h"
#include "tests/support/interpreter.h"
#include "tests/support/json.h"
#include "tests/unit/train_metric_cases.h"

using Catch::Matchers::Contains;
using namespace tessera;
using namespace tessera::train;
using namespace tessera::train::cases;
using namespace tessera::train::cases::metrics;
using testing::Interpreter;

namespace {

json::Value parse(const std::string& text) { return testing::parse(text, "config.json"); }

std::unique_ptr<Metric> make(const std::string& config, const Data& y_true, const Data& y_pred) {
  json::Problems problems;
  std::unique_ptr<Metric> metric =
      make_metric(parse(config), "compile.metrics[0]", {y_true.type(), y_pred.type()}, problems);
  problems.throw_if_any();
  return metric;
}

/// The problems that a metric has, one a line.
std::string refusal(const std::string& config, const Data& y_true, const Data& y_pred) {
  json::Problems problems;
  const auto metric =
      make_metric(parse(config), "compile.metrics[0]", {y_true.type(), y_pred.type()}, problems);
  CHECK(metric == nullptr);
  std::string text;
  for (const json::Problem& problem : problems.list()) text += json::to_string(problem) + "\n";
  return text;
}

/// Rows begin..end-1.
Data rows(const Data& data, std::int64_t begin, std::int64_t end) {
  Data part = data;
  part.shape[0] = end - begin;
  if (data.values.empty()) return part;
  const std::int64_t row = data.shape.elements() / data.shape[0];
  part.values.assign(data.values.begin() + begin * row, data.values.begin() + end * row);
  return part;
}

/// The totals of a metric, from batch to batch.
class Totals {
 public:
  explicit Totals(Metric& metric) : metric_(metric) {
    metric_.declare(table_, "shown");
    for (const graph::VariableId id : metric_.variables()) {
      const auto elements = static_cast<std::size_t>(table_[id].shape.elements());
      values_.emplace_back(elements, 0.0);
      CHECK(table_[id].role == graph::Role::metric);
      CHECK_FALSE(table_[id].trainable);
    }
  }

  void update(const Data& y_true, const Data& y_pred, const Data* weight, const Data* mask) {
    graph::Graph graph(table_);
    graph::Builder builder(graph);
    std::map<std::string, const Data*> inputs;
    const auto input = [&](const std::string& name, const Data* data) -> SymbolicTensor {
      if (data == nullptr) return {};
      inputs[name] = data;
      return builder.input(name, data->shape, data->dtype);
    };
    const SymbolicTensor targets = input("targets", &y_true);
    const SymbolicTensor predictions = input("predictions", &y_pred);
    metric_.update(builder, targets, predictions, input("weight", weight), input("mask", mask));
    run(graph, inputs);
  }

  void update_mean(double value, double weight) {
    graph::Graph graph(table_);
    graph::Builder builder(graph);
    const Data scalar{{}, DType::float32, {value}};
    dynamic_cast<MeanMetric&>(metric_).update_mean(
        builder, builder.input("value", {}, DType::float32), weight);
    run(graph, {{"value", &scalar}});
  }

  double result() const { return metric_.result(values_); }
  const std::vector<std::vector<double>>& values() const { return values_; }
  const graph::VariableTable& table() const { return table_; }

 private:
  void run(const graph::Graph& graph, const std::map<std::string, const Data*>& inputs) {
    const std::vector<graph::VariableId>& ids = metric_.variables();
    CHECK(graph.assignments.size() == ids.size());
    Interpreter interpreter(graph);
    for (const auto& [name, data] : inputs) interpreter.set_input(name, data->values);
    for (std::size_t i = 0; i < ids.size(); ++i) interpreter.set_variable(ids[i], values_[i]);
    interpreter.run();
    for (std::size_t i = 0; i < ids.size(); ++i) values_[i] = interpreter.variable(ids[i]);
  }

  Metric& metric_;
  graph::VariableTable table_;
  std::vector<std::vector<double>> values_;
};

/// The result after batches that end at these rows.
double result_of(Metric& metric, const MetricCase& test, const std::vector<std::int64_t>& ends) {
  Totals totals(metric);
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) {
    const auto part = [&](const Data* data) {
      return data == nullptr ? Data{} : rows(*data, begin, end);
    };
    const Data weight = part(test.weight);
    const Data mask = part(test.mask);
    totals.update(rows(test.y_true, begin, end), rows(test.y_pred, begin, end),
                  test.weight == nullptr ? nullptr : &weight,
                  test.mask == nullptr ? nullptr : &mask);
    begin = end;
  }
  return totals.result();
}

Approx near_to(double value) { return Approx(value).epsilon(2e-5).margin(2e-6); }

double result_of(const std::string& config, const Data& y_true, const Data& y_pred,
                 const Data* weight = nullptr) {
  const MetricCase test{config.c_str(), y_true, y_pred, weight, nullptr, 0.0, "", 0};
  return result_of(*make(config, y_true, y_pred), test, {y_pred.shape[0]});
}

}  // namespace

TEST_CASE("metrics over two batches are Keras's", "[metrics]") {
  for (const MetricCase& test : kMetricCases) {
    INFO(test.config << (test.weight != nullptr ? " weighted" : "")
                     << (test.mask != nullptr ? " masked" : ""));
    const std::unique_ptr<Metric> metric = make(test.config, test.y_true, test.y_pred);
    CHECK(metric->name() == test.name);
    CHECK(metric->direction() == test.direction);
    CHECK(result_of(*metric, test, {3, 5}) == near_to(test.result));
  }
}

// Totals are sums over samples: batches of any sizes, also of one row or none, give the same
// result.
TEST_CASE("a metric does not depend on how rows are cut into batches", "[metrics]") {
  for (const MetricCase& test : kMetricCases) {
    INFO(test.config);
    const std::unique_ptr<Metric> metric = make(test.config, test.y_true, test.y_pred);
    const double whole = result_of(*metric, test, {5});
    CHECK(result_of(*metric, test, {1, 1, 2, 5}) == near_to(whole));
    CHECK(whole == near_to(test.result));
  }
}

TEST_CASE("metrics of nothing", "[metrics]") {
  const Data nothing = floats({0, 4}, {});
  for (const char* config : {R"("mse")", R"("binary_accuracy")", R"({"class_name": "Precision"})",
                             R"({"class_name": "AUC"})", R"({"class_name": "TruePositives"})",
                             R"({"class_name": "F1Score"})", R"({"class_name": "BinaryIoU"})"}) {
    INFO(config);
    CHECK(result_of(config, nothing, nothing) == 0.0);
  }
}

TEST_CASE("names and totals of metrics", "[metrics]") {
  const auto named =
      make(R"({"class_name": "AUC", "config": {"name": "area", "dtype": null}})", kBits, kSure);
  CHECK(named->name() == "area");
  CHECK_FALSE(named->numbered());
  CHECK(make(R"({"class_name": "AUC"})", kBits, kSure)->numbered());
  CHECK_FALSE(make(R"("AUC")", kBits, kSure)->numbered());
  CHECK_FALSE(make(R"({"class_name": "BinaryAccuracy"})", kBits, kSure)->numbered());
  CHECK(make(R"("Accuracy")", kBits, kSure)->name() == "Accuracy");
  const auto precision = make(R"({"class_name": "Precision"})", kBits, kSure);
  const Totals totals(*precision);
  CHECK(totals.table().find("shown/true_positives").has_value());
  CHECK(totals.table().find("shown/false_positives").has_value());
  CHECK(totals.table().size() == 2);
}

TEST_CASE("every name of a metric in a string", "[metrics]") {
  for (const char* name : {"MeanSquaredError", "mean_squared_error", "mse", "MSE"}) {
    CHECK(make('"' + std::string(name) + '"', kTargets, kNumbers)->name() == name);
  }
  for (const char* name : {"log_cosh_error", "log_cosh", "huber", "kld", "f1_score", "r2_score",
                           "f_beta_score", "auc", "binary_io_u", "sum", "mean"}) {
    INFO(name);
    CHECK(make('"' + std::string(name) + '"', kTargets, kNumbers)->name() == name);
  }
}

TEST_CASE("functions as metrics are means", "[metrics]") {
  CHECK(result_of(R"("huber")", kTargets, kNumbers) ==
        near_to(result_of(R"({"class_name": "MeanMetricWrapper", "config": {"fn":
                           {"class_name": "function", "config": "huber"}, "name": "h"}})",
                          kTargets, kNumbers)));
  const std::string wrapped =
      R"({"class_name": "MeanMetricWrapper", "config": {"fn": "binary_accuracy", "threshold": 0.8}})";
  CHECK(make(wrapped, kBits, kSure)->name() == "mean_metric_wrapper");
  CHECK(result_of(wrapped, kBits, kSure) ==
        near_to(result_of(R"({"class_name": "BinaryAccuracy", "config": {"threshold": 0.8}})",
                          kBits, kSure)));
  const std::string function = R"({"class_name": "function", "config": "mean_absolute_error"})";
  CHECK(make(function, kTargets, kNumbers)->name() == "mean_absolute_error");
  CHECK(result_of(function, kTargets, kNumbers) == near_to(0.93));
}

TEST_CASE("mean and sum are of the predictions", "[metrics]") {
  const Data weight = floats({2}, {1, 3});
  const Data p = floats({2, 2}, {1, 2, 3, 5});
  CHECK(result_of(R"("mean")", p, p) == near_to(2.75));
  CHECK(result_of(R"("sum")", p, p) == near_to(11));
  CHECK(result_of(R"("mean")", p, p, &weight) == near_to((1.5 + 3 * 4) / 4));
  CHECK(result_of(R"("sum")", p, p, &weight) == near_to(3 + 3 * 8));
  CHECK(make(R"("mean")", p, p)->direction() == 0);
}

TEST_CASE("the displayed loss weighs each batch by its size", "[metrics]") {
  MeanMetric loss("loss");
  Totals totals(loss);
  CHECK(totals.result() == 0.0);
  totals.update_mean(1.0, 32);
  totals.update_mean(2.0, 8);
  CHECK(totals.result() == near_to(1.2));
  CHECK(loss.direction() == -1);
}

TEST_CASE("ties: the first largest is chosen, all largest are among the best", "[metrics]") {
  const Data scores = floats({3, 3}, {.4, .4, .2, .2, .4, .4, .3, .3, .4});
  const Data second = integers({3}, {1, 2, 1});
  CHECK(result_of(R"("sparse_categorical_accuracy")", second, scores) == 0.0);
  const std::string top = R"({"class_name": "SparseTopKCategoricalAccuracy", "config": {"k": )";
  CHECK(result_of(top + "1}}", second, scores) == near_to(2.0 / 3));
  CHECK(result_of(top + "2}}", second, scores) == near_to(1.0));
  // Precision keeps exactly k of each row, the first of equal ones: class 0 in the first row, 1 in
  // the second, 2 in the third.
  const Data classes = floats({3, 3}, {1, 0, 0, 0, 0, 1, 0, 0, 1});
  CHECK(result_of(R"({"class_name": "Precision", "config": {"top_k": 1}})", classes, scores) ==
        near_to(2.0 / 3));
}

TEST_CASE("labels that are no class are never right", "[metrics]") {
  const Data labels = integers({3}, {-1, 4, 1});
  const Data scores = floats({3, 3}, {.5, .3, .2, .5, .3, .2, .5, .3, .2});
  CHECK(result_of(R"({"class_name": "SparseTopKCategoricalAccuracy", "config": {"k": 3}})", labels,
                  scores) == near_to(1.0 / 3));
  const Data ids = integers({4}, {0, 1, 5, -1});
  const Data guesses = integers({4}, {0, 1, 0, 1});
  CHECK(result_of(R"({"class_name": "MeanIoU", "config": {"num_classes": 2}})", ids, guesses) ==
        near_to(1.0));
}

TEST_CASE("predictions on the thresholds", "[metrics]") {
  // Larger than the threshold is positive; equal is not.
  const Data labels = floats({4, 1}, {1, 1, 1, 1});
  const Data p = floats({4, 1}, {0, .5, .50001, 1});
  const auto positives = [&](const std::string& thresholds) {
    return result_of(
        R"({"class_name": "TruePositives", "config": {"thresholds": )" + thresholds + "}}", labels,
        p);
  };
  CHECK(positives("0.5") == 2.0);
  CHECK(positives("0") == 3.0);
  CHECK(positives("1") == 0.0);
  CHECK(positives("[0, 0.5, 1]") == near_to((3.0 + 2.0 + 0.0) / 3));
  // Scores outside 0 to 1 are taken to the nearer end by evenly spaced thresholds.
  const Data outside = floats({2, 1}, {-3, 7});
  CHECK(result_of(R"({"class_name": "AUC"})", floats({2, 1}, {0, 1}), outside) == near_to(1.0));
}

TEST_CASE("whole weights of a confusion matrix", "[metrics]") {
  const Data weight = floats({2}, {1.9, .5});
  // 1.9 counts once, 0.5 not at all.
  CHECK(result_of(R"({"class_name": "MeanIoU", "config": {"num_classes": 2}})",
                  integers({2}, {0, 1}), integers({2}, {0, 0}), &weight) == near_to(1.0));
}

TEST_CASE("R2 where all targets are equal", "[metrics]") {
  const Data same = floats({3, 1}, {2, 2, 2});
  CHECK(result_of(R"("r2_score")", same, floats({3, 1}, {1, 2, 3})) == 0.0);
  CHECK(result_of(R"("r2_score")", floats({3}, {1, 2, 3}), floats({3, 1}, {1, 2, 3})) ==
        near_to(1.0));
}

TEST_CASE("half precision predictions of a metric", "[metrics]") {
  Data half = kScores;
  half.dtype = DType::bfloat16;
  CHECK(result_of(R"("accuracy")", kLabels, half) == near_to(0.4));
}

TEST_CASE("metrics that are refused", "[metrics]") {
  CHECK_THAT(refusal(R"("acuracy")", kBits, kSure),
             Contains("config.json:1:1: error: compile.metrics[0]: unknown metric \"acuracy\"; did "
                      "you mean \"accuracy\"?"));
  CHECK_THAT(refusal(R"({"class_name": "Precison"})", kBits, kSure),
             Contains("did you mean \"Precision\"?"));
  CHECK_THAT(refusal(R"({"class_name": "AUC", "config": {"num_treshold": 3}})", kBits, kSure),
             Contains("compile.metrics[0].config.num_treshold: unknown argument"));
  CHECK_THAT(refusal(R"({"class_name": "AUC", "config": {"num_thresholds": 1}})", kBits, kSure),
             Contains("num_thresholds: expected an integer"));
  CHECK_THAT(
      refusal(R"({"class_name": "Precision", "config": {"thresholds": [0.5, 1.5]}})", kBits, kSure),
      Contains("Threshold values must be in [0, 1], got 1.5"));
  CHECK_THAT(refusal(R"({"class_name": "Recall", "config": {"class_id": 4}})", kBits, kSure),
             Contains("class_id 4 is no class of"));
  CHECK_THAT(refusal(R"({"class_name": "MeanIoU"})", kIds, kGuesses),
             Contains("missing key \"num_classes\""));
  CHECK_THAT(
      refusal(R"({"class_name": "IoU", "config": {"num_classes": 2, "target_class_ids": [2]}})",
              kIds, kGuesses),
      Contains("Target class id 2 is out of range, which is [0, 2)"));
  CHECK_THAT(refusal(R"({"class_name": "SensitivityAtSpecificity"})", kBits, kSure),
             Contains("missing key \"specificity\""));
  CHECK_THAT(refusal(R"({"class_name": "FBetaScore", "config": {"beta": 0}})", kBits, kSure),
             Contains("expected a number larger than 0, got 0"));
  CHECK_THAT(refusal(R"("f1_score")", kIds, kGuesses),
             Contains("expected predictions [batch, classes], got [batch]"));
  CHECK_THAT(refusal(R"("categorical_accuracy")", kLabels, kScores),
             Contains("metric \"categorical_accuracy\" does not fit targets [batch] and "
                      "predictions [batch, 4]"));
  CHECK_THAT(refusal(R"({"class_name": "AUC", "config": {"num_labels": 4}})", kBits, kSure),
             Contains("`num_labels` is needed only when `multi_label` is true"));
  CHECK_THAT(refusal(R"({"class_name": "AUC", "config": {"label_weights": [1, 2]}})", kBits, kSure),
             Contains("expected one weight for each of 4 labels, got 2"));
  CHECK_THAT(
      refusal(R"({"class_name": "MeanMetricWrapper", "config": {"fn": "nonsense"}})", kBits, kSure),
      Contains("compile.metrics[0].config.fn: unknown metric \"nonsense\""));
}
