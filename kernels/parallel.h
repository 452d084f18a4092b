// Splits rows over the threads of a rank, but only when there is enough to do.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera::kernels {

/// Elements of work below which waking the other threads costs more than it saves.
inline constexpr std::int64_t kParallelElements = 32768;

/// Calls `work(begin, end)` on consecutive ranges that cover 0..rows-1. `elements_per_row` weighs a
/// row. Ranges depend on the number of threads: `work` must treat every row by itself.
template <typename Work>
void parallel_rows(std::int64_t rows, std::int64_t elements_per_row, int threads,
                   const Work& work) {
  const std::int64_t parts = std::min<std::int64_t>(threads, rows);
  if (parts <= 1 || rows * elements_per_row < kParallelElements) {
    if (rows > 0) work(std::int64_t{0}, rows);
    return;
  }
#pragma omp parallel for schedule(static, 1) num_threads(static_cast <int>(parts))
  for (std::int64_t part = 0; part < parts; ++part) {
    work(rows * part / parts, rows * (part + 1) / parts);
  }
}

}  // namespace tessera::kernels
