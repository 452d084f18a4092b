#include "models/layers/norms.h"

#include <algorithm>

#include "runtime/ops/ops.h"

namespace tessera::models::layers {

using namespace ops;  // NOLINT: formulas read as formulas

SymbolicTensor unit_norm(SymbolicTensor x, std::vector<int> dims, double epsilon) {
  const SymbolicTensor squares = sum(square(x), std::move(dims), true);
  return x * rsqrt(maximum(squares, epsilon * epsilon));
}

Moments moments(SymbolicTensor x, const std::vector<int>& dims) {
  Moments result;
  result.mean = mean(x, dims, true);
  result.centered = x - result.mean;
  result.variance = mean(square(result.centered), dims, true);
  return result;
}

SymbolicTensor spread(SymbolicTensor x, const std::vector<std::size_t>& dims, std::size_t rank) {
  Shape shape;
  for (std::size_t dim = 0; dim < rank; ++dim) {
    const auto at = std::find(dims.begin(), dims.end(), dim);
    shape.push_back(at == dims.end() ? 1 : x.shape()[static_cast<std::size_t>(at - dims.begin())]);
  }
  // Trailing dimensions broadcast as they are.
  Shape trailing = shape;
  std::size_t leading = 0;
  while (leading < rank && trailing[leading] == 1) ++leading;
  if (Shape(trailing.sizes().subspan(leading)) == x.shape()) return x;
  return reshape(x, shape);
}

}  // namespace tessera::models::layers
