// Cases of argmax and argmin.
#include "base/error.h"
#include "tests/ops/values.h"

namespace tessera::testing {
namespace {

TEST_CASE("argmax and argmin along every dimension") {
  for (const Shape& shape : {Shape{6, 4}, Shape{5, 3, 2}, Shape{1, 7}, Shape{8}}) {
    for (int dim = -1; dim < static_cast<int>(shape.rank()); ++dim) {
      const Build build = [dim](Builder&, const Tensors& x) {
        return Tensors{ops::argmax(x[0], dim), ops::argmin(x[0], dim)};
      };
      check_op({{real(shape)}}, build);
      check_op({{whole(shape, -2, 2)}}, build);
    }
  }
}

TEST_CASE("the first of equal elements wins") {
  const auto found = results_of({{{2, 3}, {1, 5, 5, 0, 0, -1}}}, [](Builder&, const Tensors& x) {
    return Tensors{ops::argmax(x[0], 1), ops::argmin(x[0], 0)};
  });
  CHECK(found[0] == std::vector<double>{1, 0});
  CHECK(found[1] == std::vector<double>{1, 1, 1});
}

TEST_CASE("argmax of nothing is refused") {
  graph::VariableTable table;
  graph::Graph graph(table);
  Builder builder(graph);
  const SymbolicTensor x = builder.input("x", {2, 0}, DType::float32);
  CHECK_THROWS_WITH(ops::argmax(x, 1), Catch::Contains("[2, 0]"));
  CHECK_THROWS_WITH(ops::argmax(x, 2), Catch::Contains("dimension 2"));
}

}  // namespace
}  // namespace tessera::testing
