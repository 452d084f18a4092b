// Cases of reshape, transpose, broadcast_to, expand_dims, squeeze, concat, slice and pad.
#include <numeric>

#include "base/error.h"
#include "tests/ops/values.h"

namespace tessera::testing {
namespace {

using Catch::Contains;

TEST_CASE("reshape splits, merges and regroups dimensions") {
  check_op({{real({6, 4})}, {real({5, 4})}, {real({12, 6})}, {real({1, 4})}, {real({0, 4})}},
           [](Builder&, const Tensors& x) {
             return Tensors{ops::reshape(x[0], {-1, 2, 2})};
           });
  check_op({{real({6, 2, 4})}, {real({5, 12, 2})}, {real({3, 0, 2})}},
           [](Builder&, const Tensors& x) {
             const Shape& s = x[0].shape();
             return Tensors{ops::reshape(x[0], {s[0], s[1] * s[2]})};
           });
  check_op({{real({4, 6})}}, [](Builder&, const Tensors& x) {
    return Tensors{ops::reshape(x[0], {6, 4}), ops::reshape(x[0], {24}),
                   ops::reshape(x[0], {1, 12, 2, 1}), ops::reshape(x[0], {4, 1, 6})};
  });
  check_op({{real({1})}, {real({1, 1})}},
           [](Builder&, const Tensors& x) { return Tensors{ops::reshape(x[0], {})}; });
}

TEST_CASE("reshape keeps the outermost dimension of a group as its factor") {
  graph::VariableTable table;
  graph::Graph graph(table);
  Builder builder(graph);
  const auto rule = [&](Shape from, Shape to) {
    const SymbolicTensor y = ops::reshape(builder.input("x", from, DType::float32), to);
    const graph::Node& node = graph.nodes[static_cast<std::size_t>(graph.value(y.id).producer)];
    const std::vector<graph::ValueType> in{graph.type(node.inputs[0])};
    const std::vector<graph::ValueType> out{graph.type(y.id)};
    return graph::to_string(node.op->rule(in, out));
  };
  CHECK(rule({8, 3, 4}, {8, 12}) == "abA->ab");
  CHECK(rule({8, 12}, {8, 3, 4}) == "ab->abA");
  CHECK(rule({1, 8, 4}, {8, 1, 4, 1}) == ".ab->a.b.");
  CHECK(rule({2, 3}, {3, 2}) == "aA->aB");
  CHECK(rule({0, 3}, {3, 0}) == "ZZ->ZZ");
}

TEST_CASE("reshape, expand_dims and squeeze say what does not fit") {
  const auto shaped = [](Shape to) {
    return [to](Builder&, const Tensors& x) { return Tensors{ops::reshape(x[0], to)}; };
  };
  const std::vector<Given> six{{{2, 3}, {1, 2, 3, 4, 5, 6}}};
  CHECK(result_of(six, shaped({3, -1})) == six[0].values);
  CHECK_THROWS_WITH(result_of(six, shaped({4, 2})),
                    Contains("[2, 3] has 6 elements") && Contains("[4, 2] has 8"));
  CHECK_THROWS_WITH(result_of(six, shaped({4, -1})), Contains("[2, 3] does not fit into [4, -1]"));
  CHECK_THROWS_WITH(result_of(six, shaped({-1, -1})), Contains("more than one size open"));
  const auto squeezed = [](Builder&, const Tensors& x) { return Tensors{ops::squeeze(x[0], 1)}; };
  CHECK_THROWS_WITH(result_of(six, squeezed), Contains("dimension 1 of shape [2, 3] is not 1"));
  const auto expanded = [](Builder&, const Tensors& x) {
    return Tensors{ops::expand_dims(x[0], 4)};
  };
  CHECK_THROWS_WITH(result_of(six, expanded), Contains("at 4 of shape [2, 3]"));
}

TEST_CASE("expand_dims and squeeze") {
  check_op({{real({6, 4})}, {real({5, 2})}, {real({1, 1})}}, [](Builder&, const Tensors& x) {
    const SymbolicTensor wide = ops::expand_dims(x[0], 1);
    return Tensors{wide, ops::squeeze(wide, -2), ops::expand_dims(x[0], -1),
                   ops::expand_dims(x[0], 0)};
  });
}

TEST_CASE("transpose") {
  check_op({{real({6, 4, 3})}, {real({5, 2, 1})}, {real({2, 7, 5})}, {real({2, 0, 3})}},
           [](Builder&, const Tensors& x) {
             return Tensors{ops::transpose(x[0], {2, 0, 1}), ops::transpose(x[0], {1, 0, 2}),
                            ops::transpose(x[0], {0, -1, 1})};
           });
  for (const DType dtype : {DType::uint8, DType::bfloat16, DType::int64}) {
    check_op({{whole({20, 35}, 0, 100, dtype)}}, [](Builder&, const Tensors& x) {
      return Tensors{ops::transpose(x[0], {1, 0})};
    });
  }
  const auto swap = [](Builder&, const Tensors& x) {
    return Tensors{ops::transpose(x[0], {1, 0})};
  };
  CHECK(result_of({{{2, 3}, {1, 2, 3, 4, 5, 6}}}, swap) == std::vector<double>{1, 4, 2, 5, 3, 6});
  const auto wrong = [](Builder&, const Tensors& x) {
    return Tensors{ops::transpose(x[0], {1, 1})};
  };
  CHECK_THROWS_WITH(result_of({{{2, 3}, {}}}, wrong), Contains("(1, 1) does not permute"));
  check_threads({real({300, 500})}, swap);
}

TEST_CASE("transposes move every element where it belongs") {
  const std::vector<std::vector<int>> permutations{
      {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const Shape& shape :
       {Shape{3, 17, 33}, Shape{40, 2, 5}, Shape{16, 1, 48}, Shape{2, 130, 70}}) {
    std::vector<double> x(static_cast<std::size_t>(shape.elements()));
    std::iota(x.begin(), x.end(), 0.0);
    for (const std::vector<int>& permutation : permutations) {
      const auto build = [&](Builder&, const Tensors& in) {
        return Tensors{ops::transpose(in[0], permutation)};
      };
      std::vector<double> expected;
      const auto dim = [&](std::size_t i) { return static_cast<std::size_t>(permutation[i]); };
      const Shape strides = shape.strides();
      for (std::int64_t i = 0; i < shape[dim(0)]; ++i) {
        for (std::int64_t j = 0; j < shape[dim(1)]; ++j) {
          for (std::int64_t k = 0; k < shape[dim(2)]; ++k) {
            expected.push_back(static_cast<double>(i * strides[dim(0)] + j * strides[dim(1)] +
                                                   k * strides[dim(2)]));
          }
        }
      }
      INFO(to_string(shape) << " by " << permutation[0] << permutation[1] << permutation[2]);
      CHECK((result_of({{shape, x}}, build) == expected));
      CHECK((result_of({{shape, x, DType::float64}}, build) == expected));
    }
  }
}

TEST_CASE("broadcast_to") {
  check_op({{real({6, 1})}, {real({5, 1})}, {real({1, 4})}, {real({4})}, {real({1})}, {real({})}},
           [](Builder&, const Tensors& x) {
             const std::int64_t rows =
                 x[0].rank() == 2 ? std::max<std::int64_t>(x[0].shape()[0], 3) : 3;
             return Tensors{ops::broadcast_to(x[0], {2, rows, 4})};
           });
  const auto two = [](Builder&, const Tensors& x) {
    return Tensors{ops::broadcast_to(x[0], {2, 2, 2})};
  };
  CHECK(result_of({{{2, 1}, {1, 2}}}, two) == std::vector<double>{1, 1, 2, 2, 1, 1, 2, 2});
  CHECK_THROWS_WITH(result_of({{{3}, {1, 2, 3}}}, two), Contains("[3] does not broadcast to"));
}

TEST_CASE("concat") {
  check_op({{real({6, 4}), real({6, 3}), real({6, 1})},
            {real({5, 2}), real({5, 2}), real({5, 0})},
            {real({1, 1}), real({1, 1}), real({1, 5})}},
           [](Builder&, const Tensors& x) {
             return Tensors{ops::concat({x[0], x[1], x[2]}, -1)};
           });
  check_op({{real({2, 6}), real({3, 6})}, {real({1, 5}), real({0, 5})}},
           [](Builder&, const Tensors& x) {
             return Tensors{ops::concat({x[0], x[1]}, 0)};
           });
  const auto join = [](Builder&, const Tensors& x) {
    return Tensors{ops::concat({x[0], x[1]}, 1)};
  };
  CHECK(result_of({{{2, 1}, {1, 2}}, {{2, 2}, {3, 4, 5, 6}}}, join) ==
        std::vector<double>{1, 3, 4, 2, 5, 6});
  CHECK_THROWS_WITH(result_of({{{2, 1}, {}}, {{3, 1}, {}}}, join),
                    Contains("[3, 1] does not go with float32 [2, 1]"));
}

TEST_CASE("concat of more parts than one node takes") {
  const auto join = [](Builder&, const Tensors& x) {
    return Tensors{ops::concat(std::vector<SymbolicTensor>(70, x[0]), 0)};
  };
  const std::vector<double> joined = result_of({{{2}, {1, 2}}}, join);
  REQUIRE(joined.size() == 140);
  for (std::size_t i = 0; i < joined.size(); ++i) CHECK(joined[i] == (i % 2 == 0 ? 1.0 : 2.0));
}

TEST_CASE("slice and pad") {
  check_op({{real({6, 5})}, {real({5, 7})}, {real({1, 4})}}, [](Builder&, const Tensors& x) {
    return Tensors{ops::slice(x[0], 1, 1, 3),    ops::slice(x[0], -1, 2, 0),
                   ops::slice(x[0], 0, 0, 1),    ops::pad(x[0], 1, 2, 1),
                   ops::pad(x[0], 0, 0, 3, 1.0), ops::pad(x[0], -1, 1, 0, -2.0)};
  });
  const auto padded = [](Builder&, const Tensors& x) {
    return Tensors{ops::pad(ops::slice(x[0], 1, 1, 1), 1, 1, 2, 7.0)};
  };
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16,
                            DType::int32, DType::int64, DType::uint8}) {
    CHECK(result_of({{{2, 2}, {1, 2, 3, 4}, dtype}}, padded) ==
          std::vector<double>{7, 2, 7, 7, 7, 4, 7, 7});
  }
  const auto beyond = [](Builder&, const Tensors& x) { return Tensors{ops::slice(x[0], 1, 1, 2)}; };
  CHECK_THROWS_WITH(result_of({{{2, 2}, {}}}, beyond), Contains("elements 1..2 of dimension 1"));
}

}  // namespace
}  // namespace tessera::testing
