// Gradients of element-wise operations, one formula a code.
#include <numbers>

#include "base/error.h"
#include "runtime/ops/map.h"
#include "runtime/ops/ops.h"

namespace tessera::ops {
namespace {

using graph::kNoValue;
using graph::ValueId;
using kernels::MapOperand;

/// An operand in a formula: a tensor or a number.
struct Term {
  SymbolicTensor tensor;
  double number = 0.0;
};

SymbolicTensor apply(MapCode code, Term a, Term b) {
  if (a.tensor && b.tensor) return map_binary(code, a.tensor, b.tensor);
  return a.tensor ? map_scalar(code, a.tensor, b.number) : map_scalar(code, a.number, b.tensor);
}

/// Density of the standard normal distribution.
SymbolicTensor normal_density(SymbolicTensor x) {
  return exp(square(x) * -0.5) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
}

SymbolicTensor gelu_erf_slope(SymbolicTensor x) {
  const SymbolicTensor below = (erf(x * (1.0 / std::numbers::sqrt2)) + 1.0) * 0.5;
  return below + x * normal_density(x);
}

SymbolicTensor gelu_tanh_slope(SymbolicTensor x) {
  constexpr double kCubic = 0.044715;
  const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
  const SymbolicTensor squared = square(x);
  const SymbolicTensor t = tanh(x * (squared * kCubic + 1.0) * scale);
  const SymbolicTensor inner = (squared * (3.0 * kCubic) + 1.0) * scale;
  return (t + 1.0) * 0.5 + x * (1.0 - square(t)) * inner * 0.5;
}

/// g times the derivative of y = code(x); no tensor where the derivative is zero.
SymbolicTensor unary_gradient(MapCode code, SymbolicTensor x, SymbolicTensor y, SymbolicTensor g) {
  switch (code) {
    case MapCode::copy:
      return cast(g, x.dtype());
    case MapCode::negate:
      return -g;
    case MapCode::abs:
      return g * sign(x);
    case MapCode::exp:
      return g * y;
    case MapCode::expm1:
      return g * (y + 1.0);
    case MapCode::log:
      return g / x;
    case MapCode::log1p:
      return g / (x + 1.0);
    case MapCode::sqrt:
      return g * 0.5 / y;
    case MapCode::rsqrt:
      return g * -0.5 * (y / x);
    case MapCode::square:
      return g * (x * 2.0);
    case MapCode::reciprocal:
      return -(g * square(y));
    case MapCode::sin:
      return g * cos(x);
    case MapCode::cos:
      return -(g * sin(x));
    case MapCode::tanh:
      return g * (1.0 - square(y));
    case MapCode::sigmoid:
      return g * (y * (1.0 - y));
    case MapCode::softplus:
      return g * sigmoid(x);
    case MapCode::erf:
      return g * (exp(-square(x)) * (2.0 * std::numbers::inv_sqrtpi));
    case MapCode::relu:
      return where(greater(y, 0.0), g, 0.0);
    case MapCode::gelu_erf:
      return g * gelu_erf_slope(x);
    case MapCode::gelu_tanh:
      return g * gelu_tanh_slope(x);
    case MapCode::silu: {
      const SymbolicTensor s = sigmoid(x);
      return g * (s * (x * (1.0 - s) + 1.0));
    }
    default:
      return {};
  }
}

/// d(a^b)/da. Where b is 0 it is 0, also at a = 0.
SymbolicTensor power_base_gradient(Term a, Term b, SymbolicTensor g) {
  if (!b.tensor) {
    if (b.number == 0.0) return {};
    return g * (pow(a.tensor, b.number - 1.0) * b.number);
  }
  const SymbolicTensor is_zero = equal(b.tensor, 0.0);
  const SymbolicTensor lower = where(is_zero, 1.0, b.tensor - 1.0);
  return g * (b.tensor * apply(MapCode::power, a, {lower}));
}

/// d(a^b)/db = a^b log a; 0 at a = 0.
SymbolicTensor power_exponent_gradient(Term a, SymbolicTensor y, SymbolicTensor g) {
  if (!a.tensor) return a.number == 0.0 ? SymbolicTensor{} : g * (y * std::log(a.number));
  return g * (y * log(where(equal(a.tensor, 0.0), 1.0, a.tensor)));
}

/// The larger (or smaller) operand takes the gradient; equal ones take half each.
SymbolicTensor extremum_gradient(MapCode wins, Term own, Term other, SymbolicTensor g) {
  const SymbolicTensor rest = where(apply(wins, own, other), g, 0.0);
  return where(apply(MapCode::equal, own, other), g * 0.5, rest);
}

/// Gradient with respect to operand `which` (0 or 1), in the shape of the result.
SymbolicTensor binary_gradient(MapCode code, int which, Term a, Term b, SymbolicTensor y,
                               SymbolicTensor g) {
  const bool first = which == 0;
  switch (code) {
    case MapCode::add:
      return g;
    case MapCode::subtract:
      return first ? g : -g;
    case MapCode::multiply:
      return apply(MapCode::multiply, {g}, first ? b : a);
    case MapCode::divide:
      return first ? apply(MapCode::divide, {g}, b) : -(g * y / b.tensor);
    case MapCode::power:
      return first ? power_base_gradient(a, b, g) : power_exponent_gradient(a, y, g);
    case MapCode::maximum:
      return extremum_gradient(MapCode::greater, first ? a : b, first ? b : a, g);
    case MapCode::minimum:
      return extremum_gradient(MapCode::less, first ? a : b, first ? b : a, g);
    default:
      return {};
  }
}

}  // namespace

SymbolicTensor sum_to_shape(SymbolicTensor gradient, Shape shape) {
  const Shape from = gradient.shape();
  if (from == shape) return gradient;
  const std::size_t missing = from.rank() - shape.rank();
  std::vector<int> leading;
  std::vector<int> stretched;
  for (std::size_t dim = 0; dim < from.rank(); ++dim) {
    if (dim < missing) {
      leading.push_back(static_cast<int>(dim));
    } else if (shape[dim - missing] != from[dim]) {
      stretched.push_back(static_cast<int>(dim - missing));
    }
  }
  if (!leading.empty()) gradient = sum(gradient, leading);
  if (!stretched.empty()) gradient = sum(gradient, stretched, true);
  return gradient;
}

std::vector<ValueId> MapOp::gradient(const graph::GradientCall& call) const {
  check(program_.steps.size() == 1, "gradients are taken before element-wise steps are fused");
  std::vector<ValueId> gradients(call.inputs.size(), kNoValue);
  if (stops_gradient_) return gradients;
  const kernels::MapStep& step = program_.steps[0];
  const SymbolicTensor g = call.builder.wrap(call.output_gradients[0]);
  const SymbolicTensor y = call.builder.wrap(call.outputs[0]);
  std::array<Term, 3> terms;
  for (std::size_t i = 0; i < 3; ++i) {
    const MapOperand& operand = step.operands[i];
    if (operand.kind == MapOperand::Kind::constant) {
      terms[i].number = operand.constant;
    } else if (static_cast<int>(i) < kernels::operands_of(step.code)) {
      terms[i].tensor = call.builder.wrap(call.inputs[static_cast<std::size_t>(operand.index)]);
    }
  }
  for (int i = 0; i < kernels::operands_of(step.code); ++i) {
    const MapOperand& operand = step.operands[static_cast<std::size_t>(i)];
    const auto index = static_cast<std::size_t>(operand.index);
    if (operand.kind != MapOperand::Kind::input || !call.wanted[index]) continue;
    SymbolicTensor found;
    if (step.code == MapCode::select) {
      if (i == 1) found = where(terms[0].tensor, g, 0.0);
      if (i == 2) found = where(terms[0].tensor, 0.0, g);
    } else if (kernels::operands_of(step.code) == 1) {
      found = unary_gradient(step.code, terms[0].tensor, y, g);
    } else {
      found = binary_gradient(step.code, i, terms[0], terms[1], y, g);
    }
    if (found)
      gradients[index] = sum_to_shape(found, terms[static_cast<std::size_t>(i)].tensor.shape()).id;
  }
  return gradients;
}

}  // namespace tessera::ops
