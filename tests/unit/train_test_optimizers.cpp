// Optimizers against Keras's numbers (float32): three updates of one weight, slots, arguments and
// their errors.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "runtime/ops/ops.h"
#include "runtime/train/optimizers.h"
#include "tests/support/interpreter.h"

using Catch::Matchers::Contains;
using namespace tessera;
using namespace tessera::train;
using testing::Interpreter;

namespace {

const std::vector<double> kStart = {1, -2, 3, 0.5};
const std::vector<std::vector<double>> kGradients = {
    {.1, -.2, .3, .05}, {.2, -.2, .15, .05}, {-.3, .4, .1, 0}};

json::Value parse(const std::string& text) {
  json::Problems problems;
  json::Value value = json::parse(text, "config.json", problems);
  problems.throw_if_any();
  return value;
}

std::unique_ptr<Optimizer> make(const std::string& text, bool mixed_float16 = false) {
  json::Problems problems;
  std::unique_ptr<Optimizer> optimizer =
      make_optimizer(parse(text), "compile.optimizer", mixed_float16, problems);
  problems.throw_if_any();
  return optimizer;
}

/// One weight "kernel", its optimizer and one update whose gradient is an input.
class Trainer {
 public:
  Trainer(const std::string& optimizer, Shape shape, DType dtype = DType::float32,
          std::function<graph::SymbolicTensor(graph::SymbolicTensor)> constraint = {})
      : optimizer_(make(optimizer)), graph_(table_) {
    graph::Variable kernel;
    kernel.path = "kernel";
    kernel.shape = shape;
    kernel.dtype = dtype;
    kernel.constraint = std::move(constraint);
    kernel_ = table_.declare(kernel);
    optimizer_->declare(table_, std::span(&kernel_, 1));
    graph::Builder builder(graph_);
    const Gradient gradient{kernel_, builder.input("gradient", shape, dtype)};
    optimizer_->apply(builder, std::span(&gradient, 1));
    interpreter_.emplace(graph_);
    interpreter_->set_variable(kernel_, kStart);
  }

  std::vector<double> step(const std::vector<double>& gradient) {
    interpreter_->set_input("gradient", gradient);
    interpreter_->run();
    return weight();
  }
  std::vector<double> weight() const { return interpreter_->variable(kernel_); }
  std::vector<double> variable(const std::string& path) const {
    return interpreter_->variable(table_.find(path).value());
  }
  void set(const std::string& path, double value) {
    interpreter_->set_variable(table_.find(path).value(), {value});
  }
  std::vector<std::string> paths() const {
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < table_.size(); ++i) {
      paths.push_back(table_[static_cast<graph::VariableId>(i)].path);
    }
    return paths;
  }
  graph::VariableTable& table() { return table_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  Interpreter& interpreter() { return *interpreter_; }

 private:
  std::unique_ptr<Optimizer> optimizer_;
  graph::VariableTable table_;
  graph::Graph graph_;
  graph::VariableId kernel_ = -1;
  std::optional<Interpreter> interpreter_;
};

void require_near(const std::vector<double>& got, const std::vector<double>& wanted,
                  double relative = 1.5e-6) {
  REQUIRE(got.size() == wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i << ": " << got[i] << ", expected " << wanted[i]);
    REQUIRE(std::abs(got[i] - wanted[i]) <= relative * std::max(std::abs(wanted[i]), 0.05));
  }
}

struct Golden {
  const char* optimizer;
  std::vector<double> after_1;
  std::vector<double> after_3;
};

std::string object(const std::string& name, const std::string& config = "") {
  return R"({"class_name": ")" + name + R"(", "config": {)" + config + "}}";
}

void check_golden(const std::string& optimizer, Shape shape, const std::vector<double>& after_1,
                  const std::vector<double>& after_3) {
  INFO(optimizer);
  Trainer trainer(optimizer, shape);
  require_near(trainer.step(kGradients[0]), after_1);
  trainer.step(kGradients[1]);
  require_near(trainer.step(kGradients[2]), after_3);
}

}  // namespace

TEST_CASE("optimizers give Keras's weights after one and three updates") {
  struct Case {
    const char* name;
    const char* config;
    std::vector<double> after_1;
    std::vector<double> after_3;
  };
  const std::vector<Case> cases = {
      {"SGD", "", {0.999, -1.998, 2.997, 0.4995}, {1, -2, 2.9945, 0.499}},
      {"SGD",
       R"("learning_rate": 0.1, "momentum": 0.9)",
       {0.99, -1.98, 2.97, 0.495},
       {0.9649, -1.9478, 2.8802, 0.47695}},
      {"SGD",
       R"("learning_rate": 0.1, "momentum": 0.9, "nesterov": true)",
       {0.981, -1.962, 2.943, 0.4905},
       {0.96841, -1.95302, 2.83718, 0.469255}},
      {"SGD",
       R"("learning_rate": 0.1, "weight_decay": 0.01)",
       {0.989, -1.978, 2.967, 0.4945},
       {0.997043, -1.994066, 2.936084, 0.4885165}},
      {"RMSprop",
       "",
       {0.9968379, -1.996838, 2.996838, 0.4968384},
       {0.9965714, -1.99719, 2.994379, 0.4945444}},
      {"RMSprop",
       R"("momentum": 0.9, "centered": true)",
       {0.9966668, -1.996667, 2.996667, 0.4966674},
       {0.9875948, -1.988772, 2.986775, 0.4861261}},
      {"Adam", "", {0.999, -1.999, 2.999, 0.4990001}, {0.9981014, -1.998076, 2.997195, 0.4972272}},
      {"Adam",
       R"("amsgrad": true)",
       {0.999, -1.999, 2.999, 0.4990001},
       {0.9981014, -1.998076, 2.997195, 0.4972275}},
      {"AdamW",
       "",
       {0.998996, -1.998992, 2.998988, 0.4989981},
       {0.9980894, -1.998052, 2.997159, 0.4972212}},
      {"Adamax", "", {0.999, -1.999, 2.999, 0.499}, {0.9982848, -1.998053, 2.997673, 0.4973684}},
      {"Nadam",
       "",
       {0.9989372, -1.998937, 2.998937, 0.4989372},
       {0.9987815, -1.99897, 2.998007, 0.4980484}},
      {"Adagrad",
       "",
       {0.9996985, -1.999465, 2.999312, 0.4998438},
       {0.9997944, -1.99968, 2.998774, 0.4996895}},
      {"Adadelta",
       "",
       {0.9999986, -1.999999, 2.999999, 0.4999986},
       {0.9999989, -1.999999, 2.999997, 0.4999972}},
      {"Adafactor",
       "",
       {0.9990441, -1.997067, 2.997892, 0.499461},
       {0.9993616, -1.997384, 2.994957, 0.4987748}},
      {"Lion", "", {0.999, -1.999, 2.999, 0.499}, {0.999, -1.999, 2.997, 0.497}},
      {"Ftrl",
       "",
       {0.0462359, -0.309157, 0.8228831, 0.005978993},
       {0.04633187, -0.3093716, 0.8223457, 0.005824689}},
      {"Lamb",
       "",
       {0.9981126, -1.998113, 2.998112, 0.4981125},
       {0.9964596, -1.996421, 2.993498, 0.4936892}},
      {"Muon",
       "",
       {0.999898, -1.999803, 2.999696, 0.4999518},
       {0.9998643, -1.999783, 2.999231, 0.4997981}},
      {"ScheduleFreeAdamW",
       "",
       {0.9975, -1.9975, 2.9975, 0.4975},
       {0.9966751, -1.997164, 2.995898, 0.49575}},
      {"SGD",
       R"("learning_rate": 0.1, "clipnorm": 0.1)",
       {0.9973509, -1.994702, 2.992053, 0.4986755},
       {0.9970623, -1.996374, 2.985462, 0.4971324}},
      {"SGD",
       R"("learning_rate": 0.1, "global_clipnorm": 0.1)",
       {0.9973509, -1.994702, 2.992053, 0.4986755},
       {0.9970623, -1.996374, 2.985462, 0.4971324}},
      {"SGD",
       R"("learning_rate": 0.1, "clipvalue": 0.1)",
       {0.99, -1.99, 2.99, 0.495},
       {0.99, -1.99, 2.97, 0.49}},
      {"SGD",
       R"("learning_rate": 0.1, "gradient_accumulation_steps": 2)",
       {1, -2, 3, 0.5},
       {0.985, -1.98, 2.9775, 0.495}},
      {"Adam",
       R"("gradient_accumulation_steps": 2)",
       {1, -2, 3, 0.5},
       {0.999, -1.999, 2.999, 0.4990001}},
      {"SGD",
       R"("learning_rate": 0.1, "use_ema": true, "ema_momentum": 0.5, "ema_overwrite_frequency": 2)",
       {0.99, -1.98, 2.97, 0.495},
       {1.01, -2.01, 2.9525, 0.4925}},
      {"SGD",
       R"("learning_rate": 0.1, "loss_scale_factor": 10)",
       {0.999, -1.998, 2.997, 0.4995},
       {1, -2, 2.9945, 0.499}},
  };
  for (const Case& one : cases) {
    check_golden(object(one.name, one.config), {2, 2}, one.after_1, one.after_3);
  }
}

TEST_CASE("vectors take the unfactored and the Adam form") {
  check_golden(object("Adafactor"), {4}, {0.9981126, -1.998113, 2.998112, 0.4981125},
               {0.9982758, -1.998742, 2.995842, 0.4962267});
  check_golden(object("Muon"), {4}, {0.998996, -1.998992, 2.998988, 0.4989981},
               {0.9980894, -1.998052, 2.997159, 0.4972212});
}

TEST_CASE("float64 weights are computed with in float64") {
  Trainer trainer(object("Adam"), {2, 2}, DType::float64);
  trainer.step(kGradients[0]);
  trainer.step(kGradients[1]);
  require_near(trainer.step(kGradients[2]), {0.9981014, -1.998076, 2.997195, 0.4972272});
}

TEST_CASE("bfloat16 weights move by steps computed in float32") {
  // In bfloat16 0.999 is 1 and its powers too: Adam would divide by zero or stand still.
  Trainer trainer(object("Adam", R"("learning_rate": 0.25)"), {2, 2}, DType::bfloat16);
  require_near(trainer.step(kGradients[0]), {0.75, -1.75, 2.75, 0.25}, 1e-9);
}

TEST_CASE("LossScaleOptimizer skips steps that are not finite and adapts its scale") {
  Trainer trainer(
      object("LossScaleOptimizer",
             R"("inner_optimizer": {"class_name": "SGD", "config": {"learning_rate": 0.1}},
                "initial_scale": 8, "dynamic_growth_steps": 2)"),
      {2, 2});
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> overflow(4, infinity);
  struct Call {
    std::vector<double> gradient;
    double scale;
    double counter;
    double iterations;
    std::vector<double> weight;
  };
  const std::vector<Call> calls = {
      {kGradients[0], 8, 1, 1, {0.99, -1.98, 2.97, 0.495}},
      {kGradients[1], 16, 0, 2, {0.97, -1.96, 2.955, 0.49}},
      {overflow, 8, 0, 2, {0.97, -1.96, 2.955, 0.49}},
      {kGradients[2], 8, 1, 3, {1, -2, 2.945, 0.49}},
      {kGradients[2], 16, 0, 4, {1.03, -2.04, 2.935, 0.49}},
  };
  double scale = 8;
  for (const Call& call : calls) {
    std::vector<double> gradient = call.gradient;
    for (double& element : gradient) element *= scale;
    require_near(trainer.step(gradient), call.weight);
    scale = trainer.variable("loss_scale_optimizer/dynamic_scale")[0];
    CHECK(scale == call.scale);
    CHECK(trainer.variable("loss_scale_optimizer/step_counter")[0] == call.counter);
    CHECK(trainer.variable("sgd/iteration")[0] == call.iterations);
  }
}

TEST_CASE("one element that is not a number skips the whole step, slots included") {
  Trainer trainer(object("LossScaleOptimizer", R"("inner_optimizer": "adam")"), {2, 2});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  REQUIRE(trainer.step({1, 1, nan, 1}) == kStart);
  CHECK(trainer.variable("adam/kernel_momentum") == std::vector<double>(4, 0.0));
  CHECK(trainer.variable("adam/kernel_velocity") == std::vector<double>(4, 0.0));
  CHECK(trainer.variable("loss_scale_optimizer/dynamic_scale")[0] == 16384.0);
}

TEST_CASE("slots are named and ordered as Keras creates them") {
  using Paths = std::vector<std::string>;
  const auto paths_of = [](const std::string& optimizer) {
    graph::VariableTable table;
    std::vector<graph::VariableId> weights;
    for (const char* path : {"seqm/dense/kernel", "seqm/dense/bias"}) {
      graph::Variable variable;
      variable.path = path;
      variable.shape = std::string(path).ends_with("bias") ? Shape{3} : Shape{2, 3};
      weights.push_back(table.declare(variable));
    }
    make(optimizer)->declare(table, weights);
    Paths paths;
    for (std::size_t i = 2; i < table.size(); ++i) {
      const graph::Variable& variable = table[static_cast<graph::VariableId>(i)];
      paths.push_back(variable.path);
      CHECK(variable.role == graph::Role::optimizer);
      CHECK_FALSE(variable.trainable);
    }
    return paths;
  };
  const std::string k = "seqm_dense_kernel_";
  const std::string b = "seqm_dense_bias_";
  CHECK(paths_of(R"("sgd")") == Paths{"sgd/iteration", "sgd/learning_rate"});
  CHECK(paths_of(object("Adam", R"("amsgrad": true)")) ==
        Paths{"adam/iteration", "adam/learning_rate", "adam/" + k + "momentum",
              "adam/" + k + "velocity", "adam/" + b + "momentum", "adam/" + b + "velocity",
              "adam/" + k + "velocity_hat", "adam/" + b + "velocity_hat"});
  CHECK(paths_of(object("RMSprop", R"("momentum": 0.5, "name": "r")")) ==
        Paths{"r/iteration", "r/learning_rate", "r/" + k + "velocity", "r/" + b + "velocity",
              "r/" + k + "momentum", "r/" + b + "momentum"});
  CHECK(paths_of(object("SGD", R"("use_ema": true, "gradient_accumulation_steps": 2)")) ==
        Paths{"sgd/iteration", "sgd/learning_rate", "sgd/" + k + "average",
              "sgd/" + k + "gradient_accumulator", "sgd/" + b + "average",
              "sgd/" + b + "gradient_accumulator"});
  CHECK(paths_of(object("Adafactor")) == Paths{"adafactor/iteration", "adafactor/learning_rate",
                                               "adafactor/" + k + "r", "adafactor/" + k + "c",
                                               "adafactor/" + k + "velocity",
                                               "adafactor/" + b + "velocity"});
  CHECK(paths_of(object("Muon")) == Paths{"muon/iteration", "muon/learning_rate",
                                          "muon/" + k + "momentum", "muon/" + b + "momentum",
                                          "muon/" + b + "velocity"});
  CHECK(paths_of(object("SGD", R"("learning_rate": {"class_name": "CosineDecay",
        "config": {"initial_learning_rate": 0.1, "decay_steps": 10}})")) == Paths{"sgd/iteration"});
}

TEST_CASE("slots without one dimension name the dimensions that they keep") {
  graph::VariableTable table;
  graph::Variable kernel;
  kernel.path = "kernel";
  kernel.shape = {5, 2, 3};
  const graph::VariableId id = table.declare(kernel);
  make(object("Adafactor"))->declare(table, std::span(&id, 1));
  const graph::Variable& rows = table[table.find("adafactor/kernel_r").value()];
  const graph::Variable& columns = table[table.find("adafactor/kernel_c").value()];
  CHECK(rows.shape == Shape{5, 2});
  CHECK(rows.slot_dims == std::vector<int>{0, 1});
  CHECK(columns.shape == Shape{5, 3});
  CHECK(columns.slot_dims == std::vector<int>{0, 2});
  CHECK(rows.slot_of == id);
}

TEST_CASE("a learning rate can be written, and a schedule counts raw steps") {
  Trainer trainer(object("SGD", R"("learning_rate": 1)"), {2, 2});
  REQUIRE(trainer.optimizer().learning_rate().has_value());
  trainer.set("sgd/learning_rate", 0.5);
  require_near(trainer.step({1, 1, 1, 1}), {0.5, -2.5, 2.5, 0});

  Trainer scheduled(object("SGD", R"("gradient_accumulation_steps": 2,
      "learning_rate": {"class_name": "PiecewiseConstantDecay",
                        "config": {"boundaries": [0, 2], "values": [1, 2, 4]}})"),
                    {2, 2});
  CHECK_FALSE(scheduled.optimizer().learning_rate().has_value());
  scheduled.step({1, 1, 1, 1});
  // The first update sees the raw counter 1, the second one 3.
  require_near(scheduled.step({1, 1, 1, 1}), {-1, -4, 1, -1.5});
  scheduled.step({1, 1, 1, 1});
  require_near(scheduled.step({1, 1, 1, 1}), {-5, -8, -3, -5.5});
}

TEST_CASE("constraints come after the update and the average") {
  const auto non_negative = [](graph::SymbolicTensor weight) { return ops::maximum(weight, 0.0); };
  Trainer trainer(object("SGD", R"("learning_rate": 1, "use_ema": true)"), {2, 2}, DType::float32,
                  non_negative);
  REQUIRE(trainer.step({2, 0, 0, 0}) == std::vector<double>{0, 0, 3, 0.5});
  CHECK(trainer.variable("sgd/kernel_average") == std::vector<double>{-1, -2, 3, 0.5});
}

TEST_CASE("the end of fit copies averages into the weights, but none before the first step") {
  Trainer trainer(object("SGD", R"("learning_rate": 1, "use_ema": true, "ema_momentum": 0.5)"),
                  {2, 2});
  graph::Graph graph(trainer.table());
  graph::Builder builder(graph);
  REQUIRE(trainer.optimizer().finish(builder));
  Interpreter end(graph);
  const graph::VariableId kernel = trainer.table().find("kernel").value();
  end.set_variable(kernel, kStart);
  end.run();
  CHECK(end.variable(kernel) == kStart);

  trainer.step({1, 1, 1, 1});
  trainer.step({1, 1, 1, 1});
  for (const char* path : {"kernel", "sgd/iteration", "sgd/kernel_average"}) {
    end.set_variable(trainer.table().find(path).value(), trainer.variable(path));
  }
  end.run();
  CHECK(end.variable(kernel) == std::vector<double>{-0.5, -3.5, 1.5, -1});

  graph::Graph nothing(trainer.table());
  graph::Builder none(nothing);
  CHECK_FALSE(make(R"("sgd")")->finish(none));
}

TEST_CASE("the global norm covers all weights and turns an overflow into NaN") {
  const auto optimizer = make(object("SGD", R"("learning_rate": 1, "global_clipnorm": 1)"));
  graph::VariableTable table;
  std::vector<graph::VariableId> weights;
  for (const char* path : {"a", "b"}) {
    graph::Variable variable;
    variable.path = path;
    variable.shape = {1};
    weights.push_back(table.declare(variable));
  }
  optimizer->declare(table, weights);
  graph::Graph graph(table);
  graph::Builder builder(graph);
  const std::vector<Gradient> gradients = {{weights[0], builder.input("a", {1}, DType::float32)},
                                           {weights[1], builder.input("b", {1}, DType::float32)}};
  optimizer->apply(builder, gradients);
  Interpreter interpreter(graph);
  interpreter.set_input("a", {3});
  interpreter.set_input("b", {-4});
  interpreter.run();
  require_near(interpreter.variable(weights[0]), {-0.6});
  require_near(interpreter.variable(weights[1]), {0.8});
  interpreter.set_input("a", {std::numeric_limits<double>::infinity()});
  interpreter.run();
  CHECK(std::isnan(interpreter.variable(weights[1])[0]));
}

TEST_CASE("weights without a gradient stay; without any gradient there is an error") {
  const auto optimizer = make(R"("adam")");
  graph::VariableTable table;
  std::vector<graph::VariableId> weights;
  for (const char* path : {"a", "b"}) {
    graph::Variable variable;
    variable.path = path;
    variable.shape = {1};
    weights.push_back(table.declare(variable));
  }
  optimizer->declare(table, weights);
  graph::Graph graph(table);
  graph::Builder builder(graph);
  std::vector<Gradient> gradients = {{weights[0], {}}, {weights[1], {}}};
  CHECK_THROWS_WITH(optimizer->apply(builder, gradients), Contains("No gradients provided"));
  gradients[1].value = builder.input("b", {1}, DType::float32);
  optimizer->apply(builder, gradients);
  Interpreter interpreter(graph);
  interpreter.set_input("b", {1});
  interpreter.run();
  CHECK(interpreter.variable(weights[1])[0] == Approx(-0.001));
  for (const graph::Assignment& assignment : graph.assignments) {
    CHECK(assignment.variable != weights[0]);
  }
}

TEST_CASE("empty weights are updated without harm") {
  for (const char* name : {"SGD", "Adam", "Lamb", "Adafactor"}) {
    INFO(name);
    graph::VariableTable table;
    graph::Variable variable;
    variable.path = "none";
    variable.shape = {0, 3};
    const graph::VariableId id = table.declare(variable);
    const auto optimizer = make(object(name, R"("clipnorm": 1)"));
    optimizer->declare(table, std::span(&id, 1));
    graph::Graph graph(table);
    graph::Builder builder(graph);
    const Gradient gradient{id, builder.input("g", {0, 3}, DType::float32)};
    optimizer->apply(builder, std::span(&gradient, 1));
    Interpreter interpreter(graph);
    interpreter.set_input("g", {});
    interpreter.run();
    CHECK(interpreter.variable(id).empty());
  }
}

TEST_CASE("names are found in any case of letters; mixed_float16 wraps") {
  CHECK(make(R"("Adam")")->name() == "adam");
  CHECK(make(R"("RMSProp")")->name() == "rm_sprop");
  CHECK(make(R"("ADAMW")")->name() == "adam_w");
  CHECK(make(object("SGD", R"("name": "mine")"))->name() == "mine");
  CHECK(make(R"("sgd")", true)->name() == "loss_scale_optimizer");
  CHECK(make(object("LossScaleOptimizer", R"("inner_optimizer": "sgd", "name": "s")"), true)
            ->name() == "s");
}

TEST_CASE("errors of optimizers name the place and the nearest name") {
  const auto fails = [](const std::string& text, const std::string& fragment) {
    INFO(text);
    CHECK_THROWS_WITH(make(text), Contains(fragment));
  };
  fails(R"("admaw")",
        R"(config.json:1:1: error: compile.optimizer: Could not interpret optimizer identifier: )"
        R"("admaw"; did you mean "adamw"?)");
  fails(object("SGD", R"("momentun": 0.9)"),
        R"(compile.optimizer.config.momentun: Argument(s) not recognized: "momentun"; )"
        R"(did you mean "momentum"?)");
  fails(object("SGD", R"("momentum": 1.5)"), "expected a number from 0 to 1, got 1.5");
  fails(object("SGD", R"("clipnorm": 1, "clipvalue": 1)"),
        "Only one of `clipnorm`, `clipvalue` and `global_clipnorm` can be set");
  fails(object("SGD", R"("gradient_accumulation_steps": 1)"), "at least 2");
  fails(object("SGD", R"("use_ema": true, "ema_momentum": 2)"), "from 0 to 1");
  fails(object("AdamW", R"("weight_decay": null)"), "`weight_decay` must be a float");
  fails(object("SGD", R"("learning_rate": "fast")"), "compile.optimizer.config.learning_rate");
  fails(object("SGD", R"("learning_rate": {"class_name": "CosinDecay", "config": {}})"),
        R"(unknown learning-rate schedule "CosinDecay"; did you mean "CosineDecay"?)");
  fails(object("LossScaleOptimizer"), "inner_optimizer");
  fails(object("LossScaleOptimizer", R"("inner_optimizer": "sgd", "clipnorm": 1)"),
        "LossScaleOptimizer does not support `clipnorm`");
  fails(object("LossScaleOptimizer", R"("inner_optimizer": {"class_name": "SGD",
        "config": {"rate": 1}})"),
        "compile.optimizer.config.inner_optimizer.config.rate");
  fails(object("Muon", R"("exclude_layers": ["("])"), "exclude_layers");
  fails("7", "expected a name or an object");
}

TEST_CASE("Muon leaves embeddings and excluded layers to Adam") {
  graph::VariableTable table;
  std::vector<graph::VariableId> weights;
  for (const char* path : {"d/kernel", "embedding/embeddings", "head/kernel"}) {
    graph::Variable variable;
    variable.path = path;
    variable.shape = {2, 2};
    weights.push_back(table.declare(variable));
  }
  make(object("Muon", R"("exclude_layers": ["hea."])"))->declare(table, weights);
  CHECK_FALSE(table.find("muon/d_kernel_velocity").has_value());
  CHECK(table.find("muon/embedding_embeddings_velocity").has_value());
  CHECK(table.find("muon/head_kernel_velocity").has_value());
}
