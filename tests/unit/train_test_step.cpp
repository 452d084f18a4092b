// Step graphs: losses, totals, gradients, update, placements; and how `compile` is read.
#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "layouts/layout_map.h"
#include "runtime/ops/ops.h"
#include "runtime/train/step.h"
#include "runtime/train/weight_rules.h"
#include "tests/support/interpreter.h"
#include "tests/support/json.h"

using Catch::Matchers::Contains;
using namespace tessera;
using namespace tessera::train;
using layouts::Distribution;
using layouts::Mesh;
using layouts::Placement;
using testing::Interpreter;
using testing::parse;

namespace {

/// y = x w (+ frozen), with one output or two equal ones.
struct Linear {
  graph::VariableTable table;
  graph::VariableId kernel = -1;
  graph::VariableId frozen = -1;
  ModelInterface model;

  explicit Linear(std::vector<std::string> outputs, const Placement& storage = {{{}, {}}, 0},
                  DType dtype = DType::float32) {
    graph::Variable variable;
    variable.path = "d/kernel";
    variable.shape = {2, 1};
    variable.storage = storage;
    kernel = table.declare(variable);
    variable.path = "d/frozen";
    variable.shape = {1};
    variable.trainable = false;
    variable.storage = Placement::replicated(1);
    frozen = table.declare(variable);
    model.name = "linear";
    model.inputs = {{"x", {2}, DType::float32}};
    for (const std::string& name : outputs) model.outputs.push_back({name, {1}, dtype});
    model.forward = [this, dtype](graph::Builder& builder,
                                  const std::vector<graph::SymbolicTensor>& inputs, bool) {
      using ops::operator+;
      using ops::operator*;
      graph::SymbolicTensor product = ops::sum(
          ops::expand_dims(inputs[0], 2) * ops::expand_dims(builder.variable(kernel), 0), {1});
      product = product + builder.variable(frozen);
      if (dtype != DType::float32) product = ops::cast(product, dtype);
      ForwardResult result;
      result.outputs.assign(model.outputs.size(), product);
      return result;
    };
  }

  std::vector<TensorSpec> targets() const {
    std::vector<TensorSpec> targets;
    for (const TensorSpec& output : model.outputs) {
      targets.push_back({output.name, {1}, DType::float32});
    }
    return targets;
  }
  CompiledTraining compile(const std::string& text, bool mixed_float16 = false) const {
    return compile(text, targets(), mixed_float16);
  }
  CompiledTraining compile(const std::string& text, const std::vector<TensorSpec>& data,
                           bool mixed_float16 = false) const {
    json::Problems problems;
    CompiledTraining training =
        read_compile(parse(text), "compile", model, data, mixed_float16, problems);
    problems.throw_if_any();
    return training;
  }
  StepOptions options(std::int64_t batch) const {
    StepOptions options;
    options.batch = batch;
    options.targets = targets();
    return options;
  }
};

std::vector<std::string> shown(const StepBuilder& builder) {
  std::vector<std::string> names;
  for (const auto& reported : builder.reported()) names.push_back(reported.name);
  return names;
}

double result(const StepBuilder& builder, const Interpreter& interpreter, std::size_t index) {
  const Metric& metric = *builder.reported()[index].metric;
  std::vector<std::vector<double>> totals;
  for (const graph::VariableId id : metric.variables()) totals.push_back(interpreter.variable(id));
  return metric.result(totals);
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a training step descends and counts its loss by samples") {
  Linear linear({"d"});
  auto training = linear.compile(R"({"optimizer": {"class_name": "SGD",
      "config": {"learning_rate": 0.5}}, "loss": "mse", "metrics": ["mae"]})");
  const Distribution distribution;
  StepBuilder builder(linear.model, training, linear.table, distribution);
  CHECK(shown(builder) == Names{"loss", "mae"});
  StepOptions options = linear.options(2);
  options.loss_output = true;
  const graph::Graph graph = builder.training_step(options);
  REQUIRE(graph.inputs.size() == 2);
  CHECK(graph.value(graph.inputs[0]).path == "x");
  Interpreter interpreter(graph);
  interpreter.set_variable(linear.kernel, {1, 1});
  interpreter.set_variable(linear.frozen, {0});
  interpreter.set_input("x", {1, 0, 0, 2});
  interpreter.set_input("target/d", {3, 1});
  interpreter.run();
  // Errors -2 and 1: loss 2.5, gradient (-2, 2).
  CHECK(interpreter.output("loss")[0] == Approx(2.5));
  CHECK(interpreter.variable(linear.kernel)[0] == Approx(2));
  CHECK(interpreter.variable(linear.kernel)[1] == Approx(0));
  CHECK(interpreter.variable(linear.frozen)[0] == 0);
  CHECK(result(builder, interpreter, 0) == Approx(2.5));
  CHECK(result(builder, interpreter, 1) == Approx(1.5));
  interpreter.run();
  // Errors -1 and -1.
  CHECK(result(builder, interpreter, 0) == Approx((2.5 + 1.0) / 2));
  CHECK(result(builder, interpreter, 1) == Approx(1.25));
}

TEST_CASE("evaluation shares the totals, weights by batch size and changes no weight") {
  Linear linear({"d"});
  auto training = linear.compile(R"({"loss": "mse"})");
  const Distribution distribution;
  StepBuilder builder(linear.model, training, linear.table, distribution);
  const auto loss_of = [&](std::int64_t batch, double error, std::vector<double> totals) {
    const graph::Graph graph = builder.evaluation_step(linear.options(batch));
    Interpreter interpreter(graph);
    interpreter.set_variable(linear.kernel, {0, 0});
    interpreter.set_variable(linear.frozen, {0});
    const auto& ids = builder.reported()[0].metric->variables();
    for (std::size_t i = 0; i < ids.size(); ++i) interpreter.set_variable(ids[i], {totals[i]});
    interpreter.set_input("x", std::vector<double>(static_cast<std::size_t>(2 * batch), 0.0));
    interpreter.set_input("target/d", std::vector<double>(static_cast<std::size_t>(batch), error));
    interpreter.run();
    for (const graph::Assignment& assignment : graph.assignments) {
      CHECK(linear.table[assignment.variable].role == graph::Role::metric);
    }
    totals.clear();
    for (const graph::VariableId id : ids) totals.push_back(interpreter.variable(id)[0]);
    return totals;
  };
  // Losses 1 and 2 of 32 and 8 samples: 1.2.
  std::vector<double> totals = loss_of(32, 1.0, {0, 0});
  totals = loss_of(8, std::sqrt(2.0), totals);
  std::vector<std::vector<double>> columns = {{totals[0]}, {totals[1]}};
  CHECK(builder.reported()[0].metric->result(columns) == Approx(1.2));
}

TEST_CASE("several outputs have prefixes, unweighted trackers and weighted totals") {
  Linear linear({"a", "b"});
  auto training = linear.compile(R"({"optimizer": "sgd", "loss": ["mse", "mae"],
      "loss_weights": [2, 3], "metrics": {"b": "mse"}, "weighted_metrics": [null, ["mse"]]})");
  const Distribution distribution;
  StepBuilder builder(linear.model, training, linear.table, distribution);
  CHECK(shown(builder) == Names{"loss", "a_loss", "b_loss", "b_mse", "b_weighted_mse"});
  StepOptions options = linear.options(2);
  options.sample_weights = true;
  options.sample_weight_shapes = {{}};
  const graph::Graph graph = builder.training_step(options);
  Interpreter interpreter(graph);
  interpreter.set_variable(linear.kernel, {0, 0});
  interpreter.set_variable(linear.frozen, {0});
  interpreter.set_input("x", {1, 1, 1, 1});
  interpreter.set_input("target/a", {1, 2});
  interpreter.set_input("target/b", {3, 5});
  interpreter.set_input("sample_weight/a", {1, 3});
  interpreter.run();
  CHECK(result(builder, interpreter, 1) == Approx((1 + 3 * 4) / 2.0));
  CHECK(result(builder, interpreter, 2) == Approx((3 + 3 * 5) / 2.0));
  CHECK(result(builder, interpreter, 0) == Approx(2 * 6.5 + 3 * 9));
  CHECK(result(builder, interpreter, 3) == Approx(17));
  CHECK(result(builder, interpreter, 4) == Approx((9 + 3 * 25) / 4.0));
}

TEST_CASE("penalties of trainable weights and added losses join the total") {
  Linear linear({"d"});
  const auto penalty = [](graph::SymbolicTensor weight) { return ops::sum(ops::square(weight)); };
  linear.table[linear.kernel].regularizer = penalty;
  linear.table[linear.frozen].regularizer = penalty;
  const Forward plain = linear.model.forward;
  linear.model.forward = [plain](graph::Builder& builder,
                                 const std::vector<graph::SymbolicTensor>& inputs, bool training) {
    ForwardResult result = plain(builder, inputs, training);
    result.added_losses.push_back(ops::full(builder, {}, 100.0));
    return result;
  };
  auto training = linear.compile(R"({"optimizer": {"class_name": "SGD",
      "config": {"learning_rate": 1}}})");
  const Distribution distribution;
  StepBuilder builder(linear.model, training, linear.table, distribution);
  const graph::Graph graph = builder.training_step(linear.options(1));
  Interpreter interpreter(graph);
  interpreter.set_variable(linear.kernel, {1, 2});
  interpreter.set_variable(linear.frozen, {7});
  interpreter.set_input("x", {1, 1});
  interpreter.set_input("target/d", {0});
  interpreter.run();
  CHECK(result(builder, interpreter, 0) == Approx(105));
  CHECK(interpreter.variable(linear.kernel) == std::vector<double>{-1, -2});
}

TEST_CASE("without any loss there is nothing to train, but evaluation runs") {
  Linear linear({"d"});
  auto training = linear.compile("{}");
  CHECK(training.optimizer->name() == "rm_sprop");
  const Distribution distribution;
  StepBuilder builder(linear.model, training, linear.table, distribution);
  CHECK_THROWS_WITH(builder.training_step(linear.options(1)), Contains("No loss to compute"));
  CHECK_NOTHROW(builder.evaluation_step(linear.options(1)));
  CHECK_FALSE(builder.finishing_step().has_value());
}

TEST_CASE("predictions are float32 and whole") {
  Linear linear({"a", "b"}, {{{}, {}}, 0}, DType::bfloat16);
  const Distribution distribution = Distribution::data_parallel(Mesh({2}, {"batch"}));
  const graph::Graph graph = prediction_step(linear.model, linear.table, distribution, 3);
  REQUIRE(graph.outputs.size() == 2);
  CHECK(graph.outputs[1].name == "predictions/1");
  const graph::Value& value = graph.value(graph.outputs[0].value);
  CHECK(value.type == graph::ValueType{{3, 1}, DType::float32});
  CHECK(value.pin == Placement::replicated(2));
  CHECK(graph.value(graph.inputs[0]).pin == Placement{{{0}, {}}, 0});
}

TEST_CASE("inputs, gradients and slots are placed as their weight; ZeRO cuts the last two") {
  const Placement whole = Placement::replicated(2);
  const Placement by_batch{{{0}, {}}, 0};
  const Placement by_model{{{1}, {}}, 0};
  struct Case {
    Distribution distribution;
    Placement compute;
    Placement state;
  };
  const Mesh line({2}, {"batch"});
  std::vector<Case> cases = {
      {Distribution::data_parallel(line), whole, whole},
      {Distribution::model_parallel(layouts::LayoutMap(Mesh({2, 2}, {"batch", "model"}))), by_model,
       by_model},
  };
  for (const int stage : {1, 2, 3}) {
    cases.push_back({Distribution::data_parallel(line, {stage, 0}), whole, by_batch});
  }
  for (const Case& one : cases) {
    INFO("stage " << one.distribution.zero().stage);
    Linear linear({"d"});
    graph::Variable& kernel = linear.table[linear.kernel];
    kernel.storage = one.distribution.parameter_storage(kernel.shape, one.compute);
    if (!(*kernel.storage == one.compute)) kernel.compute = one.compute;
    auto training = linear.compile(R"({"optimizer": "adafactor", "loss": "mse"})");
    StepBuilder builder(linear.model, training, linear.table, one.distribution);
    const graph::Graph graph = builder.training_step(linear.options(4));
    CHECK(graph.value(graph.inputs[0]).pin == by_batch);
    CHECK(graph.value(graph.inputs[1]).pin == by_batch);
    int gradients = 0;
    for (const graph::Value& value : graph.values) {
      if (value.source != graph::Value::Source::node || value.path != "d/kernel") continue;
      ++gradients;
      CHECK(value.pin == one.state);
    }
    CHECK(gradients == 1);
    const auto storage = [&](const char* path) {
      return linear.table[linear.table.find(path).value()].storage.value();
    };
    CHECK(storage("adafactor/iteration") == Placement::replicated(0));
    CHECK(storage("adafactor/d_kernel_velocity") == one.state);
    CHECK(storage("adafactor/d_kernel_r") == Placement{{one.state.dims[0]}, 0});
    CHECK(storage("adafactor/d_kernel_c") == Placement{{one.state.dims[1]}, 0});
  }
}

TEST_CASE("mixed_float16 scales the loss, but not what is shown") {
  Linear linear({"d"}, {{{}, {}}, 0}, DType::float16);
  auto training = linear.compile(R"({"optimizer": {"class_name": "SGD",
      "config": {"learning_rate": 0.5}}, "loss": "mse"})",
                                 true);
  CHECK(training.optimizer->name() == "loss_scale_optimizer");
  const Distribution distribution;
  StepBuilder builder(linear.model, training, linear.table, distribution);
  const graph::Graph graph = builder.training_step(linear.options(2));
  Interpreter interpreter(graph);
  interpreter.set_variable(linear.kernel, {1, 1});
  interpreter.set_variable(linear.frozen, {0});
  interpreter.set_input("x", {1, 0, 0, 2});
  interpreter.set_input("target/d", {2, 1});
  interpreter.run();
  // Errors -1 and 1, gradient (-1, 2), which the scale 32768 takes close to the end of float16.
  CHECK(result(builder, interpreter, 0) == Approx(1));
  CHECK(interpreter.variable(linear.kernel)[0] == Approx(1.5));
  CHECK(linear.compile(R"({"auto_scale_loss": false})", true).optimizer->name() == "rm_sprop");
}

TEST_CASE("EMA gives fit a last step") {
  Linear linear({"d"});
  auto training = linear.compile(
      R"({"optimizer": {"class_name": "SGD", "config": {"use_ema": true}}, "loss": "mse"})");
  const Distribution distribution;
  StepBuilder builder(linear.model, training, linear.table, distribution);
  REQUIRE(builder.finishing_step().has_value());
}

TEST_CASE("compile accepts Keras's forms") {
  Linear one({"d"});
  Linear two({"a", "b"});
  const auto losses = [](const CompiledTraining& training) {
    Names names;
    for (const auto& loss : training.losses.losses) names.push_back(loss ? loss->name() : "");
    return names;
  };
  const auto metrics = [](const CompiledTraining& training) {
    Names names;
    for (const CompiledMetric& metric : training.metrics) names.push_back(metric.shown_name);
    return names;
  };
  const std::string mse = losses(one.compile(R"({"loss": "mse"})"))[0];
  const std::string mae = losses(one.compile(R"({"loss": ["mae"]})"))[0];
  CHECK(mse != mae);
  CHECK(losses(one.compile(R"({"loss": {"d": "mse"}})")) == Names{mse});
  CHECK(losses(one.compile(R"({"loss": null})")) == Names{""});
  CHECK(losses(two.compile(R"({"loss": "mse"})")) == Names{mse, mse});
  CHECK(
      losses(two.compile(R"({"loss": {"class_name": "MeanSquaredError", "config": {}}})")).size() ==
      2);
  CHECK(losses(two.compile(R"({"loss": ["mae", null]})")) == Names{mae, ""});
  CHECK(losses(two.compile(R"({"loss": {"b": "mae", "a": "mse"}})")) == Names{mse, mae});
  CHECK(one.compile(R"({"loss": "mse", "loss_weights": 0.5})").losses.weights ==
        std::vector<double>{0.5});
  CHECK(two.compile(R"({"loss": "mse", "loss_weights": {"b": 3, "a": 2}})").losses.weights ==
        std::vector<double>{2, 3});
  CHECK(metrics(one.compile(R"({"metrics": "mae"})")) == Names{"mae"});
  CHECK(metrics(one.compile(R"({"metrics": [["mae", "mse"]], "weighted_metrics": ["mae"]})")) ==
        Names{"mae", "mse", "weighted_mae"});
  CHECK(metrics(one.compile(R"({"metrics": ["mae", "mae"]})")) == Names{"mae", "mae_1"});
  CHECK(metrics(two.compile(R"({"metrics": ["mae", ["mse", "mae"]]})")) ==
        Names{"a_mae", "b_mse", "b_mae"});
  CHECK(metrics(two.compile(R"({"metrics": {"b": ["mse"]}})")) == Names{"b_mse"});
  CHECK(metrics(two.compile(R"({"metrics": []})")).empty());
  CHECK_NOTHROW(one.compile(R"({"optimizer": "adam", "loss": "mse", "loss_weights": null,
      "metrics": null, "weighted_metrics": null, "run_eagerly": false, "steps_per_execution": 1,
      "jit_compile": "auto", "auto_scale_loss": true})"));
}

TEST_CASE("errors of compile are placed, all at once") {
  Linear one({"d"});
  Linear two({"price", "kind"});
  CHECK_THROWS_WITH(one.compile(R"({"optimiser": "adam"})"),
                    Contains("compile.optimiser") && Contains("did you mean \"optimizer\"?"));
  CHECK_THROWS_WITH(
      one.compile(R"({"loss": "msse", "metrics": ["mea"], "optimizer": "adm"})"),
      Contains("compile.loss") && Contains("compile.metrics[0]") && Contains("compile.optimizer"));
  CHECK_THROWS_WITH(one.compile("[]"), Contains("compile: expected an object"));
  CHECK_THROWS_WITH(two.compile(R"({"loss": ["mse"]})"), Contains("expected 2, got 1"));
  CHECK_THROWS_WITH(two.compile(R"({"loss": {"prize": "mse", "kind": "mse"}})"),
                    Contains("compile.loss.prize") && Contains("did you mean \"price\"?") &&
                        Contains("\"price\" is missing"));
  CHECK_THROWS_WITH(two.compile(R"({"loss": "mse", "loss_weights": [1]})"),
                    Contains("compile.loss_weights"));
  CHECK_THROWS_WITH(two.compile(R"({"loss": "mse", "loss_weights": {"price": "x", "kind": 1}})"),
                    Contains("compile.loss_weights.price: expected a number"));
  CHECK_THROWS_WITH(two.compile(R"({"metrics": "mse"})"), Contains("compile.metrics"));
  CHECK_THROWS_WITH(one.compile(R"({"jit_compile": "yes"})"), Contains("compile.jit_compile"));
  CHECK_THROWS_WITH(two.compile(R"({"loss": "mse"})", {{"price", {1}, DType::float32}}),
                    Contains("output \"kind\" has a loss, but the data holds no target"));
}
