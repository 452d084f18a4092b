// Reductions: Sum, Mean, Max, Min, Any, All, Var, Std.
#include <fmt/format.h>

#include "models/operations/operation.h"
#include "runtime/ops/ops.h"

namespace tessera::models::operations {
namespace {

using namespace ops;  // NOLINT: formulas read as formulas

using Reduce = SymbolicTensor (*)(SymbolicTensor x, const std::vector<int>& dims, bool keepdims);

SymbolicTensor to_float(SymbolicTensor x) {
  return is_floating(x.dtype()) ? x : cast(x, DType::float32);
}
SymbolicTensor variance(SymbolicTensor x, const std::vector<int>& dims, bool keepdims) {
  x = to_float(x);
  return mean(square(x - mean(x, dims, true)), dims, keepdims);
}
SymbolicTensor any(SymbolicTensor x, const std::vector<int>& dims, bool keepdims) {
  return not_equal(sum(cast(not_equal(x, 0.0), DType::float32), dims, keepdims), 0.0);
}

LayerFactory reduction(Reduce function) {
  return [function](LayerInfo info, json::Arguments& config) {
    const auto axes = config.integers("axis");
    const bool keepdims = config.boolean("keepdims", false);
    return make_operation(std::move(info), [=](Pass& pass, const std::vector<Argument>& arguments) {
      const SymbolicTensor x = tensor_at(pass, arguments, 0);
      const std::vector<int> dims =
          axes ? positive_dims(*axes, x.rank(), "axis") : std::vector<int>{};
      return function(x, dims, keepdims);
    });
  };
}

}  // namespace

const std::vector<LayerEntry>& reduction_table() {
  using T = SymbolicTensor;
  using Dims = const std::vector<int>&;
  static const std::vector<LayerEntry> table{
      {"All", reduction([](T x, Dims d, bool k) { return logical_not(any(equal(x, 0.0), d, k)); })},
      {"Any", reduction(any)},
      {"Max", reduction([](T x, Dims d, bool k) { return max(x, d, k); })},
      {"Mean", reduction([](T x, Dims d, bool k) { return mean(to_float(x), d, k); })},
      {"Min", reduction([](T x, Dims d, bool k) { return min(x, d, k); })},
      {"Std", reduction([](T x, Dims d, bool k) { return sqrt(variance(x, d, k)); })},
      {"Sum", reduction([](T x, Dims d, bool k) { return sum(x, d, k); })},
      {"Var", reduction(variance)},
  };
  return table;
}

}  // namespace tessera::models::operations
