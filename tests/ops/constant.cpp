// Cases of constant.
#include "base/error.h"
#include "tests/ops/values.h"

namespace tessera::testing {
namespace {

TEST_CASE("given values, cut in every way") {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16,
                            DType::int32, DType::int64, DType::uint8}) {
    check_op({{}}, [dtype](Builder& builder, const Tensors&) {
      return Tensors{ops::constant(builder, {5}, {1, 2, 3, 4, 5}, dtype),
                     ops::constant(builder, {2, 3}, {6, 5, 4, 3, 2, 1}, dtype),
                     ops::constant(builder, {}, {7}, dtype),
                     ops::constant(builder, {0, 2}, {}, dtype)};
    });
  }
}

TEST_CASE("constants hold what they were given") {
  graph::VariableTable table;
  graph::Graph graph(table);
  Builder builder(graph);
  builder.output("half", ops::constant(builder, {2}, {1.5, -0.25}, DType::bfloat16));
  builder.output("flag", ops::constant(builder, {2}, {1, 0}, DType::boolean));
  const SymbolicTensor one = ops::constant(builder, {1}, {0.1});
  CHECK(ops::constant(builder, {1}, {0.1}).id == one.id);
  CHECK(ops::constant(builder, {1}, {0.2}).id != one.id);
  CHECK_THROWS_AS(ops::constant(builder, {2}, {1.0}), Error);
  Interpreter interpreter(graph);
  interpreter.run();
  CHECK(interpreter.output("half") == std::vector<double>{1.5, -0.25});
  CHECK(interpreter.output("flag") == std::vector<double>{1, 0});
}

}  // namespace
}  // namespace tessera::testing
