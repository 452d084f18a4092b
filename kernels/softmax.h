// Softmax and its logarithm along a dense last dimension, and cross-entropy with integer labels.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/device.h"

namespace tessera::kernels {

/// Rows [rows, columns] of a floating dtype; sums in float32, in float64 for float64.
struct SoftmaxArgs {
  DType dtype = DType::float32;
  bool logarithm = false;  // log(softmax(x)) instead of softmax(x)
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
void softmax(const SoftmaxArgs& args, const void* x, void* y, const CpuDevice& device);
/// dx from y (the result of `softmax`) and dy.
void softmax_gradient(const SoftmaxArgs& args, const void* y, const void* dy, void* dx,
                      const CpuDevice& device);

/// logits [rows, columns]; labels, loss, largest, log_sum, dloss [rows]. All but logits and labels
/// are float32, or float64 for float64 logits. Labels outside 0..columns-1 give loss 0 and gradient
/// 0.
struct CrossEntropyArgs {
  DType dtype = DType::float32;  // of the logits
  DType labels_dtype = DType::int32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
/// loss = largest + log_sum - logits[label], with largest = max(logits) and log_sum =
/// log(sum(exp(logits - largest))).
void sparse_cross_entropy(const CrossEntropyArgs& args, const void* logits, const void* labels,
                          void* loss, void* largest, void* log_sum, const CpuDevice& device);
/// dlogits = (exp(logits - largest - log_sum) - [column is label]) dloss
void sparse_cross_entropy_gradient(const CrossEntropyArgs& args, const void* logits,
                                   const void* labels, const void* largest, const void* log_sum,
                                   const void* dloss, void* dlogits, const CpuDevice& device);

}  // namespace tessera::kernels
