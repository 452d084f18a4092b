// Cases of sum, mean, max and min.
#include "base/error.h"
#include "runtime/ops/gradients.h"
#include "tests/ops/values.h"

namespace tessera::testing {
namespace {

using ops::operator+;
using ops::operator*;

Tensors all_of(SymbolicTensor x, const std::vector<int>& dims, bool keepdims) {
  return {ops::sum(x, dims, keepdims), ops::mean(x, dims, keepdims), ops::max(x, dims, keepdims),
          ops::min(x, dims, keepdims)};
}

TEST_CASE("reductions over every set of dimensions") {
  Options options;
  options.tolerance = 1e-6;
  options.reason = "a mean multiplies by 1 / count, which is no binary fraction";
  for (const Shape& shape : {Shape{6, 4}, Shape{5, 3, 2}, Shape{1, 7}, Shape{8}}) {
    for (unsigned set = 0; set < (1U << shape.rank()); ++set) {
      std::vector<int> dims;
      for (std::size_t dim = 0; dim < shape.rank(); ++dim) {
        if (((set >> dim) & 1U) != 0) dims.push_back(static_cast<int>(dim));
      }
      for (const bool keepdims : {false, true}) {
        check_op(
            {{real(shape)}},
            [&](Builder&, const Tensors& x) { return all_of(x[0], dims, keepdims); }, options);
      }
    }
  }
}

TEST_CASE("sums are exact when cut") {
  for (const DType dtype :
       {DType::float32, DType::float64, DType::bfloat16, DType::int32, DType::int64}) {
    Operand operand{{{5, 6}, dtype}, {}};
    check_op({{operand}}, [](Builder&, const Tensors& x) {
      return Tensors{ops::sum(x[0], {0}), ops::sum(x[0], {-1}), ops::sum(x[0])};
    });
  }
  // Truths are counted.
  check_op({{whole({5, 6}, 0, 1, DType::boolean)}}, [](Builder&, const Tensors& x) {
    const SymbolicTensor count = ops::sum(x[0]);
    CHECK(count.dtype() == DType::int32);
    return Tensors{count};
  });
}

TEST_CASE("values of reductions") {
  const std::vector<double> x = {1, 5, 5, -2, 0, 5};
  const auto run = [&x](const std::function<SymbolicTensor(SymbolicTensor)>& formula) {
    return result_of({{{2, 3}, x}},
                     [&](Builder&, const Tensors& in) { return Tensors{formula(in[0])}; });
  };
  using V = std::vector<double>;
  CHECK(run([](SymbolicTensor t) { return ops::sum(t, {1}); }) == V{11, 3});
  CHECK(run([](SymbolicTensor t) { return ops::max(t, {0}); }) == V{1, 5, 5});
  CHECK(run([](SymbolicTensor t) { return ops::min(t); }) == V{-2});
  CHECK(run([](SymbolicTensor t) { return ops::mean(t, {1}); }) == V{11.0F / 3.0F, 1});
  // Equal largest elements share the gradient.
  CHECK(run([](SymbolicTensor t) {
          return ops::gradients(*t.builder, ops::sum(ops::max(t, {1})), {{t}})[0];
        }) == V{0, 0.5, 0.5, 0, 0, 1});
}

TEST_CASE("means of half-precision tensors add in float32") {
  // 4096 times 1000: the sum is beyond float16.
  const std::vector<double> mean =
      result_of({{{4096}, std::vector<double>(4096, 1000.0), DType::float16}},
                [](Builder&, const Tensors& x) { return Tensors{ops::mean(x[0])}; });
  CHECK(mean == std::vector<double>{1000});
}

TEST_CASE("gradients of broadcast sums") {
  check_op({{real({4, 3}), real({3})}}, [](Builder&, const Tensors& x) {
    return Tensors{ops::sum(x[0] * x[1], {1}, true) + x[0]};
  });
}

TEST_CASE("dimensions that do not exist are refused") {
  graph::VariableTable table;
  graph::Graph graph(table);
  Builder builder(graph);
  const SymbolicTensor x = builder.input("x", {2, 0}, DType::float32);
  CHECK_THROWS_WITH(ops::sum(x, {2}), Catch::Contains("shape [2, 0] has no dimension 2"));
  CHECK_THROWS_WITH(ops::sum(x, {0, -2}), Catch::Contains("named twice"));
  CHECK_THROWS_WITH(ops::max(x, {1}), Catch::Contains("empty"));
}

TEST_CASE("threads do not change bits of reductions") {
  const Build build = [](Builder&, const Tensors& x) {
    return Tensors{ops::sum(x[0], {0}), ops::sum(x[0], {1}), ops::sum(x[0]), ops::max(x[0], {0})};
  };
  check_threads({real({700, 600})}, build);
  check_threads({real({60000, 7})}, build);
}

}  // namespace
}  // namespace tessera::testing
