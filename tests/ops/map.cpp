// Cases of element-wise operations.
#include "runtime/ops/map.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "runtime/ops/gradients.h"
#include "runtime/ops/source.h"
#include "tests/ops/values.h"

namespace tessera::testing {
namespace {

using ops::operator+;
using ops::operator-;
using ops::operator*;
using ops::operator/;

using ops::MapCode;

const Shape kShapes[] = {{6, 4}, {5, 3}, {2, 1, 7}, {1}, {}};

Build unary(MapCode code) {
  return [code](Builder&, const Tensors& x) { return Tensors{ops::map_unary(code, x[0])}; };
}

Build binary(MapCode code) {
  return [code](Builder&, const Tensors& x) { return Tensors{ops::map_binary(code, x[0], x[1])}; };
}

TEST_CASE("unary operations") {
  const std::vector<double> any = {-3, -2, -1, 1, 2, 3};
  const std::vector<double> positive = {1, 2, 4};
  struct Entry {
    MapCode code;
    std::vector<double> domain;
  };
  const Entry entries[] = {{MapCode::copy, any},
                           {MapCode::negate, any},
                           {MapCode::abs, any},
                           {MapCode::sign, any},
                           {MapCode::exp, any},
                           {MapCode::expm1, any},
                           {MapCode::log, positive},
                           {MapCode::log1p, positive},
                           {MapCode::sqrt, positive},
                           {MapCode::rsqrt, positive},
                           {MapCode::square, any},
                           {MapCode::reciprocal, positive},
                           {MapCode::sin, any},
                           {MapCode::cos, any},
                           {MapCode::tanh, any},
                           {MapCode::sigmoid, any},
                           {MapCode::softplus, any},
                           {MapCode::erf, any},
                           {MapCode::floor, {0.25, 0.75}},
                           {MapCode::ceil, {0.25, 0.75}},
                           {MapCode::round, {0.6, 0.9}},
                           {MapCode::relu, any},
                           {MapCode::gelu_erf, any},
                           {MapCode::gelu_tanh, any},
                           {MapCode::silu, any},
                           {MapCode::is_finite, any},
                           {MapCode::logical_not, any}};
  for (const Entry& entry : entries) {
    Options options;
    if (entry.code == MapCode::erf || entry.code == MapCode::gelu_erf ||
        entry.code == MapCode::gelu_tanh) {
      options.tolerance = 1e-6;
      options.reason = "gradients multiply pending sums by irrational numbers";
    }
    for (const Shape& shape : kShapes) {
      check_op({{real(shape, entry.domain)}}, unary(entry.code), options);
    }
    options.tolerance *= 65536;  // of bfloat16
    check_op({{real({5, 4}, entry.domain, DType::bfloat16)}}, unary(entry.code), options);
  }
}

TEST_CASE("binary operations broadcast") {
  const std::vector<double> positive = {1, 2, 4};
  for (const MapCode code :
       {MapCode::add, MapCode::subtract, MapCode::multiply, MapCode::divide, MapCode::power,
        MapCode::maximum, MapCode::minimum, MapCode::equal, MapCode::not_equal, MapCode::less,
        MapCode::less_equal, MapCode::greater, MapCode::greater_equal, MapCode::logical_and,
        MapCode::logical_or}) {
    const bool needs_positive = code == MapCode::divide || code == MapCode::power;
    const std::vector<double> domain = needs_positive ? positive : std::vector<double>{};
    for (const auto& [a, b] : {std::pair<Shape, Shape>{{6, 4}, {6, 4}},
                               {{5, 3}, {3}},
                               {{5, 1}, {1, 3}},
                               {{4}, {}},
                               {{2, 3, 4}, {3, 1}}}) {
      check_op({{real(a, domain), real(b, domain)}}, binary(code));
    }
  }
  for (const DType dtype : {DType::bfloat16, DType::float16, DType::float64}) {
    check_op({{real({5, 3}, {}, dtype), real({3}, {}, dtype)}}, binary(MapCode::multiply));
  }
  for (const DType dtype : {DType::int32, DType::int64, DType::uint8}) {
    check_op({{whole({5, 3}, 0, 3, dtype), whole({3}, 0, 3, dtype)}}, binary(MapCode::add));
  }
}

TEST_CASE("operations with numbers") {
  check_op({{real({5, 3}, {1, 2, 4})}}, [](Builder&, const Tensors& t) {
    const SymbolicTensor x = t[0];
    using namespace ops;
    return Tensors{x + 2.0,
                   x - 2.0,
                   x * 2.0,
                   x / 2.0,
                   2.0 + x,
                   2.0 - x,
                   2.0 * x,
                   2.0 / x,
                   pow(x, 3.0),
                   pow(x, 0.5),
                   pow(x, -1.0),
                   pow(2.0, x),
                   pow(x, 0.0),
                   maximum(x, 1.5),
                   minimum(x, 1.5),
                   clip(x, 1.5, 3.0),
                   greater(x, 1.0),
                   less(x, 2.0),
                   equal(x, 2.0),
                   where(less(x, 2.0), x, 0.0),
                   where(less(x, 2.0), 0.0, x)};
  });
}

TEST_CASE("where chooses and broadcasts") {
  const Build build = [](Builder&, const Tensors& t) {
    return Tensors{ops::where(t[0], t[1], t[2])};
  };
  check_op({{whole({5, 3}, 0, 1, DType::boolean), real({5, 3}), real({5, 3})}}, build);
  check_op({{whole({5, 1}, 0, 1, DType::boolean), real({3}), real({})}}, build);
  check_op({{real({6, 4}), real({6, 4}), real({4})}}, build);
}

TEST_CASE("casts") {
  for (const DType from : {DType::float32, DType::bfloat16, DType::int32, DType::boolean}) {
    for (const DType to :
         {DType::float32, DType::float16, DType::int64, DType::uint8, DType::boolean}) {
      Operand operand = is_floating(from) ? real({5, 3}, {0, 1, 2}, from)
                                          : whole({5, 3}, 0, from == DType::boolean ? 1 : 3, from);
      Options options;
      options.gradient = false;  // differences in float64 see the rounding
      check_op(
          {{operand}}, [to](Builder&, const Tensors& x) { return Tensors{ops::cast(x[0], to)}; },
          options);
    }
  }
}

TEST_CASE("gradients at special points") {
  // Values and gradient of sum(build(x)).
  const auto gradient_of = [](const std::vector<double>& x, const Build& build) {
    return result_of({{{static_cast<std::int64_t>(x.size())}, x}},
                     [&build](Builder& builder, const Tensors& inputs) {
                       const SymbolicTensor loss = ops::sum(build(builder, inputs)[0]);
                       return Tensors{ops::gradients(builder, loss, inputs)[0]};
                     });
  };
  using V = std::vector<double>;
  CHECK(gradient_of({-1, 0, 1}, unary(MapCode::relu)) == V{0, 0, 1});
  CHECK(gradient_of({-1, 0, 1}, unary(MapCode::abs)) == V{-1, 0, 1});
  CHECK(gradient_of({-200, 0, 200}, unary(MapCode::softplus)) == V{0, 0.5, 1});
  CHECK(gradient_of({-200, 200}, unary(MapCode::sigmoid)) == V{0, 0});
  // Equal operands share.
  CHECK(gradient_of({1, 2, 3}, [](Builder&, const Tensors& x) {
          return Tensors{ops::maximum(x[0], 2.0)};
        }) == V{0, 0.5, 1});
  CHECK(gradient_of({1, 2, 3}, [](Builder&, const Tensors& x) {
          return Tensors{ops::minimum(x[0], 2.0)};
        }) == V{1, 0.5, 0});
  CHECK(gradient_of({-1, 0, 0.5, 1, 2}, [](Builder&, const Tensors& x) {
          return Tensors{ops::clip(x[0], 0.0, 1.0)};
        }) == V{0, 0.5, 1, 0.5, 0});
  CHECK(gradient_of({0, 2}, [](Builder&, const Tensors& x) {
          return Tensors{ops::pow(x[0], 2.0)};
        }) == V{0, 4});
  CHECK(gradient_of({0, 2}, [](Builder&, const Tensors& x) {
          return Tensors{ops::pow(x[0], ops::floor(x[0] * 0.25))};
        }) == V{0, 0});
  CHECK(gradient_of({1, 2}, [](Builder&, const Tensors& x) {
          return Tensors{ops::cast(x[0], DType::bfloat16) * 3.0};
        }) == V{3, 3});
  CHECK(gradient_of({0, 2}, [](Builder&, const Tensors& x) {
          return Tensors{x[0] * ops::stop_gradient(x[0])};
        }) == V{0, 2});
}

TEST_CASE("rules align dimensions from the right") {
  graph::VariableTable table;
  graph::Graph graph(table);
  Builder builder(graph);
  const SymbolicTensor a = builder.input("a", {2, 3, 1}, DType::float32);
  const SymbolicTensor b = builder.input("b", {3, 4}, DType::float32);
  const auto rule_of_last = [&graph] {
    const graph::Node& node = graph.nodes.back();
    std::vector<graph::ValueType> inputs;
    std::vector<graph::ValueType> outputs;
    for (const graph::ValueId id : node.inputs) inputs.push_back(graph.type(id));
    for (const graph::ValueId id : node.outputs) outputs.push_back(graph.type(id));
    return node.op->rule(inputs, outputs);
  };
  const auto check_rule = [&](SymbolicTensor made, const std::string& text,
                              const std::vector<std::uint32_t>& linear) {
    REQUIRE(made);
    const graph::Rule rule = rule_of_last();
    CHECK(to_string(rule) == text);
    CHECK(rule.linear == linear);
  };
  using Sets = std::vector<std::uint32_t>;
  check_rule(a + b, "ab.,bc->abc", Sets{0b11});
  check_rule(a * b, "ab.,bc->abc", Sets{0b01, 0b10});
  check_rule(a / b, "ab.,bc->abc", Sets{0b01});
  check_rule(a * 3.0, "abc->abc", Sets{0b1});
  check_rule(a + 3.0, "abc->abc", Sets{});
  check_rule(3.0 / a, "abc->abc", Sets{});
  check_rule(ops::where(ops::less(a, 0.0), a, 0.0), "abc,abc->abc", Sets{0b10});
  check_rule(ops::where(ops::less(a, 0.0), b, b * 2.0), "ab.,bc,bc->abc", Sets{0b110});
  check_rule(ops::cast(a, DType::float64), "abc->abc", Sets{0b1});
  check_rule(ops::cast(a, DType::bfloat16), "abc->abc", Sets{});
  check_rule(ops::exp(a), "abc->abc", Sets{});
}

TEST_CASE("linear sets of longer programs") {
  using Kind = kernels::MapOperand::Kind;
  const auto in = [](std::int16_t i) { return kernels::MapOperand{Kind::input, i, 0.0}; };
  const auto step = [](std::int16_t i) { return kernels::MapOperand{Kind::step, i, 0.0}; };
  kernels::MapProgram program;  // x0 * x1 - x2
  program.steps = {{MapCode::multiply, {in(0), in(1), {}}},
                   {MapCode::subtract, {step(0), in(2), {}}}};
  program.results = {1};
  const ops::MapOp op(program, {DType::float32});
  const graph::ValueType type{{4}, DType::float32};
  const graph::ValueType inputs[] = {type, type, type};
  CHECK(op.rule(inputs, {{type}}).linear == std::vector<std::uint32_t>{0b101, 0b110});
  program.results = {0, 1};  // both follow one pending factor, and x2 must come with it
  const ops::MapOp two(program, {DType::float32, DType::float32});
  const graph::ValueType outputs[] = {type, type};
  CHECK(two.rule(inputs, outputs).linear == std::vector<std::uint32_t>{0b101, 0b110});
  program.steps[0].code = MapCode::maximum;
  const ops::MapOp other(program, {DType::float32, DType::float32});
  CHECK(other.rule(inputs, outputs).linear.empty());
}

TEST_CASE("constants are folded into operations") {
  graph::VariableTable table;
  graph::Graph graph(table);
  Builder builder(graph);
  const SymbolicTensor x = builder.input("x", {3}, DType::float32);
  const SymbolicTensor one = ops::full(builder, {}, 1.0);
  CHECK((x * one).id == x.id);
  CHECK((x + ops::full(builder, {3}, 0.0)).id == x.id);
  const SymbolicTensor doubled = x * ops::full(builder, {3}, 2.0);
  CHECK(graph.nodes.back().inputs.size() == 1);
  CHECK(doubled.shape() == Shape{3});
  // A larger constant decides the result's shape: it stays an operand.
  const SymbolicTensor wider = x * ops::full(builder, {2, 3}, 2.0);
  CHECK(wider.shape() == Shape{2, 3});
  CHECK(graph.nodes.back().inputs.size() == 2);
  CHECK(ops::constant_of(ops::cast(one, DType::bfloat16)) == 1.0);
}

TEST_CASE("shapes and dtypes that do not fit are refused") {
  graph::VariableTable table;
  graph::Graph graph(table);
  Builder builder(graph);
  const SymbolicTensor a = builder.input("a", {2, 3}, DType::float32);
  const SymbolicTensor b = builder.input("b", {2}, DType::float32);
  const SymbolicTensor c = builder.input("c", {3}, DType::int32);
  CHECK_THROWS_WITH(a + b, Catch::Contains("[2, 3], [2]"));
  CHECK_THROWS_WITH(a + c, Catch::Contains("float32") && Catch::Contains("int32"));
}

TEST_CASE("threads do not change bits of element-wise chains") {
  check_threads({real({300, 700}), real({700})},
                [](Builder&, const Tensors& x) { return Tensors{ops::tanh(x[0] * x[1] + 1.0)}; });
}

}  // namespace
}  // namespace tessera::testing
