// Copies a box of elements between two layouts in memory: transposes, broadcasts, slices,
// concatenations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/shape.h"
#include "kernels/device.h"

namespace tessera::kernels {

/// Dimensions of a copy after merging: outer first; strides in elements. Input strides of 0 repeat
/// elements.
struct StridedCopy {
  std::size_t element_size = 4;
  std::size_t rank = 0;
  std::array<std::int64_t, Shape::kMaxRank> size{};
  std::array<std::int64_t, Shape::kMaxRank> in_stride{};
  std::array<std::int64_t, Shape::kMaxRank> out_stride{};
};

/// Drops dimensions of size 1 and merges neighbours that lie behind each other on both sides. Some
/// size may be 0: nothing is copied.
StridedCopy plan_strided_copy(const Shape& size, const Shape& in_strides, const Shape& out_strides,
                              std::size_t element_size);

/// `in` and `out` point at the first element of the box on their side and do not overlap.
void strided_copy(const StridedCopy& copy, const void* in, void* out, const CpuDevice& device);

}  // namespace tessera::kernels
