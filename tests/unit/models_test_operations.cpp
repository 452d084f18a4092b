// Plain operations of keras.ops in Functional graphs.
#include <catch2/catch.hpp>
#include <cmath>

#include "models/layer_table.h"
#include "tests/unit/models_fixture.h"

using namespace tessera;
using namespace tessera::models::test;
using Catch::Matchers::Contains;

namespace {

const std::string kTensor =
    R"({"class_name": "__keras_tensor__", "config": {"keras_history": ["x", 0, 0]}})";

// A model that calls one operation with `arguments` (JSON items) on input "x".
std::string model_of(const std::string& class_name, const std::string& config,
                     const std::string& arguments, const std::string& shape,
                     const std::string& dtype = "float32") {
  return R"({"class_name": "Functional", "config": {"name": "net", "layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "dtype": ")" +
         dtype + R"(", "batch_shape": )" + shape + R"(}},
    {"module": "keras.src.ops.numpy", "class_name": ")" +
         class_name + R"(", "config": {"name": "op")" + (config.empty() ? "" : ", " + config) +
         R"(}, "inbound_nodes": [{"args": [)" + arguments + R"(], "kwargs": {}}]}],
    "input_layers": ["x", 0, 0], "output_layers": ["op", 0, 0]}})";
}

struct Result {
  Values values;
  Shape shape;  // of one sample
  DType dtype;
};

Result apply(const std::string& class_name, const std::string& config, const std::string& arguments,
             const std::string& shape, const Values& x, const std::string& dtype = "float32") {
  INFO(class_name);
  Loaded loaded(model_of(class_name, config, arguments, shape, dtype));
  const std::int64_t size = loaded.model->inputs().front().sample_shape.elements();
  Runner runner(loaded, static_cast<std::int64_t>(x.size()) / size);
  const Values y = runner({x});
  CHECK(loaded.model->output_paths(1).empty());
  return {y, loaded.model->outputs().front().sample_shape, loaded.model->outputs().front().dtype};
}

std::string slice(const std::string& start, const std::string& stop) {
  return R"({"class_name": "__slice__", "config": {"start": )" + start + R"(, "stop": )" + stop +
         R"(, "step": null}})";
}

}  // namespace

TEST_CASE("operations on constants keep their order and promote") {
  CHECK(apply("Subtract", "", "10, " + kTensor, "[null, 2]", {1, 2}).values == Values{9, 8});
  CHECK(apply("Subtract", "", kTensor + ", 10", "[null, 2]", {1, 2}).values == Values{-9, -8});
  CHECK(apply("Power", "", kTensor + ", 2", "[null, 2]", {3, -2}).values == Values{9, 4});
  CHECK(apply("Add", "", kTensor + ", " + kTensor, "[null, 2]", {3, 4}).values == Values{6, 8});
  const Result whole = apply("Multiply", "", kTensor + ", 3", "[null, 2]", {1, 2}, "int32");
  CHECK(whole.dtype == DType::int32);
  CHECK(whole.values == Values{3, 6});
  const Result fraction = apply("Multiply", "", kTensor + ", 1.5", "[null, 2]", {1, 2}, "int32");
  CHECK(fraction.dtype == DType::float32);
  CHECK(fraction.values == Values{1.5, 3});
  const Result ratio = apply("TrueDivide", "", kTensor + ", 2", "[null, 2]", {1, 2}, "int32");
  CHECK(ratio.dtype == DType::float32);
  CHECK(ratio.values == Values{0.5, 1});
  CHECK(apply("NotEqual", "", kTensor + ", 0", "[null, 2]", {0, 2}, "int32").dtype ==
        DType::boolean);
}

TEST_CASE("reductions of operations") {
  const Values x{1, 2, 3, 0};
  CHECK(apply("Sum", "\"axis\": -1", kTensor, "[null, 2, 2]", x).values == Values{3, 3});
  CHECK(apply("Mean", R"("axis": [1, 2], "keepdims": true)", kTensor, "[null, 2, 2]", x).shape ==
        Shape{1, 1});
  CHECK(apply("Any", "\"axis\": -1", kTensor, "[null, 2, 2]", {0, 0, 0, 2}).values == Values{0, 1});
  CHECK(apply("All", "\"axis\": -1", kTensor, "[null, 2, 2]", x).values == Values{1, 0});
  CHECK(apply("Var", "\"axis\": -1", kTensor, "[null, 2]", {1, 3}).values == Values{1});
  CHECK(apply("Max", "\"axis\": 1", kTensor, "[null, 2]", {1, 3}).values == Values{3});
}

TEST_CASE("indices of GetItem count as Python's") {
  const Values x{1, 2, 3, 4, 5, 6};
  const std::string all = slice("null", "null");
  CHECK(
      apply("GetItem", "", kTensor + ", [" + all + ", " + slice("-1", "null") + "]", "[null, 3]", x)
          .values == Values{3, 6});
  const Result column = apply("GetItem", "", kTensor + ", [" + all + ", -2]", "[null, 3]", x);
  CHECK(column.values == Values{2, 5});
  CHECK(column.shape == Shape{});
  const Result wide = apply(
      "GetItem", "", kTensor + ", [" + all + ", null, " + slice("0", "2") + "]", "[null, 3]", x);
  CHECK(wide.shape == Shape{1, 2});
  CHECK(wide.values == Values{1, 2, 4, 5});
  CHECK(apply("GetItem", "", kTensor + R"(, [{"class_name": "__ellipsis__", "config": {}}, 0])",
              "[null, 2, 3]", x)
            .values == Values{1, 4});
  CHECK(apply("GetItem", "", kTensor + ", [" + all + ", " + slice("2", "9") + "]", "[null, 3]", x)
            .values == Values{3, 6});
  for (const std::string& bad :
       std::vector<std::string>{"[" + all + ", 3]", "[" + all + ", 0, 0]", "\"a\""}) {
    CHECK_FALSE(problems_of(model_of("GetItem", "", kTensor + ", " + bad, "[null, 3]")).empty());
  }
}

TEST_CASE("operations that move elements") {
  const Values x{1, 2, 3, 4, 5, 6};
  CHECK(apply("Reshape", "\"newshape\": [-1, 3, 2]", kTensor, "[null, 6]", x).shape == Shape{3, 2});
  CHECK(apply("Transpose", "\"axes\": [0, 2, 1]", kTensor, "[null, 2, 3]", x).values ==
        Values{1, 4, 2, 5, 3, 6});
  CHECK(apply("ExpandDims", "\"axis\": 1", kTensor, "[null, 6]", x).shape == Shape{1, 6});
  CHECK(apply("Squeeze", "\"axis\": null", kTensor, "[null, 1, 6]", x).shape == Shape{6});
  CHECK(apply("Concatenate", "\"axis\": -1", "[" + kTensor + ", " + kTensor + "]", "[null, 2]",
              {1, 2})
            .values == Values{1, 2, 1, 2});
  CHECK(apply("Stack", "\"axis\": 1", "[" + kTensor + ", " + kTensor + "]", "[null, 2]", {1, 2})
            .shape == Shape{2, 2});
  CHECK(apply("Matmul", "", kTensor + ", " + kTensor, "[null, 2, 2]", {1, 2, 3, 4}).values ==
        Values{7, 10, 15, 22});
  CHECK(apply("OnesLike", "\"dtype\": null", kTensor, "[null, 2]", {5, 6}).values == Values{1, 1});
  CHECK(apply("Cast", "\"dtype\": \"int32\"", kTensor, "[null, 2]", {5.5, -6.5}).values ==
        Values{5, -6});
}

TEST_CASE("unknown operations name those there are") {
  const auto problems = problems_of(model_of("Multipy", "", kTensor + ", 2", "[null, 3]"));
  REQUIRE(problems.size() == 1);
  CHECK_THAT(problems[0], Contains("operation \"op\" of class \"Multipy\"") &&
                              Contains("did you mean \"Multiply\"?") && Contains("Transpose"));
}

TEST_CASE("an operation without its arguments is a problem") {
  CHECK_THAT(problems_of(model_of("Add", "", kTensor, "[null, 3]")).at(0), Contains("arguments"));
  CHECK_THAT(problems_of(model_of("Add", "", kTensor + ", \"a\"", "[null, 3]")).at(0),
             Contains("argument 1 must be a tensor or a number"));
}
