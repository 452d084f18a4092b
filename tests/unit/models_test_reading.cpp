// Reading models: forms of Keras 2 and 3, variable paths, trainability, rows.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/unit/models_fixture.h"
#include "tests/unit/models_json.h"

using namespace tessera;
using namespace tessera::models::test;
using Catch::Matchers::Contains;

TEST_CASE("paths inside a Sequential start with its name, nested ones too") {
  Loaded loaded(sequential("m", {input("x", "[null, 4]"), layer("Dense", "a", "\"units\": 3"),
                                 sequential("blk", {layer("Dense", "b", "\"units\": 2")})}));
  CHECK(loaded.paths() == Strings{"m/a/kernel", "m/a/bias", "m/blk/b/kernel", "m/blk/b/bias"});
  CHECK(loaded.table[loaded.id("m/blk/b/kernel")].shape == Shape{3, 2});
  const auto outputs = loaded.model->output_paths(8);
  REQUIRE(outputs.size() == 3);
  CHECK(outputs[0] == std::pair<std::string, Shape>{"m/a/output", {8, 3}});
  CHECK(outputs[1].first == "m/blk/b/output");
  CHECK(outputs[2].first == "m/blk/output");
  CHECK(loaded.model->inputs().front().name == "x");
  CHECK(loaded.model->outputs().front().name == "blk");
  CHECK(loaded.model->outputs().front().sample_shape == Shape{2});
}

TEST_CASE("paths in Functional graphs have no prefix; nested outputs do") {
  const std::string inner = functional(
      "inner",
      {input("i", "[null, 4]"), called(layer("Dense", "d", "\"units\": 5"), {tensor("i")})},
      "[\"i\", 0, 0]", "[\"d\", 0, 0]");
  Loaded loaded(functional(
      "net",
      {input("x", "[null, 4]"), called(inner, {tensor("x")}),
       called(sequential("s", {layer("Dense", "e", "\"units\": 2")}), {tensor("inner")})},
      kX, "[\"s\", 0, 0]"));
  CHECK(loaded.paths() == Strings{"d/kernel", "d/bias", "s/e/kernel", "s/e/bias"});
  Strings outputs;
  for (const auto& [path, shape] : loaded.model->output_paths(2)) outputs.push_back(path);
  CHECK(outputs == Strings{"inner/d/output", "inner/output", "s/e/output", "s/output"});
}

TEST_CASE("a shared layer has one set of weights and readers name its calls") {
  Loaded loaded(functional(
      "net",
      {input("x", "[null, 2]"), input("y", "[null, 2]"),
       called(layer("Subtract", "gap"), {fmt::format("[{}, {}]", tensor("d", 1), tensor("d", 0))}),
       called(layer("Dense", "d", R"("units": 1, "use_bias": false)"), {tensor("x"), tensor("y")})},
      "[[\"x\", 0, 0], [\"y\", 0, 0]]", "[\"gap\", 0, 0]"));
  CHECK(loaded.paths() == Strings{"d/kernel"});
  Runner runner(loaded, 1);
  runner.interpreter().set_variable(loaded.id("d/kernel"), {1, 10});
  CHECK(runner({{1, 2}, {3, 5}}) == std::vector<double>{53 - 21});
  const auto rows = loaded.model->rows();
  REQUIRE(rows.size() == 4);
  CHECK(rows[2].connected_to == "d[1][0], d[0][0]");
  CHECK(rows[3].parameters == 2);
  CHECK(rows[0].output_shape == "(None, 2)");
}

TEST_CASE("Keras 2 forms are read") {
  SECTION("a bare list of layers") {
    Loaded loaded(R"({"class_name": "Sequential", "config": [
      {"class_name": "Dense", "config": {"name": "dense_1", "units": 3,
       "batch_input_shape": [null, 2], "dtype": "float32", "activation": "relu"}},
      {"class_name": "LeakyReLU", "config": {"name": "leak", "alpha": 0.5}}],
      "keras_version": "2.0.0", "backend": "tensorflow"})");
    CHECK(loaded.model->name() == "sequential");
    CHECK(loaded.paths() == Strings{"sequential/dense_1/kernel", "sequential/dense_1/bias"});
    CHECK(loaded.model->inputs().front().name == "dense_1_input");
  }
  SECTION("nested lists of nodes with keyword arguments") {
    Loaded loaded(R"({"class_name": "Model", "config": {"name": "model", "layers": [
      {"class_name": "InputLayer", "config": {"batch_input_shape": [null, 2], "name": "x"},
       "name": "x", "inbound_nodes": []},
      {"class_name": "Dropout", "config": {"name": "drop", "rate": 0.5}, "name": "drop",
       "inbound_nodes": [[["x", 0, 0, {"training": false}]]]},
      {"class_name": "Add", "config": {"name": "sum"}, "name": "sum",
       "inbound_nodes": [[["x", 0, 0, {}], ["drop", 0, 0, {}]]]}],
      "input_layers": [["x", 0, 0]], "output_layers": [["sum", 0, 0]]}})");
    Runner runner(loaded, 1);
    CHECK(runner({{1, 2}}) == std::vector<double>{2, 4});
  }
}

TEST_CASE("inputs and outputs may be dictionaries") {
  Loaded loaded(functional(
      "net",
      {input("x", "[null, 2]"), called(layer("Dense", "d", "\"units\": 3"), {tensor("x")}),
       called(layer("Dense", "e", "\"units\": 1"), {tensor("x")})},
      R"({"features": ["x", 0, 0]})", R"({"b": ["e", 0, 0], "a": ["d", 0, 0]})"));
  CHECK(loaded.model->inputs().front().name == "features");
  REQUIRE(loaded.model->outputs().size() == 2);
  CHECK(loaded.model->outputs()[0].name == "a");
  CHECK(loaded.model->outputs()[0].sample_shape == Shape{3});
  CHECK(loaded.model->outputs()[1].name == "b");
}

TEST_CASE("one layer that gives two outputs gives them different names") {
  Loaded loaded(functional("net",
                           {input("x", "[null, 2]"), called(layer("Dense", "d", "\"units\": 2"),
                                                            {tensor("x"), tensor("d")})},
                           kX, "[[\"d\", 0, 0], [\"d\", 1, 0]]"));
  CHECK(loaded.model->outputs()[0].name == "d");
  CHECK(loaded.model->outputs()[1].name == "d_1");
}

TEST_CASE("frozen layers and models have frozen weights") {
  Loaded loaded(sequential(
      "m", {input("x", "[null, 4]"), layer("Dense", "a", R"("units": 3, "trainable": false)"),
            sequential("blk", {layer("BatchNormalization", "n")}, "\"trainable\": false"),
            layer("BatchNormalization", "o")}));
  CHECK_FALSE(loaded.table[loaded.id("m/a/kernel")].trainable);
  CHECK_FALSE(loaded.table[loaded.id("m/blk/n/gamma")].trainable);
  CHECK(loaded.table[loaded.id("m/o/gamma")].trainable);
  CHECK_FALSE(loaded.table[loaded.id("m/o/moving_mean")].trainable);
  // A frozen normalisation takes its moving statistics also in training, and keeps them.
  Runner runner(loaded, 2, true);
  Strings assigned;
  for (const graph::Assignment& assignment : runner.graph().assignments) {
    assigned.push_back(loaded.table[assignment.variable].path);
  }
  CHECK(assigned == Strings{"m/o/moving_mean", "m/o/moving_variance"});
}

TEST_CASE("policies decide the dtypes of weights and values") {
  const std::string text =
      sequential("m", {input("x", "[null, 4]"), layer("Dense", "a", "\"units\": 3"),
                       layer("LayerNormalization", "n"),
                       layer("Activation", "s", R"("activation": "softmax", "dtype": "float32")")});
  SECTION("mixed") {
    Loaded loaded(text, "mixed_bfloat16");
    CHECK(loaded.table[loaded.id("m/a/kernel")].dtype == DType::float32);
    Runner runner(loaded, 2);
    CHECK(runner.result().outputs.front().dtype() == DType::float32);
    int products = 0;
    for (const graph::Node& node : runner.graph().nodes) {
      if (node.op->name() != "einsum") continue;
      ++products;
      CHECK(runner.graph().type(node.inputs[0]).dtype == DType::bfloat16);
      CHECK(runner.graph().type(node.inputs[1]).dtype == DType::bfloat16);
    }
    CHECK(products == 1);
  }
  SECTION("pure") {
    Loaded loaded(text, "bfloat16");
    CHECK(loaded.table[loaded.id("m/a/kernel")].dtype == DType::bfloat16);
    CHECK(loaded.table[loaded.id("m/n/gamma")].dtype == DType::bfloat16);
  }
  SECTION("a layer's own, and integers stay") {
    Loaded loaded(
        sequential("m", {input("x", "[null, 4]", "int32"),
                         layer("Embedding", "e",
                               R"("input_dim": 9, "output_dim": 2, "dtype": {"module": "keras",
                       "class_name": "DTypePolicy", "config": {"name": "mixed_float16"}})")}));
    CHECK(loaded.model->inputs().front().limit == 9);
    CHECK(loaded.model->outputs().front().dtype == DType::float16);
    CHECK(loaded.table[loaded.id("m/e/embeddings")].dtype == DType::float32);
  }
}

TEST_CASE("a Dense layer is a product, a sum and an activation") {
  Loaded loaded(sequential(
      "m", {input("x", "[null, 4]"), layer("Dense", "a", R"("units": 3, "activation": "relu")"),
            layer("Dense", "b", R"("units": 2, "use_bias": false, "activation": "linear")")}));
  Runner runner(loaded, 2, true);
  CHECK(runner.graph().nodes.size() == 4);
  for (const graph::Node& node : runner.graph().nodes) CHECK_THAT(node.path, Contains("m/"));
  CHECK(runner.graph().value(runner.result().outputs.front().id).path == "m/b/output");
}

TEST_CASE("outputs are pinned where a layout asks, also those that are passed through") {
  Loaded loaded(sequential("m", {input("x", "[null, 4]"), layer("Dense", "a", "\"units\": 4"),
                                 layer("Dropout", "o", "\"rate\": 0.5")}));
  loaded.model->place = [](const std::string& path,
                           const Shape& shape) -> std::optional<layouts::Placement> {
    layouts::Placement placement = layouts::Placement::replicated(shape.rank());
    placement.dims[path == "m/a/output" ? 1 : 0] = {0};
    return placement;
  };
  Runner runner(loaded, 2);
  const graph::Value& last = runner.graph().value(runner.result().outputs.front().id);
  CHECK(last.path == "m/o/output");
  REQUIRE(last.pin.has_value());
  CHECK(last.pin->dim_of(0) == 0);
  const graph::Node& copy = runner.graph().nodes[static_cast<std::size_t>(last.producer)];
  const graph::Value& before = runner.graph().value(copy.inputs.front());
  CHECK(before.path == "m/a/output");
  REQUIRE(before.pin.has_value());
  CHECK(before.pin->dim_of(0) == 1);
}

TEST_CASE("rows of the summary") {
  Loaded loaded(sequential(
      "m", {input("x", "[null, 4]"), layer("Dense", "a", "\"units\": 3"),
            sequential("blk", {layer("Dense", "b", "\"units\": 2"), layer("Flatten", "f")})}));
  const auto rows = loaded.model->rows();
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].name == "a");
  CHECK(rows[0].class_name == "Dense");
  CHECK(rows[0].output_shape == "(None, 3)");
  CHECK(rows[0].parameters == 15);
  CHECK(rows[0].connected_to.empty());
  CHECK(rows[1].name == "blk");
  CHECK(rows[1].parameters == 8);
  CHECK(rows[1].depth == 0);
  CHECK(rows[2].name == "b");
  CHECK(rows[2].depth == 1);
  CHECK(rows[2].variables ==
        std::vector<graph::VariableId>{loaded.id("m/blk/b/kernel"), loaded.id("m/blk/b/bias")});
  CHECK(rows[3].parameters == 0);
}

TEST_CASE("a Sequential without an input needs its input's shape") {
  const Strings problems = problems_of(sequential("m", {layer("Dense", "a", "\"units\": 3")}));
  REQUIRE(problems.size() == 1);
  CHECK_THAT(problems[0], Contains("no input of known shape"));
  Loaded loaded(
      sequential("m", {layer("Dense", "a", "\"units\": 3")}, "\"build_input_shape\": [null, 4]"));
  CHECK(loaded.model->inputs().front().sample_shape == Shape{4});
}

TEST_CASE("layer classes are sorted and complete") {
  const Strings classes = models::layer_classes();
  CHECK(std::is_sorted(classes.begin(), classes.end()));
  for (const std::string name : {"InputLayer", "Dense", "Sequential", "SpatialDropout3D"}) {
    CHECK(std::find(classes.begin(), classes.end(), name) != classes.end());
  }
}

TEST_CASE("every acceptance case of known layers is read") {
  int read = 0;
  for (const std::string group : {"callbacks", "core", "data", "distribution", "layers",
                                  "layoutmap", "losses", "metrics", "mixed", "models", "optimizers",
                                  "parallel", "regularizers_constraints", "schedules", "weights"}) {
    for (const Case& one : cases_of(group)) {
      INFO(one.folder.string());
      Loaded loaded(one.model);
      ++read;
    }
  }
  CHECK(read >= 250);
}
