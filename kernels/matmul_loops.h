// Matrix products by own vector loops: tiny ones, and those in float64.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/matmul.h"
#include "kernels/parallel.h"
#include "kernels/vector.h"

namespace tessera::kernels {

/// Number of matrices in a batch.
inline std::int64_t batch_size(const MatmulArgs& args) {
  std::int64_t product = 1;
  for (const std::int64_t size : args.batch) product *= size;
  return product;
}

/// A product in T; all operands are of type T.
template <typename T>
class LoopMatmul {
 public:
  LoopMatmul(const MatmulArgs& args, const CpuDevice& device) : args_(args) {
    const TypedLoops<T>& loops = vector_loops().typed<T>();
    gemm_ = loops.gemm;
    add_ = loops.map[static_cast<std::size_t>(MapCode::add)][0];
    if (args.activation) activation_ = loops.map[static_cast<std::size_t>(*args.activation)][0];
    batches_ = batch_size(args);
    threads_ = threads_for(device, batches_ * args.m * args.n * args.k, 65536);
  }

  void operator()(const void* a, const void* b, const void* bias, void* c) const {
    if (args_.n == 0) return;
    if (threads_ == 1) {
      for (std::int64_t batch = 0; batch < batches_; ++batch) run(a, b, bias, c, batch, 0, args_.m);
      return;
    }
    // Rows of all batches are shared out; a range may begin and end within a batch.
    parallel_ranges(threads_, batches_ * args_.m, [&](std::int64_t begin, std::int64_t end) {
      while (begin < end) {
        const std::int64_t batch = begin / args_.m;
        const std::int64_t row = begin % args_.m;
        const std::int64_t rows = std::min(args_.m - row, end - begin);
        run(a, b, bias, c, batch, row, rows);
        begin += rows;
      }
    });
  }

 private:
  std::int64_t offset_of(const MatmulOperand& operand, std::int64_t batch) const {
    std::int64_t offset = 0;
    for (std::size_t dim = args_.batch.size(); dim-- > 0;) {
      offset += batch % args_.batch[dim] * operand.batch[dim];
      batch /= args_.batch[dim];
    }
    return offset;
  }

  void run(const void* a, const void* b, const void* bias, void* c, std::int64_t batch,
           std::int64_t row, std::int64_t rows) const {
    const T* from_a = static_cast<const T*>(a) + offset_of(args_.a, batch) + row * args_.a.row;
    const T* from_b = static_cast<const T*>(b) + offset_of(args_.b, batch);
    T* to = static_cast<T*>(c) + offset_of(args_.c, batch) + row * args_.c.row;
    gemm_(from_a, from_b, to,
          {rows, args_.n, args_.k, args_.a.row, args_.a.column, args_.b.row, args_.b.column,
           args_.c.row, args_.c.column});
    if (bias == nullptr && activation_ == nullptr) return;
    for (std::int64_t i = 0; i < rows; ++i) {
      T* line = to + i * args_.c.row;
      if (bias != nullptr) add_(line, static_cast<const T*>(bias), nullptr, line, args_.n);
      if (activation_ != nullptr) activation_(line, nullptr, nullptr, line, args_.n);
    }
  }

  MatmulArgs args_;
  GemmLoop<T> gemm_;
  MapLoop<T> add_;
  MapLoop<T> activation_ = nullptr;
  std::int64_t batches_ = 1;
  int threads_ = 1;
};

}  // namespace tessera::kernels
