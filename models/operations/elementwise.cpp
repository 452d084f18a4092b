// Element-wise operations: arithmetic, comparisons, logic, activation functions.
#include <fmt/format.h>

#include "models/activations.h"
#include "models/operations/operation.h"
#include "runtime/ops/ops.h"

namespace tessera::models::operations {
namespace {

using namespace ops;  // NOLINT: formulas read as formulas

constexpr auto kMaxRank = static_cast<std::int64_t>(Shape::kMaxRank);

using Unary = SymbolicTensor (*)(SymbolicTensor x);
using Binary = SymbolicTensor (*)(SymbolicTensor a, SymbolicTensor b);

SymbolicTensor to_float(SymbolicTensor x) {
  return is_floating(x.dtype()) ? x : cast(x, DType::float32);
}
SymbolicTensor to_boolean(SymbolicTensor x) {
  return x.dtype() == DType::boolean ? x : not_equal(x, 0.0);
}

LayerFactory unary(Unary function) {
  return [function](LayerInfo info, json::Arguments& /*config*/) {
    return make_operation(std::move(info),
                          [function](Pass& pass, const std::vector<Argument>& arguments) {
                            return function(tensor_at(pass, arguments, 0));
                          });
  };
}

LayerFactory binary(Binary function) {
  return [function](LayerInfo info, json::Arguments& /*config*/) {
    return make_operation(
        std::move(info), [function](Pass& pass, const std::vector<Argument>& arguments) {
          const auto [a, b] = promote(tensor_at(pass, arguments, 0), tensor_at(pass, arguments, 1));
          return function(a, b);
        });
  };
}

// An operation that is called as an activation function is.
std::unique_ptr<Layer> activation(LayerInfo info, Activation function) {
  return make_operation(std::move(info),
                        [function](Pass& pass, const std::vector<Argument>& arguments) {
                          return function(to_float(tensor_at(pass, arguments, 0)));
                        });
}

std::unique_ptr<Layer> make_softmax(LayerInfo info, json::Arguments& config) {
  const auto dim = static_cast<int>(config.integer("axis", -1, -kMaxRank, kMaxRank));
  return activation(std::move(info), [dim](SymbolicTensor x) { return softmax(x, dim); });
}
std::unique_ptr<Layer> make_log_softmax(LayerInfo info, json::Arguments& config) {
  const auto dim = static_cast<int>(config.integer("axis", -1, -kMaxRank, kMaxRank));
  return activation(std::move(info), [dim](SymbolicTensor x) { return log_softmax(x, dim); });
}
std::unique_ptr<Layer> make_gelu(LayerInfo info, json::Arguments& config) {
  const bool approximate = config.boolean("approximate", true);
  return activation(std::move(info), [=](SymbolicTensor x) { return gelu(x, approximate); });
}
std::unique_ptr<Layer> make_leaky_relu(LayerInfo info, json::Arguments& config) {
  const double slope = config.number("negative_slope", 0.2);
  return activation(std::move(info), [=](SymbolicTensor x) { return leaky_relu(x, slope); });
}
std::unique_ptr<Layer> make_elu(LayerInfo info, json::Arguments& config) {
  const double alpha = config.number("alpha", 1.0);
  return activation(std::move(info), [=](SymbolicTensor x) { return elu(x, alpha); });
}
std::unique_ptr<Layer> make_glu(LayerInfo info, json::Arguments& config) {
  const auto dim = static_cast<int>(config.integer("axis", -1, -kMaxRank, kMaxRank));
  return activation(std::move(info), [dim](SymbolicTensor x) { return glu(x, dim); });
}
std::unique_ptr<Layer> make_threshold(LayerInfo info, json::Arguments& config) {
  const double from = config.number("threshold", 0.0);
  const double value = config.number("default_value", 0.0);
  return activation(std::move(info), [=](SymbolicTensor x) { return threshold(x, from, value); });
}
std::unique_ptr<Layer> make_clip(LayerInfo info, json::Arguments& config) {
  const double low = config.number("x_min", 0.0);
  const double high = config.number("x_max", 0.0);
  return make_operation(std::move(info), [=](Pass& pass, const std::vector<Argument>& arguments) {
    return clip(tensor_at(pass, arguments, 0), low, high);
  });
}

// An activation function by its Keras name.
LayerFactory named(const char* name) {
  return [name](LayerInfo info, json::Arguments& config) {
    const json::Value value = json::make(name);
    return activation(std::move(info), make_activation(&value, "", config.problems()));
  };
}

std::unique_ptr<Layer> make_cast(LayerInfo info, json::Arguments& config) {
  const json::Value* name = config.value("dtype");
  const auto dtype = name == nullptr ? std::nullopt : dtype_from_name(name->string);
  if (!dtype) config.problem(config.object(), "dtype", "expected the name of a dtype");
  return make_operation(std::move(info), [target = dtype.value_or(DType::float32)](
                                             Pass& pass, const std::vector<Argument>& arguments) {
    return cast(tensor_at(pass, arguments, 0), target);
  });
}

// Where(condition, a, b)
std::unique_ptr<Layer> make_where(LayerInfo info, json::Arguments& /*config*/) {
  return make_operation(std::move(info), [](Pass& pass, const std::vector<Argument>& arguments) {
    const SymbolicTensor condition = to_boolean(tensor_at(pass, arguments, 0));
    const auto [a, b] = promote(tensor_at(pass, arguments, 1), tensor_at(pass, arguments, 2));
    return where(condition, a, b);
  });
}

LayerFactory filled_like(double value) {
  return [value](LayerInfo info, json::Arguments& config) {
    const auto name = config.optional_text("dtype");
    const auto dtype = name ? dtype_from_name(*name) : std::nullopt;
    return make_operation(std::move(info), [=](Pass& pass, const std::vector<Argument>& arguments) {
      const SymbolicTensor x = tensor_at(pass, arguments, 0);
      return full(pass.builder(), x.shape(), value, dtype.value_or(x.dtype()));
    });
  };
}

}  // namespace

const std::vector<LayerEntry>& elementwise_table() {
  using T = SymbolicTensor;
  static const std::vector<LayerEntry> table{
      {"Abs", unary([](T x) { return abs(x); })},
      {"Absolute", unary([](T x) { return abs(x); })},
      {"Add", binary([](T a, T b) { return a + b; })},
      {"Cast", make_cast},
      {"Ceil", unary([](T x) { return ceil(x); })},
      {"Clip", make_clip},
      {"Cos", unary([](T x) { return cos(to_float(x)); })},
      {"Divide", binary([](T a, T b) { return to_float(a) / to_float(b); })},
      {"Elu", make_elu},
      {"Equal", binary([](T a, T b) { return equal(a, b); })},
      {"Erf", unary([](T x) { return erf(to_float(x)); })},
      {"Exp", unary([](T x) { return exp(to_float(x)); })},
      {"Expm1", unary([](T x) { return expm1(to_float(x)); })},
      {"Floor", unary([](T x) { return floor(x); })},
      {"Gelu", make_gelu},
      {"Glu", make_glu},
      {"Greater", binary([](T a, T b) { return greater(a, b); })},
      {"GreaterEqual", binary([](T a, T b) { return greater_equal(a, b); })},
      {"HardSigmoid", named("hard_sigmoid")},
      {"HardSilu", named("hard_silu")},
      {"HardTanh", named("hard_tanh")},
      {"LeakyRelu", make_leaky_relu},
      {"Less", binary([](T a, T b) { return less(a, b); })},
      {"LessEqual", binary([](T a, T b) { return less_equal(a, b); })},
      {"Log", unary([](T x) { return log(to_float(x)); })},
      {"Log1p", unary([](T x) { return log1p(to_float(x)); })},
      {"LogSigmoid", named("log_sigmoid")},
      {"LogSoftmax", make_log_softmax},
      {"LogicalAnd", binary([](T a, T b) { return logical_and(to_boolean(a), to_boolean(b)); })},
      {"LogicalNot", unary([](T x) { return logical_not(to_boolean(x)); })},
      {"LogicalOr", binary([](T a, T b) { return logical_or(to_boolean(a), to_boolean(b)); })},
      {"Maximum", binary([](T a, T b) { return maximum(a, b); })},
      {"Minimum", binary([](T a, T b) { return minimum(a, b); })},
      {"Mish", named("mish")},
      {"Multiply", binary([](T a, T b) { return a * b; })},
      {"Negative", unary([](T x) { return -x; })},
      {"NotEqual", binary([](T a, T b) { return not_equal(a, b); })},
      {"OnesLike", filled_like(1.0)},
      {"Power", binary([](T a, T b) { return pow(a, b); })},
      {"Reciprocal", unary([](T x) { return reciprocal(to_float(x)); })},
      {"Relu", unary([](T x) { return relu(x); })},
      {"Relu6", named("relu6")},
      {"Rsqrt", unary([](T x) { return rsqrt(to_float(x)); })},
      {"Selu", named("selu")},
      {"Sigmoid", unary([](T x) { return sigmoid(to_float(x)); })},
      {"Sign", unary([](T x) { return sign(x); })},
      {"Silu", unary([](T x) { return silu(to_float(x)); })},
      {"Sin", unary([](T x) { return sin(to_float(x)); })},
      {"Softmax", make_softmax},
      {"Softplus", unary([](T x) { return softplus(to_float(x)); })},
      {"Softsign", named("softsign")},
      {"Sparsemax", named("sparsemax")},
      {"Sqrt", unary([](T x) { return sqrt(to_float(x)); })},
      {"Square", unary([](T x) { return square(x); })},
      {"StopGradient", unary([](T x) { return stop_gradient(x); })},
      {"Subtract", binary([](T a, T b) { return a - b; })},
      {"Tanh", unary([](T x) { return tanh(to_float(x)); })},
      {"TanhShrink", named("tanh_shrink")},
      {"Threshold", make_threshold},
      {"TrueDivide", binary([](T a, T b) { return to_float(a) / to_float(b); })},
      {"Where", make_where},
      {"ZerosLike", filled_like(0.0)},
  };
  return table;
}

}  // namespace tessera::models::operations
