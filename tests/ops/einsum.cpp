// Cases of einsum and matmul.
#include "runtime/ops/einsum.h"

#include "base/error.h"
#include "tests/ops/values.h"

namespace tessera::testing {
namespace {

using ops::operator+;
using ops::operator-;

Build equation(const std::string& text) {
  return [text](Builder&, const Tensors& x) { return Tensors{ops::einsum(text, x[0], x[1])}; };
}

TEST_CASE("equations of every kind") {
  struct Entry {
    const char* text;
    Shape a;
    Shape b;
  };
  const Entry entries[] = {
      {"mk,kn->mn", {6, 4}, {4, 5}},       // plain
      {"mk,nk->mn", {5, 3}, {7, 3}},       // second operand transposed
      {"km,kn->mn", {4, 6}, {4, 5}},       // first transposed
      {"mk,kn->nm", {5, 3}, {3, 2}},       // result transposed: operands change places
      {"abk,kn->abn", {2, 3, 4}, {4, 5}},  // merged rows
      {"abk,knp->abnp", {2, 3, 4}, {4, 2, 3}},
      {"abkl,kln->abn", {2, 2, 3, 2}, {3, 2, 4}},
      {"abkl,lkn->abn", {2, 2, 3, 2}, {2, 3, 4}},  // summed dimensions in two orders: a copy
      {"bmk,bkn->bmn", {3, 4, 5}, {3, 5, 2}},      // batch
      {"bqhd,bkhd->bhqk", {2, 3, 2, 4}, {2, 5, 2, 4}},
      {"bhqk,bkhd->bqhd", {2, 2, 3, 5}, {2, 5, 2, 4}},
      {"mbk,bkn->nbm", {4, 3, 5}, {3, 5, 2}},
      {"mbk,bkn->mnb", {4, 3, 5}, {3, 5, 2}},  // batch innermost: a copy of the result
      {"bk,bk->b", {4, 6}, {4, 6}},            // inner products
      {"k,k->", {6}, {6}},
      {"mk,k->m", {5, 4}, {4}},
      {"k,kn->n", {4}, {4, 5}},
      {"m,n->mn", {5}, {3}},  // nothing summed
      {"ab,b->ab", {4, 3}, {3}},
      {"ab,ab->ba", {4, 3}, {4, 3}},
      {"abc,ca->b", {2, 3, 4}, {4, 2}},
      {"mkz,kn->mn", {3, 4, 2}, {4, 5}},  // a letter of one operand
      {"mk,knz->mn", {3, 4}, {4, 5, 2}},
      {"MK,Kn->Mn", {3, 4}, {4, 5}},  // capitals
      {"mk,kn->mn", {1, 1}, {1, 1}},
      {"akb,kn->abn", {2, 3, 2}, {3, 4}},  // rows that no stride walks: a copy
  };
  for (const Entry& entry : entries) {
    INFO(entry.text);
    check_op({{real(entry.a), real(entry.b)}}, equation(entry.text));
  }
}

TEST_CASE("dtypes of products") {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16}) {
    check_op({{real({5, 4}, {}, dtype), real({4, 3}, {}, dtype)}}, equation("mk,kn->mn"));
    // Large enough for the library. Parts of a pending sum need more digits than a half has.
    const DType result = size_of(dtype) < 4 ? DType::float32 : dtype;
    Options forward;
    forward.gradient = forward.backward = false;  // small shapes cover them
    check_op(
        {{real({40, 30}, {}, dtype), real({30, 50}, {}, dtype)}},
        [result](Builder&, const Tensors& x) {
          return Tensors{ops::einsum("mk,kn->mn", x[0], x[1], result)};
        },
        forward);
  }
  Options options;
  options.gradient = false;  // differences in float64 see the rounding of the result
  check_op(
      {{real({5, 4}, {}, DType::bfloat16), real({4, 3}, {}, DType::bfloat16)}},
      [](Builder&, const Tensors& x) {
        const SymbolicTensor y = ops::einsum("mk,kn->mn", x[0], x[1], DType::float32);
        CHECK(y.dtype() == DType::float32);
        return Tensors{y};
      },
      options);
}

TEST_CASE("matmul takes any number of leading dimensions") {
  for (const Shape& shape : {Shape{4}, Shape{3, 4}, Shape{2, 3, 4}}) {
    check_op({{real(shape), real({4, 5})}},
             [](Builder&, const Tensors& x) { return Tensors{ops::matmul(x[0], x[1])}; });
  }
}

TEST_CASE("rules and linearity of products") {
  const graph::ValueType single{{4, 4}, DType::float32};
  const graph::ValueType half{{4, 4}, DType::bfloat16};
  const ops::EinsumOp op("mk,kn->mn", DType::float32);
  CHECK(to_string(op.rule({{single, single}}, {{single}})) == "mk,kn->mn");
  CHECK(op.rule({{single, single}}, {{single}}).linear == std::vector<std::uint32_t>{1, 2});
  CHECK(op.rule({{half, half}}, {{single}}).linear == std::vector<std::uint32_t>{1, 2});
  CHECK(op.rule({{single, single}}, {{half}}).linear.empty());
  CHECK(op.bias_letters() == "n");
  CHECK(ops::EinsumOp("mk,kn->nm", DType::float32).bias_letters().empty());
  CHECK(ops::EinsumOp("bk,knp->bnp", DType::float32).bias_letters() == "np");
  const auto fused = op.with(DType::float32, {true, ops::MapCode::relu});
  const graph::ValueType bias{{4}, DType::float32};
  CHECK(to_string(fused->rule({{single, single, bias}}, {{single}})) == "mK,Kn,n->mn");
  CHECK(fused->rule({{single, single, bias}}, {{single}}).linear.empty());
}

TEST_CASE("flops count multiplications and additions") {
  const ops::EinsumOp op("bmk,bkn->bmn", DType::float32);
  const auto local = [](const Shape& shape) {
    graph::LocalTensor tensor{shape, {{}, shape}, DType::float32};
    for (std::size_t dim = 0; dim < shape.rank(); ++dim) tensor.box.begin.push_back(0);
    return tensor;
  };
  CHECK(op.flops({{local({2, 3, 4}), local({2, 4, 5})}, {local({2, 3, 5})}}) ==
        2.0 * 2 * 3 * 4 * 5);
}

TEST_CASE("a fused epilogue gives what the separate steps give") {
  const std::vector<double> found = result_of(
      {{{3, 4}, {1, -2, 3, 0, 2, 2, -1, 1, 0, 1, 0, -3}},
       {{4, 2}, {1, 0, -1, 2, 0, 1, 3, -2}},
       {{2}, {-4, 3}}},
      [](Builder& builder, const Tensors& x) {
        const ops::EinsumOp op("mk,kn->mn", DType::float32);
        const auto fused = op.with(DType::float32, {true, ops::MapCode::relu});
        const SymbolicTensor separate = ops::relu(ops::einsum("mk,kn->mn", x[0], x[1]) + x[2]);
        return Tensors{builder.add_one(fused, x) - separate, separate};
      });
  CHECK(found == std::vector<double>(6, 0.0));
}

TEST_CASE("equations that do not fit are refused") {
  graph::VariableTable table;
  graph::Graph graph(table);
  Builder builder(graph);
  const SymbolicTensor a = builder.input("a", {2, 3}, DType::float32);
  const SymbolicTensor b = builder.input("b", {4, 5}, DType::float32);
  const SymbolicTensor half = builder.input("h", {3, 5}, DType::bfloat16);
  CHECK_THROWS_WITH(ops::einsum("mk,kn->mn", a, b), Catch::Contains("'k' stands for 3 and 4"));
  CHECK_THROWS_WITH(ops::einsum("mkz,kn->mn", a, b), Catch::Contains("names 3 dimensions"));
  CHECK_THROWS_WITH(ops::einsum("mk,kn", a, b), Catch::Contains("two operands and a result"));
  CHECK_THROWS_WITH(ops::einsum("mm,mn->n", a, b), Catch::Contains("comes twice"));
  CHECK_THROWS_WITH(ops::einsum("mk,kn->mx", a, b), Catch::Contains("in no operand"));
  CHECK_THROWS_WITH(ops::einsum("m-,kn->mn", a, b), Catch::Contains("not a letter"));
  CHECK_THROWS_WITH(ops::einsum("mk,kn->mn", a, half), Catch::Contains("one dtype"));
  CHECK_THROWS_WITH(ops::matmul(a, builder.input("v", {3}, DType::float32)),
                    Catch::Contains("[..., k] and [k, n]"));
}

}  // namespace
}  // namespace tessera::testing
