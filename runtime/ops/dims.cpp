// Small helpers of ops that rearrange or look at single dimensions.
#include "runtime/ops/dims.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tessera::ops {

std::size_t dim_of(int dim, const Shape& shape, std::string_view op) {
  const auto rank = static_cast<int>(shape.rank());
  if (dim < -rank || dim >= rank) {
    throw Error(Error::Kind::config,
                fmt::format("{}: shape {} has no dimension {}", op, to_string(shape), dim));
  }
  return static_cast<std::size_t>(dim < 0 ? dim + rank : dim);
}

std::string factor_letters(std::size_t count, char first) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text.push_back(static_cast<char>(first + i));
  return text;
}

std::string row_term(const Shape& shape) { return factor_letters(shape.rank() - 1) + "C"; }

Shape leading(const Shape& shape) { return Shape(shape.sizes().first(shape.rank() - 1)); }

void require_floating(DType dtype, std::string_view op) {
  if (is_floating(dtype)) return;
  throw Error(Error::Kind::config,
              fmt::format("{}: a floating dtype is expected, found {}", op, name_of(dtype)));
}

void no_second_gradient(std::string_view op) {
  throw Error(Error::Kind::config,
              fmt::format("{}: second derivatives are not available through this op", op));
}

}  // namespace tessera::ops
