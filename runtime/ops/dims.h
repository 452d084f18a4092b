// Small helpers of ops that rearrange or look at single dimensions.
#pragma once

#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/shape.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/op.h"

namespace tessera::ops {

/// `dim` counted from the start; negative dimensions count from the end. Throws config when the
/// shape has no such dimension.
std::size_t dim_of(int dim, const Shape& shape, std::string_view op);
/// "abc...": one factor a dimension, from `first` on.
std::string factor_letters(std::size_t count, char first = 'a');
/// "ab...C": all dimensions but the last may be cut.
std::string row_term(const Shape& shape);
/// The shape without its last dimension.
Shape leading(const Shape& shape);
/// Throws config unless the dtype is a floating one.
void require_floating(DType dtype, std::string_view op);
/// Throws config: `op` has no gradient with respect to its operands (it is part of a backward pass
/// itself).
[[noreturn]] void no_second_gradient(std::string_view op);

}  // namespace tessera::ops
