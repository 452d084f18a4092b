// Optimizers: slots, learning rates, averages, clipping, arguments and their errors.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "runtime/ops/ops.h"
#include "tests/unit/train_fixture.h"

using Catch::Matchers::Contains;
using namespace tessera;
using namespace tessera::train;
using namespace tessera::train::test;

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

TEST_CASE("weights whose flattened paths collide have slots of their own") {
  graph::VariableTable table;
  std::vector<graph::VariableId> weights;
  for (const char* path : {"a/b", "a_b"}) {
    graph::Variable variable;
    variable.path = path;
    variable.shape = {2};
    weights.push_back(table.declare(variable));
  }
  make(R"("lion")")->declare(table, weights);
  CHECK(table[table.find("lion/a_b_momentum").value()].slot_of == weights[0]);
  CHECK(table[table.find("lion/a_b_momentum_1").value()].slot_of == weights[1]);
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
