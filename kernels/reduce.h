// Sums, maxima and minima over dimensions.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "kernels/device.h"
#include "kernels/vector.h"

namespace tessera::kernels {

/// One reduction of a dense row-major tensor. Sums of nothing are 0, maxima -inf, minima inf.
/// Floats add in float32 within blocks of a few dozen and in double between them; float64 and
/// integers in double. The order depends on the shape alone, not on the number of threads. NaN is
/// kept.
struct ReduceArgs {
  ReduceCode code = ReduceCode::sum;
  Shape shape;            // of the operand
  std::vector<int> dims;  // that are reduced
  DType from = DType::float32;
  DType to = DType::float32;
};

using ReduceKernel = std::function<void(const void* input, void* output, void* workspace)>;

std::int64_t reduce_workspace_bytes(const ReduceArgs& args);
ReduceKernel prepare_reduce(const ReduceArgs& args, const CpuDevice& device);

}  // namespace tessera::kernels
