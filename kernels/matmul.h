// Batched matrix products c = activation(a b + bias).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "kernels/device.h"
#include "kernels/map.h"

namespace tessera::kernels {

/// One matrix, or a batch of them, in a dense tensor of `elements` elements that its strides (in
/// elements) address in any order.
struct MatmulOperand {
  DType dtype = DType::float32;
  std::int64_t elements = 0;
  std::int64_t row = 0;             // stride between rows
  std::int64_t column = 0;          // stride between columns
  std::vector<std::int64_t> batch;  // strides of the batch dimensions
};

/// a [batch..., m, k], b [batch..., k, n], bias [n], c [batch..., m, n]. Sums are kept in float32;
/// in float64 when an operand or the result is float64 or an integer. Sizes may be 0 (k: sums are
/// 0).
struct MatmulArgs {
  std::vector<std::int64_t> batch;
  std::int64_t m = 1;
  std::int64_t n = 1;
  std::int64_t k = 1;
  MatmulOperand a;
  MatmulOperand b;
  MatmulOperand c;                    // its rows lie dense (column 1)
  std::optional<DType> bias;          // its dtype, where there is one
  std::optional<MapCode> activation;  // one that can_fuse_activation
};

/// Activations that the product applies while its result is in registers.
bool can_fuse_activation(MapCode code);

using MatmulKernel =
    std::function<void(const void* a, const void* b, const void* bias, void* c, void* workspace)>;

/// Memory for operands whose dtype has no product of its own: the same on every processor. What the
/// library needs beyond that is shared by all products of a thread.
std::int64_t matmul_workspace_bytes(const MatmulArgs& args);

/// Chooses between own loops (tiny products, float64) and the library, with `device.threads`
/// threads. Kernels are not reentrant. Throws internal when strides do not fit.
MatmulKernel prepare_matmul(const MatmulArgs& args, const CpuDevice& device);

}  // namespace tessera::kernels
