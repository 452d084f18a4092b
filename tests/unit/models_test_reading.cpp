// Reading models: forms of Keras 2 and 3, variable paths, trainability, rows, problems.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/philox.h"
#include "tests/unit/models_fixture.h"

using namespace tessera;
using namespace tessera::models::test;
using Catch::Matchers::Contains;
using Strings = std::vector<std::string>;

namespace {

// {"module": "keras.layers", "class_name": ..., "config": {"name": ..., ...}}
std::string layer(const std::string& class_name, const std::string& name,
                  const std::string& rest = "") {
  return R"({"module": "keras.layers", "class_name": ")" + class_name +
         R"(", "config": {"name": ")" + name + "\"" +
         (rest.empty() ? rest : fmt::format(", {}", rest)) + R"(}, "registered_name": null})";
}

std::string join(const Strings& parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += ", ";
    text += part;
  }
  return text;
}

std::string sequential(const std::string& name, const Strings& layers,
                       const std::string& rest = "") {
  return R"({"module": "keras", "class_name": "Sequential", "config": {"name": ")" + name +
         R"(", )" + (rest.empty() ? rest : fmt::format("{}, ", rest)) + R"("layers": [)" +
         join(layers) + "]}}";
}

std::string input(const std::string& name, const std::string& shape,
                  const std::string& dtype = "float32") {
  return layer("InputLayer", name, "\"batch_shape\": " + shape + ", \"dtype\": \"" + dtype + "\"");
}

std::string tensor(const std::string& name, int node = 0) {
  return R"({"class_name": "__keras_tensor__", "config": {"keras_history": [")" + name + "\", " +
         std::to_string(node) + ", 0]}}";
}

// `layer` with its calls: each a list of positional arguments.
std::string called(std::string layer, const Strings& calls) {
  Strings nodes;
  for (const std::string& call : calls) {
    nodes.push_back(R"({"args": [)" + call + R"(], "kwargs": {}})");
  }
  layer.pop_back();
  return layer + R"(, "inbound_nodes": [)" + join(nodes) + "]}";
}

std::string functional(const std::string& name, const Strings& layers, const std::string& inputs,
                       const std::string& outputs, const std::string& rest = "") {
  return R"({"module": "keras.src.models.functional", "class_name": "Functional",
             "config": {"name": ")" +
         name + R"(", )" + (rest.empty() ? rest : fmt::format("{}, ", rest)) + R"("layers": [)" +
         join(layers) + R"(], "input_layers": )" + inputs + R"(, "output_layers": )" + outputs +
         "}}";
}

const std::string kX = "[\"x\", 0, 0]";

}  // namespace

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

namespace {

// Problems of a Sequential of one layer on an input.
Strings one_layer(const std::string& text, const std::string& shape = "[null, 4]") {
  return problems_of(sequential("m", {input("x", shape), text}));
}

}  // namespace

TEST_CASE("every unknown layer is one problem with the list of known ones") {
  const Strings problems = problems_of(
      sequential("m", {input("x", "[null, 4]"), layer("Dennse", "a", "\"units\": 3"),
                       layer("Dense", "b", "\"units\": 3"), layer("QDense", "c", "\"units\": 3")}));
  REQUIRE(problems.size() == 2);
  CHECK_THAT(problems[0], Contains("\"a\"") && Contains("\"Dennse\"") &&
                              Contains("LayerNormalization") &&
                              Contains("did you mean \"Dense\"") && Contains("model.json:1:"));
  CHECK_THAT(problems[1], Contains("\"QDense\""));
}

TEST_CASE("a class of another package is not Keras's") {
  std::string text = layer("Dense", "a", "\"units\": 3");
  text.replace(text.find("keras.layers"), 12, "my_package");
  const Strings problems = one_layer(text);
  REQUIRE(problems.size() == 1);
  CHECK_THAT(problems[0], Contains("from module \"my_package\""));
}

TEST_CASE("problems of models name the layer and what is wrong") {
  struct Bad {
    std::string layer, shape, message;
  };
  const std::vector<Bad> table{
      {layer("Dense", "a"), "[null, 4]", "missing key \"units\""},
      {layer("Dense", "a", "\"units\": 0"), "[null, 4]", "from 1 to"},
      {layer("Dense", "a", R"("units": 3, "activation": "rellu")"), "[null, 4]",
       "unknown activation \"rellu\"; did you mean \"relu\"?"},
      {layer("Dense", "a", R"("units": 3, "dtype": "floot32")"), "[null, 4]",
       "unknown dtype policy \"floot32\""},
      {layer("Dense", "a", R"("units": 3, "kernel_initializer": "glorot")"), "[null, 4]", "glorot"},
      {layer("Dense", "a", R"("units": 3, "kernel_regularizer": "l7")"), "[null, 4]", "l7"},
      {layer("Dense", "a", R"("units": 3, "lora_rank": 4)"), "[null, 4]", "low-rank"},
      {layer("Dense", "a", "\"units\": 3"), "[null, null]", "has no size"},
      {layer("Dense", "a", "\"units\": 3"), "[null]", "at least 2 dimensions"},
      {layer("Reshape", "a", "\"target_shape\": [3, -1]"), "[null, 4]", "layer \"a\" (Reshape)"},
      {layer("Permute", "a", "\"dims\": [1, 1]"), "[null, 4, 2]", "each of 1 to 2 once"},
      {layer("Permute", "a", "\"dims\": [2, 1]"), "[null, 4]", "permutes 2 dimensions"},
      {layer("RepeatVector", "a", "\"n\": 2"), "[null, 4, 2]", "[None, 4, 2]"},
      {layer("Dropout", "a", "\"rate\": 1.5"), "[null, 4]", "from 0 to 1"},
      {layer("Dropout", "a", R"("rate": 0.5, "noise_shape": [null, 3])"), "[null, 4]",
       "does not fit"},
      {layer("SpatialDropout1D", "a", "\"rate\": 0.5"), "[null, 4]", ""},
      {layer("BatchNormalization", "a", "\"axis\": 2"), "[null, 4]", "axis 2 is out of range"},
      {layer("BatchNormalization", "a", "\"renorm\": true"), "[null, 4]", "renorm"},
      {layer("LayerNormalization", "a", "\"axis\": [1, -1]"), "[null, 4]", "twice"},
      {layer("GroupNormalization", "a", "\"groups\": 3"), "[null, 4]", "cannot form 3 groups"},
      {layer("GroupNormalization", "a", "\"groups\": 0"), "[null, 4]", "groups"},
      {layer("Normalization", "a", "\"mean\": 1.0"), "[null, 4]", "given together"},
      {layer("Normalization", "a", R"("mean": [1, 2], "variance": [1, 2])"), "[null, 4]",
       "expected 4 or 1"},
      {layer("EinsumDense", "a", R"("equation": "abc->ab", "output_shape": 3)"), "[null, 4]",
       "einsum of two operands"},
      {layer("EinsumDense", "a", R"("equation": "abc,cd->abd", "output_shape": [4, 3])"),
       "[null, 4]", "does not fit \"abc\""},
      {layer("EinsumDense", "a", R"("equation": "ab,bc->ac", "output_shape": [null])"), "[null, 4]",
       "'c' is given neither"},
      {layer("EinsumDense", "a", R"("equation": "ab,bc->ac", "output_shape": 3, "bias_axes": "z")"),
       "[null, 4]", "'z' is no dimension"},
      {layer("PReLU", "a", "\"shared_axes\": [0]"), "[null, 4]", "shared_axes"},
      {layer("Add", "a"), "[null, 4]", "at least 2 inputs"},
      {layer("Dot", "a", "\"axes\": 1"), "[null, 4]", "expected 2 inputs"},
      {layer("Activation", "a", "\"activation\": \"glu\""), "[null, 3]", "must be even"},
  };
  for (const Bad& bad : table) {
    INFO(bad.layer << " on " << bad.shape);
    const Strings problems = one_layer(bad.layer, bad.shape);
    REQUIRE_FALSE(problems.empty());
    CHECK_THAT(problems.front(), Contains(bad.message));
    CHECK_THAT(problems.front(), Contains("model.json:1:"));
  }
}

TEST_CASE("shape problems of independent layers are shown together, those that follow are not") {
  const Strings problems = problems_of(
      functional("net",
                 {input("x", "[null, 4]"),
                  called(layer("Reshape", "a", "\"target_shape\": [3]"), {tensor("x")}),
                  called(layer("Reshape", "b", "\"target_shape\": [5]"), {tensor("x")}),
                  called(layer("Add", "sum"), {fmt::format("[{}, {}]", tensor("a"), tensor("b"))})},
                 kX, "[\"sum\", 0, 0]"));
  REQUIRE(problems.size() == 2);
  CHECK_THAT(problems[0], Contains("layer \"a\" (Reshape)") && Contains("None"));
  CHECK_THAT(problems[1], Contains("layer \"b\" (Reshape)"));
}

TEST_CASE("two layers whose variables have one path are a problem that names both") {
  const auto inner = [](const std::string& name) {
    return functional(
        name, {input("i", "[null, 4]"), called(layer("Dense", "d", "\"units\": 4"), {tensor("i")})},
        "[\"i\", 0, 0]", "[\"d\", 0, 0]");
  };
  const Strings problems =
      problems_of(functional("net",
                             {input("x", "[null, 4]"), called(inner("one"), {tensor("x")}),
                              called(inner("two"), {tensor("one")})},
                             kX, "[\"two\", 0, 0]"));
  REQUIRE(problems.size() == 2);  // kernel and bias
  CHECK_THAT(problems[0], Contains("\"one/d\"") && Contains("\"two/d\"") && Contains("d/kernel"));
}

TEST_CASE("graphs that cannot be are problems") {
  const std::string x = input("x", "[null, 4]");
  const auto dense = [](const std::string& name, const std::string& from) {
    return called(layer("Dense", name, "\"units\": 4"), {tensor(from)});
  };
  struct Bad {
    Strings layers;
    std::string inputs, outputs, message;
  };
  const std::vector<Bad> table{
      {{x, dense("a", "b"), dense("b", "a")}, kX, "[\"a\", 0, 0]", "wait for each other: a, b"},
      {{x, dense("a", "z")}, kX, "[\"a\", 0, 0]", "there is no layer \"z\""},
      {{x, called(layer("Dense", "a", "\"units\": 4"), {tensor("x", 2)})},
       kX,
       "[\"a\", 0, 0]",
       "has no call 2"},
      {{x, dense("a", "x")}, kX, "[\"b\", 0, 0]", "no call 0 of a layer \"b\""},
      {{x, dense("a", "x")}, "[\"a\", 0, 0]", "[\"a\", 0, 0]", "is no InputLayer"},
      {{x, dense("a", "x"), dense("a", "x")}, kX, "[\"a\", 0, 0]", "a second layer called \"a\""},
      {{x, dense("a", "x")}, "7", "[\"a\", 0, 0]", "expected [layer name"},
      {{x, dense("a", "x")}, kX, "[\"a\", 0, 1]", "output 1 of a call that has 1"},
  };
  for (const Bad& bad : table) {
    INFO(bad.message);
    const Strings problems = problems_of(functional("net", bad.layers, bad.inputs, bad.outputs));
    REQUIRE_FALSE(problems.empty());
    CHECK_THAT(join(problems), Contains(bad.message));
  }
}

TEST_CASE("things that are no model are problems") {
  for (const std::string text :
       {"7", "[]", "{}", R"({"class_name": 3})", R"({"class_name": "Dense", "config": {}})",
        R"({"class_name": "Sequential"})", R"({"class_name": "Sequential", "config": {}})",
        R"({"class_name": "Sequential", "config": {"name": "m", "layers": []}})",
        R"({"class_name": "Sequential", "config": {"name": "m", "layers": [7]}})",
        R"({"class_name": "Functional", "config": {"name": "m", "layers": 7}})",
        R"({"class_name": "Functional", "config": {"name": "m", "layers": [{"class_name":
          "InputLayer", "config": {"name": "x", "batch_shape": 3}, "name": "x"}],
          "input_layers": 1, "output_layers": {"a": 1}}})"}) {
    INFO(text);
    CHECK_FALSE(problems_of(text).empty());
  }
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

namespace {

// Numbers, strings and names of a JSON text, each replaced now and then.
std::string damage(const std::string& text, std::uint64_t seed) {
  static const std::vector<std::string> kValues{
      "0",    "-1", "-9", "1e9", "4611686018427387904", "null", "true",
      "\"\"", "[]", "{}", "0.5", "[1, 2, 3]",           "3",    "\"x\""};
  std::string result;
  std::uint64_t draws = 0;
  for (std::size_t i = 0; i < text.size();) {
    const bool starts = text[i] == '"' || text[i] == '[' || (text[i] >= '0' && text[i] <= '9');
    std::size_t end = i + 1;
    if (text[i] == '"') end = text.find('"', i + 1) + 1;
    if (text[i] >= '0' && text[i] <= '9') end = text.find_first_not_of("0123456789.", i);
    const bool key = text[i] == '"' && text[end] == ':';
    if (starts && !key && text[i] != '[' && random_uniform(seed, 0, draws++) < 2.0F / 40.0F) {
      const auto pick = static_cast<std::size_t>(random_uniform(seed, 1, draws) *
                                                 static_cast<float>(kValues.size()));
      result += kValues[pick];
    } else {
      result += text.substr(i, end - i);
    }
    i = end;
  }
  return result;
}

}  // namespace

TEST_CASE("damaged models are problems, never anything else") {
  int broken = 0;
  for (const std::string group : {"layers", "core", "models"}) {
    for (const Case& one : cases_of(group)) {
      if (one.text("command", "train") != "train") continue;
      const std::string text = json::dump(one.model, -1);
      if (text.size() > 40000) continue;
      for (std::uint64_t seed = 0; seed < 40; ++seed) {
        json::Problems problems;
        const json::Value value = json::parse(damage(text, seed), "model.json", problems);
        if (!problems.empty()) continue;
        INFO(one.folder.string() << " seed " << seed);
        const auto model = models::Model::read(value, "", "float32", problems);
        REQUIRE((model == nullptr) == !problems.empty());
        broken += model == nullptr ? 1 : 0;
      }
    }
  }
  CHECK(broken > 500);
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

TEST_CASE("unknown layers of a file are placed in it") {
  const auto read = [](const std::string& name) {
    const std::string file = std::string(TESSERA_ACCEPTANCE) + "/config/" + name + "/model.json";
    json::Problems problems;
    const json::Value value =
        json::parse(json::read_text_file(file, Error::Kind::config), "model.json", problems);
    CHECK(models::Model::read(value, "", "float32", problems) == nullptr);
    std::string text;
    for (const json::Problem& problem : problems.list()) text += json::to_string(problem) + "\n";
    return text;
  };
  CHECK_THAT(read("unknown_layer"), Contains("model.json:25:23: error") && Contains("Dennse"));
  CHECK_THAT(read("unsupported_layers"), Contains("model.json:25:23: error") &&
                                             Contains("model.json:85:23: error") &&
                                             Contains("QActivation") && Contains("Embedding"));
}
