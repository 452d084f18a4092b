// Splits loops over the threads of a rank: static, contiguous, and only when there is enough to do.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "kernels/device.h"

namespace tessera::kernels {

/// Elements of work below which waking the other threads costs more than it saves.
inline constexpr std::int64_t kParallelElements = 32768;

/// Part `index` of `parts` of 0..count-1, balanced: the first parts are one larger.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
inline Range part_of(std::int64_t count, std::int64_t parts, std::int64_t index) {
  const std::int64_t size = count / parts;
  const std::int64_t larger = count % parts;
  const std::int64_t begin = index * size + std::min(index, larger);
  return {begin, begin + size + (index < larger ? 1 : 0)};
}

/// Threads for work of `cost` units when one should get at least `least` of them: one or all. Teams
/// of changing sizes are slow: the OpenMP runtime then ends and starts threads.
inline int threads_for(const CpuDevice& device, std::int64_t cost, std::int64_t least) {
  return cost / least >= 2 ? std::max(device.threads, 1) : 1;
}

/// Calls work(begin, end) on `threads` consecutive ranges that cover 0..count-1, but for empty
/// ones. Ranges depend on the number of threads: `work` must treat every index by itself. The
/// caller's thread takes part; with one thread nothing but the call happens.
template <typename Work>
void parallel_ranges(int threads, std::int64_t count, const Work& work) {
  if (count <= 0) return;
  if (threads <= 1 || count == 1) {
    work(std::int64_t{0}, count);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    // The runtime may give fewer threads than asked for.
    const Range range = part_of(count, omp_get_num_threads(), omp_get_thread_num());
    if (range.begin < range.end) work(range.begin, range.end);
  }
}

/// The same for rows: `elements_per_row` weighs a row.
template <typename Work>
void parallel_rows(std::int64_t rows, std::int64_t elements_per_row, int threads,
                   const Work& work) {
  parallel_ranges(rows * elements_per_row < kParallelElements ? 1 : threads, rows, work);
}

}  // namespace tessera::kernels
