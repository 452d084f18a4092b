// Kernels without operands: constants, indices, random numbers.
#pragma once

#include <cstdint>
#include <functional>

#include "base/dtype.h"
#include "base/shape.h"
#include "kernels/device.h"

namespace tessera::kernels {

/// Writes a dense tensor. `step`: training steps done, which random draws depend on.
using SourceKernel = std::function<void(void* output, std::uint64_t step)>;

/// `elements` times `value`, rounded to the dtype.
SourceKernel prepare_full(std::int64_t elements, double value, DType dtype,
                          const CpuDevice& device);

/// The global index along `dim` of every element of a box.
SourceKernel prepare_iota(const Box& box, std::size_t dim, DType dtype, const CpuDevice& device);

enum class Distribution : std::uint8_t {
  uniform,  // in [0, 1), 24 bits
  normal,   // standard
};
/// Draws of base/philox.h by (key, step, global element index) for the box of a tensor of shape
/// `global`, rounded to the dtype.
SourceKernel prepare_random(Distribution distribution, std::uint64_t key, const Shape& global,
                            const Box& box, DType dtype, const CpuDevice& device);

}  // namespace tessera::kernels
