// Layer normalisation and root-mean-square normalisation along a dense last dimension.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/device.h"

namespace tessera::kernels {

/// x, y, dy, dx: [rows, columns]; gamma, beta, dgamma, dbeta: [columns]; mean, rstd: [rows] in
/// float32 (float64 for float64). centered: mean = mean(x), rstd = 1 / sqrt(mean((x - mean)^2) +
/// epsilon). Otherwise mean is 0 and not stored. y = (x - mean) rstd gamma + beta; no gamma: 1, no
/// beta: 0.
struct NormArgs {
  DType dtype = DType::float32;            // of x, y, dy, dx
  DType parameter_dtype = DType::float32;  // of gamma, beta, dgamma, dbeta
  bool centered = true;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  double epsilon = 0.0;
};
std::int64_t norm_workspace(const NormArgs& args);
/// gamma, beta may be null; mean is null unless centered.
void norm(const NormArgs& args, const void* x, const void* gamma, const void* beta, void* y,
          void* mean, void* rstd, void* workspace, const CpuDevice& device);

struct NormGradientPointers {
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* mean = nullptr;  // null unless centered
  const void* rstd = nullptr;
  const void* gamma = nullptr;  // null: 1
  void* dx = nullptr;
  void* dgamma = nullptr;  // null: not wanted
  void* dbeta = nullptr;   // null: not wanted
};
std::int64_t norm_gradient_workspace(const NormArgs& args);
/// With g = dy gamma and xhat = (x - mean) rstd: dx = rstd (g - mean(g) - xhat mean(g xhat)),
/// without mean(g) unless centered; dgamma = sum over rows of dy xhat, dbeta = sum over rows of dy:
/// summed per block of rows, then over blocks in order, so that the threads do not matter.
void norm_gradient(const NormArgs& args, const NormGradientPointers& pointers, void* workspace,
                   const CpuDevice& device);

}  // namespace tessera::kernels
