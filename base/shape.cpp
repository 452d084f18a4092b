// Products, strides and texts of shapes.
#include "base/shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tessera {

Shape::Shape(std::span<const std::int64_t> sizes) : rank_(sizes.size()) {
  if (sizes.size() > kMaxRank) {
    throw Error(Error::Kind::config,
                fmt::format("a tensor has {} dimensions; at most {} are supported", sizes.size(),
                            kMaxRank));
  }
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
}

void Shape::push_back(std::int64_t size) {
  if (rank_ == kMaxRank) {
    throw Error(Error::Kind::config, fmt::format("a tensor has more than {} dimensions", kMaxRank));
  }
  sizes_[rank_++] = size;
}

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes()) product *= size;
  return product;
}

Shape Shape::strides() const {
  Shape strides = *this;
  std::int64_t step = 1;
  for (std::size_t dim = rank_; dim-- > 0;) {
    strides[dim] = step;
    step *= sizes_[dim];
  }
  return strides;
}

bool operator==(const Shape& a, const Shape& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

std::int64_t checked_elements(std::span<const std::int64_t> sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(product, size, &product)) {
      throw Error(Error::Kind::config, fmt::format("shape [{}] has a negative or too large size",
                                                   fmt::join(sizes, ", ")));
    }
  }
  return product;
}

}  // namespace tessera
