// Softmax and cross-entropy on the CPU: rows over threads, vector loops within rows.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/index.h"
#include "kernels/parallel.h"
#include "kernels/rows.h"
#include "kernels/softmax.h"

namespace tessera::kernels {
namespace {

/// An exponential costs about this many simple elements.
constexpr std::int64_t kExponentialWeight = 4;
/// Rows whose scales are worked out at a time in the gradient of cross-entropy.
constexpr std::int64_t kBatch = 64;

template <typename T>
void cross_entropy_rows(const CrossEntropyArgs& args, const T* logits, const void* labels,
                        SumOf<T>* loss, SumOf<T>* largest, SumOf<T>* log_sum, std::int64_t begin,
                        std::int64_t end) {
  row_loops().typed<T>().log_sum_exp(logits + begin * args.columns, largest + begin,
                                     log_sum + begin, end - begin, args.columns);
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t label = index_at(labels, args.labels_dtype, row);
    const bool valid = label >= 0 && label < args.columns;
    loss[row] = valid ? (largest[row] - widen(logits[row * args.columns + label])) + log_sum[row]
                      : SumOf<T>{0};
  }
}

template <typename T>
void gradient_rows(const CrossEntropyArgs& args, const T* logits, const void* labels,
                   const SumOf<T>* largest, const SumOf<T>* log_sum, const SumOf<T>* dloss,
                   T* dlogits, std::int64_t begin, std::int64_t end) {
  std::array<SumOf<T>, kBatch> scales;
  for (std::int64_t first = begin; first < end; first += kBatch) {
    const std::int64_t count = std::min(kBatch, end - first);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t label = index_at(labels, args.labels_dtype, first + i);
      const bool valid = label >= 0 && label < args.columns;
      scales[static_cast<std::size_t>(i)] = valid ? dloss[first + i] : SumOf<T>{0};
    }
    row_loops().typed<T>().scaled_probabilities(
        logits + first * args.columns, largest + first, log_sum + first, scales.data(),
        dlogits + first * args.columns, count, args.columns);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t label = index_at(labels, args.labels_dtype, first + i);
      if (label < 0 || label >= args.columns) continue;
      // From the logit again: what was stored may have been rounded to 16 bits, and 1 is taken from
      // it.
      const std::int64_t row = first + i;
      const std::int64_t at = row * args.columns + label;
      const SumOf<T> probability = std::exp(widen(logits[at]) - (largest[row] + log_sum[row]));
      dlogits[at] = narrow<T>((probability - 1) * scales[static_cast<std::size_t>(i)]);
    }
  }
}

}  // namespace

void softmax(const SoftmaxArgs& args, const void* x, void* y, const CpuDevice& device) {
  if (args.columns == 0) return;
  with_floating(args.dtype, [&](auto element) {
    using T = decltype(element);
    const TypedRowLoops<T>& loops = row_loops().typed<T>();
    const auto loop = args.logarithm ? loops.log_softmax : loops.softmax;
    parallel_rows(args.rows, args.columns * kExponentialWeight, device.threads,
                  [&](std::int64_t begin, std::int64_t end) {
                    loop(static_cast<const T*>(x) + begin * args.columns,
                         static_cast<T*>(y) + begin * args.columns, end - begin, args.columns);
                  });
  });
}

void softmax_gradient(const SoftmaxArgs& args, const void* y, const void* dy, void* dx,
                      const CpuDevice& device) {
  if (args.columns == 0) return;
  with_floating(args.dtype, [&](auto element) {
    using T = decltype(element);
    const TypedRowLoops<T>& loops = row_loops().typed<T>();
    const auto loop = args.logarithm ? loops.log_softmax_gradient : loops.softmax_gradient;
    parallel_rows(args.rows, args.columns, device.threads,
                  [&](std::int64_t begin, std::int64_t end) {
                    const std::int64_t offset = begin * args.columns;
                    loop(static_cast<const T*>(y) + offset, static_cast<const T*>(dy) + offset,
                         static_cast<T*>(dx) + offset, end - begin, args.columns);
                  });
  });
}

void sparse_cross_entropy(const CrossEntropyArgs& args, const void* logits, const void* labels,
                          void* loss, void* largest, void* log_sum, const CpuDevice& device) {
  with_floating(args.dtype, [&](auto element) {
    using T = decltype(element);
    using S = SumOf<T>;
    parallel_rows(args.rows, args.columns * kExponentialWeight, device.threads,
                  [&](std::int64_t begin, std::int64_t end) {
                    cross_entropy_rows(args, static_cast<const T*>(logits), labels,
                                       static_cast<S*>(loss), static_cast<S*>(largest),
                                       static_cast<S*>(log_sum), begin, end);
                  });
  });
}

void sparse_cross_entropy_gradient(const CrossEntropyArgs& args, const void* logits,
                                   const void* labels, const void* largest, const void* log_sum,
                                   const void* dloss, void* dlogits, const CpuDevice& device) {
  with_floating(args.dtype, [&](auto element) {
    using T = decltype(element);
    using S = SumOf<T>;
    parallel_rows(args.rows, args.columns * kExponentialWeight, device.threads,
                  [&](std::int64_t begin, std::int64_t end) {
                    gradient_rows(args, static_cast<const T*>(logits), labels,
                                  static_cast<const S*>(largest), static_cast<const S*>(log_sum),
                                  static_cast<const S*>(dloss), static_cast<T*>(dlogits), begin,
                                  end);
                  });
  });
}

}  // namespace tessera::kernels
