// The element-wise functions of ops.h.
#include <fmt/format.h>

#include <numbers>

#include "base/error.h"
#include "runtime/ops/map.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/source.h"

namespace tessera::ops {
namespace {

using kernels::MapOperand;
using kernels::MapStep;

MapOperand input(int index) {
  return {MapOperand::Kind::input, static_cast<std::int16_t>(index), 0.0};
}
MapOperand constant(double value) { return {MapOperand::Kind::constant, 0, value}; }

SymbolicTensor add_step(const MapStep& step, std::span<const SymbolicTensor> inputs, DType result) {
  kernels::MapProgram program;
  program.steps.push_back(step);
  program.results.push_back(0);
  std::vector<DType> dtypes;
  for (const SymbolicTensor x : inputs) dtypes.push_back(x.dtype());
  return inputs[0].builder->add_one(make_map(std::move(program), dtypes, {result}), inputs);
}

DType result_of(MapCode code, DType operand) {
  return kernels::gives_boolean(code) ? DType::boolean : operand;
}

void check_one_dtype(MapCode code, SymbolicTensor a, SymbolicTensor b) {
  if (a.dtype() == b.dtype()) return;
  throw Error(Error::Kind::internal,
              fmt::format("{} of {} {} and {} {}: operands of one dtype are expected",
                          kernels::name_of(code), tessera::name_of(a.dtype()), to_string(a.shape()),
                          tessera::name_of(b.dtype()), to_string(b.shape())));
}

/// The constant that may stand for operand `x` beside `other`: one value that changes neither the
/// result's shape nor, being exact in its dtype, its bits.
std::optional<double> scalar_beside(SymbolicTensor x, SymbolicTensor other) {
  if (x.dtype() != DType::float32 && x.dtype() != DType::float64) return std::nullopt;
  const std::optional<double> value = constant_of(x);
  if (!value) return std::nullopt;
  const Shape shapes[] = {x.shape(), other.shape()};
  if (!(broadcast_shape(shapes) == other.shape())) return std::nullopt;
  return x.dtype() == DType::float32 ? static_cast<double>(static_cast<float>(*value)) : *value;
}

/// Does `x code b` equal x?
bool is_neutral_right(MapCode code, double b) {
  switch (code) {
    case MapCode::add:
    case MapCode::subtract:
      return b == 0.0;
    case MapCode::multiply:
    case MapCode::divide:
    case MapCode::power:
      return b == 1.0;
    default:
      return false;
  }
}

}  // namespace

SymbolicTensor map_unary(MapCode code, SymbolicTensor x) {
  return add_step({code, {input(0)}}, {{x}}, result_of(code, x.dtype()));
}

SymbolicTensor map_binary(MapCode code, SymbolicTensor a, SymbolicTensor b) {
  check_one_dtype(code, a, b);
  if (const auto value = scalar_beside(b, a)) return map_scalar(code, a, *value);
  if (const auto value = scalar_beside(a, b)) return map_scalar(code, *value, b);
  return add_step({code, {input(0), input(1)}}, {{a, b}}, result_of(code, a.dtype()));
}

SymbolicTensor map_scalar(MapCode code, SymbolicTensor a, double b) {
  if (is_neutral_right(code, b)) return a;
  return add_step({code, {input(0), constant(b)}}, {{a}}, result_of(code, a.dtype()));
}

SymbolicTensor map_scalar(MapCode code, double a, SymbolicTensor b) {
  if (code == MapCode::add && a == 0.0) return b;
  if (code == MapCode::multiply && a == 1.0) return b;
  return add_step({code, {constant(a), input(0)}}, {{b}}, result_of(code, b.dtype()));
}

SymbolicTensor where(SymbolicTensor condition, SymbolicTensor a, SymbolicTensor b) {
  check_one_dtype(MapCode::select, a, b);
  return add_step({MapCode::select, {input(0), input(1), input(2)}}, {{condition, a, b}},
                  a.dtype());
}

SymbolicTensor where(SymbolicTensor condition, SymbolicTensor a, double b) {
  return add_step({MapCode::select, {input(0), input(1), constant(b)}}, {{condition, a}},
                  a.dtype());
}

SymbolicTensor where(SymbolicTensor condition, double a, SymbolicTensor b) {
  return add_step({MapCode::select, {input(0), constant(a), input(1)}}, {{condition, b}},
                  b.dtype());
}

SymbolicTensor cast(SymbolicTensor x, DType dtype) {
  if (x.dtype() == dtype) return x;
  if (const auto value = constant_of(x); value && is_floating(x.dtype()) && is_floating(dtype)) {
    return full(*x.builder, x.shape(), *value, dtype);
  }
  return x.builder->add_one(make_cast(x.dtype(), dtype), {{x}});
}

SymbolicTensor stop_gradient(SymbolicTensor x) {
  kernels::MapProgram program;
  program.steps.push_back({MapCode::copy, {input(0)}});
  program.results.push_back(0);
  const DType dtype = x.dtype();
  program.wide = computes_wide({&dtype, 1}, {});
  return x.builder->add_one(
      std::make_shared<const MapOp>(std::move(program), std::vector<DType>{dtype}, true), {{x}});
}

SymbolicTensor operator+(SymbolicTensor a, SymbolicTensor b) {
  return map_binary(MapCode::add, a, b);
}
SymbolicTensor operator-(SymbolicTensor a, SymbolicTensor b) {
  return map_binary(MapCode::subtract, a, b);
}
SymbolicTensor operator*(SymbolicTensor a, SymbolicTensor b) {
  return map_binary(MapCode::multiply, a, b);
}
SymbolicTensor operator/(SymbolicTensor a, SymbolicTensor b) {
  return map_binary(MapCode::divide, a, b);
}
SymbolicTensor operator+(SymbolicTensor a, double b) { return map_scalar(MapCode::add, a, b); }
SymbolicTensor operator-(SymbolicTensor a, double b) { return map_scalar(MapCode::subtract, a, b); }
SymbolicTensor operator*(SymbolicTensor a, double b) { return map_scalar(MapCode::multiply, a, b); }
SymbolicTensor operator/(SymbolicTensor a, double b) { return map_scalar(MapCode::divide, a, b); }
SymbolicTensor operator+(double a, SymbolicTensor b) { return map_scalar(MapCode::add, a, b); }
SymbolicTensor operator-(double a, SymbolicTensor b) { return map_scalar(MapCode::subtract, a, b); }
SymbolicTensor operator*(double a, SymbolicTensor b) { return map_scalar(MapCode::multiply, a, b); }
SymbolicTensor operator/(double a, SymbolicTensor b) { return map_scalar(MapCode::divide, a, b); }
SymbolicTensor operator-(SymbolicTensor x) { return map_unary(MapCode::negate, x); }

SymbolicTensor abs(SymbolicTensor x) { return map_unary(MapCode::abs, x); }
SymbolicTensor sign(SymbolicTensor x) { return map_unary(MapCode::sign, x); }
SymbolicTensor exp(SymbolicTensor x) { return map_unary(MapCode::exp, x); }
SymbolicTensor expm1(SymbolicTensor x) { return map_unary(MapCode::expm1, x); }
SymbolicTensor log(SymbolicTensor x) { return map_unary(MapCode::log, x); }
SymbolicTensor log1p(SymbolicTensor x) { return map_unary(MapCode::log1p, x); }
SymbolicTensor sqrt(SymbolicTensor x) { return map_unary(MapCode::sqrt, x); }
SymbolicTensor rsqrt(SymbolicTensor x) { return map_unary(MapCode::rsqrt, x); }
SymbolicTensor square(SymbolicTensor x) { return map_unary(MapCode::square, x); }
SymbolicTensor reciprocal(SymbolicTensor x) { return map_unary(MapCode::reciprocal, x); }
SymbolicTensor sin(SymbolicTensor x) { return map_unary(MapCode::sin, x); }
SymbolicTensor cos(SymbolicTensor x) { return map_unary(MapCode::cos, x); }
SymbolicTensor tanh(SymbolicTensor x) { return map_unary(MapCode::tanh, x); }
SymbolicTensor sigmoid(SymbolicTensor x) { return map_unary(MapCode::sigmoid, x); }
SymbolicTensor softplus(SymbolicTensor x) { return map_unary(MapCode::softplus, x); }
SymbolicTensor erf(SymbolicTensor x) { return map_unary(MapCode::erf, x); }
SymbolicTensor floor(SymbolicTensor x) { return map_unary(MapCode::floor, x); }
SymbolicTensor ceil(SymbolicTensor x) { return map_unary(MapCode::ceil, x); }
SymbolicTensor round(SymbolicTensor x) { return map_unary(MapCode::round, x); }
SymbolicTensor relu(SymbolicTensor x) { return map_unary(MapCode::relu, x); }
SymbolicTensor gelu(SymbolicTensor x, bool approximate) {
  return map_unary(approximate ? MapCode::gelu_tanh : MapCode::gelu_erf, x);
}
SymbolicTensor silu(SymbolicTensor x) { return map_unary(MapCode::silu, x); }

SymbolicTensor pow(SymbolicTensor a, SymbolicTensor b) { return map_binary(MapCode::power, a, b); }
SymbolicTensor pow(SymbolicTensor a, double b) {
  if (b == 2.0) return square(a);
  if (b == 0.5) return sqrt(a);
  return map_scalar(MapCode::power, a, b);
}
SymbolicTensor pow(double a, SymbolicTensor b) { return map_scalar(MapCode::power, a, b); }
SymbolicTensor maximum(SymbolicTensor a, SymbolicTensor b) {
  return map_binary(MapCode::maximum, a, b);
}
SymbolicTensor maximum(SymbolicTensor a, double b) { return map_scalar(MapCode::maximum, a, b); }
SymbolicTensor minimum(SymbolicTensor a, SymbolicTensor b) {
  return map_binary(MapCode::minimum, a, b);
}
SymbolicTensor minimum(SymbolicTensor a, double b) { return map_scalar(MapCode::minimum, a, b); }
SymbolicTensor clip(SymbolicTensor x, double low, double high) {
  return minimum(maximum(x, low), high);
}

SymbolicTensor equal(SymbolicTensor a, SymbolicTensor b) {
  return map_binary(MapCode::equal, a, b);
}
SymbolicTensor equal(SymbolicTensor a, double b) { return map_scalar(MapCode::equal, a, b); }
SymbolicTensor not_equal(SymbolicTensor a, SymbolicTensor b) {
  return map_binary(MapCode::not_equal, a, b);
}
SymbolicTensor not_equal(SymbolicTensor a, double b) {
  return map_scalar(MapCode::not_equal, a, b);
}
SymbolicTensor less(SymbolicTensor a, SymbolicTensor b) { return map_binary(MapCode::less, a, b); }
SymbolicTensor less(SymbolicTensor a, double b) { return map_scalar(MapCode::less, a, b); }
SymbolicTensor less_equal(SymbolicTensor a, SymbolicTensor b) {
  return map_binary(MapCode::less_equal, a, b);
}
SymbolicTensor less_equal(SymbolicTensor a, double b) {
  return map_scalar(MapCode::less_equal, a, b);
}
SymbolicTensor greater(SymbolicTensor a, SymbolicTensor b) {
  return map_binary(MapCode::greater, a, b);
}
SymbolicTensor greater(SymbolicTensor a, double b) { return map_scalar(MapCode::greater, a, b); }
SymbolicTensor greater_equal(SymbolicTensor a, SymbolicTensor b) {
  return map_binary(MapCode::greater_equal, a, b);
}
SymbolicTensor greater_equal(SymbolicTensor a, double b) {
  return map_scalar(MapCode::greater_equal, a, b);
}
SymbolicTensor logical_and(SymbolicTensor a, SymbolicTensor b) {
  return map_binary(MapCode::logical_and, a, b);
}
SymbolicTensor logical_or(SymbolicTensor a, SymbolicTensor b) {
  return map_binary(MapCode::logical_or, a, b);
}
SymbolicTensor logical_not(SymbolicTensor x) { return map_unary(MapCode::logical_not, x); }
SymbolicTensor is_finite(SymbolicTensor x) { return map_unary(MapCode::is_finite, x); }

}  // namespace tessera::ops
