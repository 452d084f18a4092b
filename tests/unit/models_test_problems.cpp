// Models that cannot be read: what is said about them, and that nothing else happens.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/philox.h"
#include "tests/unit/models_fixture.h"
#include "tests/unit/models_json.h"

using namespace tessera;
using namespace tessera::models::test;
using Catch::Matchers::Contains;
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
      {layer("", "a"), "[null, 4]", "expected a name, got \"\""},
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
       {"7", "[]", "{}", R"({"class_name": 3})", R"({"class_name": ""})",
        R"({"class_name": "", "config": {"layers": []}})", R"({"class_name": "Dense", "config": {}})",
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
