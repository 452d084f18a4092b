// Index of the largest or smallest element along a dimension.
#pragma once

#include <cstdint>
#include <functional>

#include "base/dtype.h"
#include "base/shape.h"
#include "kernels/device.h"

namespace tessera::kernels {

/// Of a dense tensor [outer, size, inner]: the index (int32) of the first largest (smallest)
/// element along the middle dimension, [outer, inner]. The first NaN counts as larger (smaller)
/// than all.
struct ArgmaxArgs {
  bool smallest = false;
  std::int64_t outer = 1;
  std::int64_t size = 1;  // at least 1
  std::int64_t inner = 1;
  DType dtype = DType::float32;
};

using ArgmaxKernel = std::function<void(const void* input, std::int32_t* output)>;
ArgmaxKernel prepare_argmax(const ArgmaxArgs& args, const CpuDevice& device);

}  // namespace tessera::kernels
