// Training steps on meshes: every optimizer, clipped and constrained, moves weights and slots as it
// does on one rank.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "runtime/ops/ops.h"
#include "runtime/train/step.h"
#include "runtime/train/weight_rules.h"
#include "tests/support/interpreter.h"
#include "tests/support/json.h"
#include "tests/support/simulator.h"

using namespace tessera;
using namespace tessera::train;
using graph::SymbolicTensor;
using graph::VariableId;
using layouts::Distribution;
using layouts::LayoutAxes;
using layouts::LayoutMap;
using layouts::Mesh;
using testing::Interpreter;
using testing::parse;
using testing::Simulator;

namespace {

constexpr std::int64_t kBatch = 7;  // uneven over 2 and 3 ranks

/// Values between -1 and 1 that look irregular and are the same everywhere.
std::vector<double> pattern(std::int64_t count, int salt) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(std::sin(1.7 * static_cast<double>(i) + 0.9 * salt));
  }
  return values;
}

/// y = tanh(x up + bias) down, with penalties and a constraint, placed as a distribution says.
struct Model {
  graph::VariableTable table;
  VariableId up = -1;
  VariableId bias = -1;
  VariableId down = -1;
  ModelInterface interface;
  CompiledTraining training;
  const Distribution& distribution;

  Model(const std::string& optimizer, const Distribution& where) : distribution(where) {
    json::Problems problems;
    up = declare("up/kernel", {5, 7});
    bias = declare("up/bias", {7});
    down = declare("down/kernel", {7, 3});
    table[up].regularizer = make_regularizer(parse(R"("orthogonal_regularizer")"), "r", problems);
    table[down].regularizer = make_regularizer(parse(R"("l1_l2")"), "r", problems);
    table[down].constraint = make_constraint(
        parse(R"({"class_name": "MaxNorm", "config": {"max_value": 1.5}})"), "c", problems);
    interface.name = std::string("m");
    interface.inputs = {{"x", {5}, DType::float32}};
    interface.outputs = {{"down", {3}, DType::float32}};
    interface.forward = [this](graph::Builder& builder, const std::vector<SymbolicTensor>& inputs,
                               bool) {
      using ops::operator+;
      const SymbolicTensor hidden =
          ops::tanh(ops::matmul(inputs[0], builder.variable(up)) + builder.variable(bias));
      ForwardResult result;
      result.outputs = {ops::matmul(hidden, builder.variable(down))};
      return result;
    };
    std::string text = R"({"loss": "mse", "metrics": ["mae"], "optimizer": )";
    text.append(optimizer).append("}");
    training = read_compile(parse(text), "compile", interface, {{"down", {3}, DType::float32}},
                            false, problems);
    problems.throw_if_any();
  }

  VariableId declare(const std::string& path, const Shape& shape) {
    graph::Variable variable;
    variable.path = path;
    variable.shape = shape;
    const layouts::Placement compute = distribution.variable_placement(path, shape);
    variable.storage = distribution.parameter_storage(shape, compute);
    if (!(*variable.storage == compute)) variable.compute = compute;
    return table.declare(variable);
  }

  StepOptions options() const {
    StepOptions options;
    options.batch = kBatch;
    options.targets = {{"down", {3}, DType::float32}};
    options.loss_output = true;
    return options;
  }
};

/// First values of everything, as initializers say; weights by a pattern.
template <typename Machine>
void fill(Machine& machine, const graph::VariableTable& table) {
  for (VariableId id = 0; id < static_cast<VariableId>(table.size()); ++id) {
    const graph::Variable& variable = table[id];
    const auto count = static_cast<std::size_t>(variable.shape.elements());
    const bool constant = variable.initializer.kind == graph::Initializer::Kind::constant;
    const bool one = variable.initializer.kind == graph::Initializer::Kind::ones;
    std::vector<double> values(count, constant ? variable.initializer.a : one ? 1.0 : 0.0);
    if (variable.role == graph::Role::weight) {
      values = pattern(static_cast<std::int64_t>(count), static_cast<int>(id));
    }
    machine.set_variable(id, values);
  }
}

struct Result {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> variables;
};

template <typename Machine>
Result train(Machine& machine, const graph::VariableTable& table, double scale = 1.0) {
  fill(machine, table);
  Result result;
  for (int step = 0; step < 4; ++step) {
    std::vector<double> x = pattern(kBatch * 5, 10 + step);
    // One row, thus one rank, can be made to overflow in the second step.
    if (step == 1 && scale != 1.0) x[0] = scale;
    machine.set_input("x", x);
    machine.set_input("target/down", pattern(kBatch * 3, 20 + step));
    machine.run(static_cast<std::uint64_t>(step));
    result.losses.push_back(machine.output("loss")[0]);
  }
  for (VariableId id = 0; id < static_cast<VariableId>(table.size()); ++id) {
    result.variables[table[id].path] = machine.variable(id);
  }
  return result;
}

Result on_one_rank(const std::string& optimizer, double scale = 1.0) {
  const Distribution distribution;
  Model model(optimizer, distribution);
  StepBuilder builder(model.interface, model.training, model.table, distribution);
  const graph::Graph graph = builder.training_step(model.options());
  Interpreter interpreter(graph);
  return train(interpreter, model.table, scale);
}

Result on_mesh(const std::string& optimizer, const Distribution& distribution, double scale = 1.0) {
  Model model(optimizer, distribution);
  StepBuilder builder(model.interface, model.training, model.table, distribution);
  const graph::Graph graph = builder.training_step(model.options());
  Simulator simulator(graph, distribution.mesh());
  return train(simulator, model.table, scale);
}

void require_same(const Result& got, const Result& wanted) {
  REQUIRE(got.variables.size() == wanted.variables.size());
  const auto compare = [](const std::string& path, const std::vector<double>& a,
                          const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      INFO(path << "[" << i << "]: " << a[i] << ", on one rank " << b[i]);
      if (std::isnan(b[i])) {
        REQUIRE(std::isnan(a[i]));
      } else {
        REQUIRE(std::abs(a[i] - b[i]) <= 1e-5 + 1e-4 * std::abs(b[i]));
      }
    }
  };
  compare("loss", got.losses, wanted.losses);
  for (const auto& [path, values] : wanted.variables) compare(path, got.variables.at(path), values);
}

struct Where {
  const char* name;
  Distribution distribution;
};

std::vector<Where> places() {
  LayoutMap map(Mesh({2, 2}, {"batch", "model"}));
  map.insert("up/kernel", LayoutAxes{{}, {"model"}});
  map.insert("up/bias", LayoutAxes{{"model"}});
  map.insert("down/kernel", LayoutAxes{{"model"}, {}});
  const Mesh three({3}, {"batch"});
  return {
      {"2 ranks, data", Distribution::data_parallel(Mesh({2}, {"batch"}))},
      {"3 ranks, ZeRO 1", Distribution::data_parallel(three, {1, 0})},
      {"3 ranks, ZeRO 2", Distribution::data_parallel(three, {2, 0})},
      {"3 ranks, ZeRO 3", Distribution::data_parallel(three, {3, 0})},
      {"2x2, model and data", Distribution::model_parallel(map)},
      {"2x2, model and ZeRO 3", Distribution::model_parallel(map, "batch", {3, 0})},
  };
}

std::string object(const std::string& name, const std::string& config) {
  std::string text = R"({"class_name": ")";
  return text.append(name).append(R"(", "config": {)").append(config).append("}}");
}

void check_everywhere(const std::string& optimizer, double scale = 1.0) {
  const Result wanted = on_one_rank(optimizer, scale);
  for (const Where& where : places()) {
    INFO(optimizer << " on " << where.name);
    require_same(on_mesh(optimizer, where.distribution, scale), wanted);
  }
}

}  // namespace

TEST_CASE("optimizers do on meshes what they do on one rank") {
  const char* rate = R"("learning_rate": 0.05)";
  for (const char* name : {"RMSprop", "Adam", "AdamW", "Adamax", "Nadam", "Adagrad", "Adadelta",
                           "Adafactor", "Ftrl", "Lamb", "Muon", "ScheduleFreeAdamW"}) {
    check_everywhere(object(name, std::string(rate).append(R"(, "weight_decay": 0.01)")));
  }
  check_everywhere(object("Lion", R"("learning_rate": 0.01)"));
  check_everywhere(object("SGD", R"("learning_rate": 0.05, "momentum": 0.9, "nesterov": true)"));
  check_everywhere(object("Adam", R"("learning_rate": 0.05, "amsgrad": true)"));
}

TEST_CASE("norms for clipping count every element once, however it is cut") {
  check_everywhere(object("SGD", R"("learning_rate": 1, "clipnorm": 0.1)"));
  check_everywhere(object("SGD", R"("learning_rate": 1, "global_clipnorm": 0.1)"));
  check_everywhere(object("SGD", R"("learning_rate": 1, "clipvalue": 0.02)"));
}

TEST_CASE("accumulation, averages and schedules are the same on meshes") {
  check_everywhere(object("Adam", R"("gradient_accumulation_steps": 2, "learning_rate": 0.05)"));
  check_everywhere(object("SGD", R"("use_ema": true, "ema_momentum": 0.5,
      "ema_overwrite_frequency": 3, "learning_rate": {"class_name": "CosineDecay",
      "config": {"initial_learning_rate": 0.5, "decay_steps": 4}})"));
}

TEST_CASE("one rank's overflow skips the step on all ranks") {
  const std::string optimizer =
      object("LossScaleOptimizer", R"("inner_optimizer": {"class_name": "Adam", "config": {}},
      "initial_scale": 64, "dynamic_growth_steps": 2)");
  check_everywhere(optimizer, std::numeric_limits<double>::quiet_NaN());
  const Result result = on_one_rank(optimizer, std::numeric_limits<double>::quiet_NaN());
  // Steps 0, 2 and 3 count: the scale is halved once and doubled once.
  CHECK(result.variables.at("adam/iteration")[0] == 3);
  CHECK(result.variables.at("loss_scale_optimizer/dynamic_scale")[0] == 64);
}

namespace {

/// Collectives of a training step as "phase kind", in order.
std::vector<std::string> collectives(const std::string& optimizer,
                                     const Distribution& distribution) {
  Model model(optimizer, distribution);
  // A norm over a cut dimension would cost a sum of its own.
  model.table[model.down].constraint = nullptr;
  StepBuilder builder(model.interface, model.training, model.table, distribution);
  StepOptions options = model.options();
  options.loss_output = false;
  const graph::Graph graph = builder.training_step(options);
  const compile::Program program = compile::compile(graph, distribution.mesh(), 0);
  std::vector<std::string> found;
  for (const compile::Collective& collective : program.collectives) {
    found.push_back(std::string(graph::name_of(collective.phase))
                        .append(" ")
                        .append(compile::name_of(collective.kind)));
  }
  return found;
}

}  // namespace

TEST_CASE("a step communicates its gradients and nothing else") {
  using List = std::vector<std::string>;
  const Mesh mesh({2}, {"batch"});
  const auto with_stage = [&mesh](int stage) {
    return Distribution::data_parallel(mesh, {stage, 0});
  };
  CHECK(collectives(R"("sgd")", with_stage(0)) == List{"backward all_reduce"});
  CHECK(collectives(R"("adam")", with_stage(0)) == List{"backward all_reduce"});
  for (const int stage : {1, 2, 3}) {
    INFO("stage " << stage);
    const List found = collectives(R"("adam")", with_stage(stage));
    const auto count = [&found](const char* text) {
      return std::count(found.begin(), found.end(), std::string(text));
    };
    CHECK(count("backward all_reduce") == 0);
    CHECK(count("update all_reduce") == 0);
    CHECK(count("backward reduce_scatter") >= 1);
    CHECK((count("update all_gather") > 0) == (stage < 3));
    CHECK((count("forward all_gather") > 0) == (stage == 3));
  }
}
