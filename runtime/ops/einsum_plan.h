// How an Einstein sum becomes a batched matrix product.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/strided_copy.h"

namespace tessera::ops {

/// A term of an equation with sizes and strides of its dimensions.
struct EinsumTerm {
  std::string letters;
  Shape shape;
  DType dtype = DType::float32;
};

/// A product, after copies of those operands whose dimensions no stride can address.
struct EinsumPlan {
  kernels::MatmulArgs product;
  bool swapped = false;  // c' = b' a': the second operand comes first
  /// Copies into the workspace, first and second operand of the equation; and out of it, the
  /// result.
  std::optional<kernels::StridedCopy> copy_a;
  std::optional<kernels::StridedCopy> copy_b;
  std::optional<kernels::StridedCopy> copy_c;
  std::int64_t place_a = 0;  // bytes into the workspace
  std::int64_t place_b = 0;
  std::int64_t place_c = 0;
  std::int64_t place_product = 0;  // workspace of the product itself
  std::int64_t workspace_bytes = 0;
};

/// `bias`: the dtype of one along the trailing dimensions; with it or an activation nothing may be
/// swapped or copied out, which the caller guarantees (EinsumOp::bias_letters).
EinsumPlan plan_einsum(const EinsumTerm& a, const EinsumTerm& b, const EinsumTerm& c,
                       std::optional<DType> bias, std::optional<kernels::MapCode> activation);

}  // namespace tessera::ops
