// Cases of full, iota, random_uniform and random_normal.
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "tests/ops/values.h"

namespace tessera::testing {
namespace {

using ops::operator+;
using ops::operator*;

TEST_CASE("constants and indices, cut in every way") {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::int32, DType::int64}) {
    check_op({{}}, [dtype](Builder& builder, const Tensors&) {
      return Tensors{ops::full(builder, {5, 3}, 2.0, dtype), ops::full(builder, {}, -1.0, dtype),
                     ops::iota(builder, {5, 3}, 0, dtype),
                     ops::iota(builder, {2, 4, 3}, -2, dtype)};
    });
  }
}

TEST_CASE("draws do not depend on the cut") {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
    check_op({{}}, [dtype](Builder& builder, const Tensors&) {
      return Tensors{ops::random_uniform(builder, {5, 3, 4}, 17, dtype),
                     ops::random_normal(builder, {6, 2}, 18, dtype)};
    });
  }
}

TEST_CASE("draws change with the step and repeat with it") {
  graph::VariableTable table;
  graph::Graph graph(table);
  Builder builder(graph);
  const SymbolicTensor x = ops::random_uniform(builder, {1000}, 5);
  builder.output("x", x);
  Interpreter interpreter(graph);
  interpreter.run(0);
  const std::vector<double> first = interpreter.output("x");
  interpreter.run(1);
  CHECK(interpreter.output("x") != first);
  interpreter.run(0);
  CHECK(interpreter.output("x") == first);
  CHECK(first[999] == static_cast<double>(random_uniform(5, 0, 999)));
}

TEST_CASE("sources that make no sense are refused") {
  graph::VariableTable table;
  graph::Graph graph(table);
  Builder builder(graph);
  CHECK_THROWS_WITH(ops::iota(builder, {3}, 1), Catch::Contains("dimension 1"));
  CHECK_THROWS_WITH(ops::random_normal(builder, {3}, 1, DType::int32), Catch::Contains("int32"));
}

TEST_CASE("threads do not change draws") {
  check_threads({real({300, 700})}, [](Builder& builder, const Tensors& x) {
    return Tensors{x[0] * ops::random_uniform(builder, {300, 700}, 3) +
                   ops::random_normal(builder, {300, 700}, 4)};
  });
}

}  // namespace
}  // namespace tessera::testing
