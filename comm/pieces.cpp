// Ranges are the same for every number of threads, and elements do not mix: results do not depend
// on it.
#include "comm/pieces.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "comm/segment.h"

namespace tessera::comm {
namespace {

/// Sums are made and copied on in ranges that stay in the first-level cache.
constexpr std::int64_t kSumBytes = std::int64_t{8} << 10U;
/// What one thread takes at a time: a start of a parallel region costs as much as copying some 32
/// KiB.
constexpr std::int64_t kShareBytes = std::int64_t{64} << 10U;

/// Calls run(begin, end) for ranges that cover 0..bytes.
template <class Run>
void share_out(std::int64_t bytes, const Run& run) {
  const std::int64_t shares = (bytes + kShareBytes - 1) / kShareBytes;
  const int threads = static_cast<int>(std::min<std::int64_t>(shares / 2, omp_get_max_threads()));
  if (threads <= 1) return run(std::int64_t{0}, bytes);
#pragma omp parallel for schedule(static) num_threads(threads)
  for (std::int64_t share = 0; share < shares; ++share) {
    run(share * kShareBytes, std::min((share + 1) * kShareBytes, bytes));
  }
}

}  // namespace

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes <= 0) return;
  share_out(bytes, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

void move_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<std::size_t>(bytes));
}

std::int64_t largest(std::span<const std::int64_t> counts) {
  return *std::max_element(counts.begin(), counts.end());
}

std::int64_t sum_before(std::span<const std::int64_t> counts, int member) {
  return std::accumulate(counts.begin(), counts.begin() + member, std::int64_t{0});
}

void sum_pieces(const PieceSum& sum, std::span<const void* const> terms) {
  share_out(sum.count * sum.size, [&](std::int64_t begin, std::int64_t end) {
    const void* here[Segment::kMostMembers];
    for (std::int64_t at = begin; at < end; at += kSumBytes) {
      const std::int64_t bytes = std::min(kSumBytes, end - at);
      for (std::size_t i = 0; i < terms.size(); ++i) {
        here[i] = static_cast<const std::byte*>(terms[i]) + at;
      }
      sum.summation(sum.result + at, here, static_cast<int>(terms.size()), bytes / sum.size);
      if (sum.copy != nullptr) {
        std::memcpy(sum.copy + at, sum.result + at, static_cast<std::size_t>(bytes));
      }
    }
  });
}

}  // namespace tessera::comm
