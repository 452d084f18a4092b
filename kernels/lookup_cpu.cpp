// Look-ups by id on the CPU.
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/dispatch.h"
#include "kernels/index.h"
#include "kernels/lookup.h"
#include "kernels/parallel.h"

namespace tessera::kernels {
namespace {

/// Columns summed at a time for types that are too narrow to sum in place.
constexpr std::int64_t kChunk = 256;

/// Positions ordered by id, ties by position: `starts[v]`..`starts[v + 1]` is row v's part of
/// `order`.
struct Segments {
  std::int64_t* starts;  // rows + 1
  std::int64_t* order;   // ids
};

Segments sort_by_id(const EmbeddingGradientArgs& args, const void* ids, void* workspace) {
  Segments segments{static_cast<std::int64_t*>(workspace), nullptr};
  segments.order = segments.starts + args.rows + 1;
  std::fill_n(segments.starts, args.rows + 1, std::int64_t{0});
  const auto row_of = [&](std::int64_t n) {
    const std::int64_t row = index_at(ids, args.ids_dtype, n) - args.first;
    return row >= 0 && row < args.rows ? row : std::int64_t{-1};
  };
  for (std::int64_t n = 0; n < args.ids; ++n) {
    const std::int64_t row = row_of(n);
    if (row >= 0) ++segments.starts[row];
  }
  std::int64_t total = 0;
  for (std::int64_t row = 0; row <= args.rows; ++row) {
    total += segments.starts[row];
    segments.starts[row] = total;
  }
  // Filling each segment from its end leaves `starts` at the segments' beginnings.
  for (std::int64_t n = args.ids; n-- > 0;) {
    const std::int64_t row = row_of(n);
    if (row >= 0) segments.order[--segments.starts[row]] = n;
  }
  return segments;
}

template <typename T>
void sum_segments(const EmbeddingGradientArgs& args, const Segments& segments, const T* dy, T* out,
                  const CpuDevice& device) {
  using Sum = SumOf<T>;
  const std::int64_t chunks = (args.columns + kChunk - 1) / kChunk;
  const std::int64_t items = args.rows * chunks;
  const auto sum_item = [&](std::int64_t item) {
    const std::int64_t row = item / chunks;
    const std::int64_t column = item % chunks * kChunk;
    const std::int64_t width = std::min(kChunk, args.columns - column);
    T* to = out + row * args.columns + column;
    if (segments.starts[row] == segments.starts[row + 1]) {
      std::fill_n(to, width, T{});
      return;
    }
    std::array<Sum, kChunk> sums;
    std::fill_n(sums.begin(), width, Sum{0});
    for (std::int64_t i = segments.starts[row]; i < segments.starts[row + 1]; ++i) {
      const T* from = dy + segments.order[i] * args.columns + column;
      for (std::int64_t c = 0; c < width; ++c) sums[static_cast<std::size_t>(c)] += widen(from[c]);
    }
    for (std::int64_t c = 0; c < width; ++c) {
      to[c] = narrow<T>(sums[static_cast<std::size_t>(c)]);
    }
  };
  if (device.threads <= 1 || (args.ids + args.rows) * args.columns < kParallelElements) {
    for (std::int64_t item = 0; item < items; ++item) sum_item(item);
    return;
  }
  // Dynamic: frequent ids make long segments.
#pragma omp parallel for schedule(dynamic, 64) num_threads(device.threads)
  for (std::int64_t item = 0; item < items; ++item) sum_item(item);
}

template <typename T>
void pick_typed(const PickArgs& args, const void* x, const void* ids, void* out,
                const CpuDevice& device) {
  const auto* from = static_cast<const T*>(x);
  auto* to = static_cast<T*>(out);
  parallel_rows(args.rows, 1, device.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t column = index_at(ids, args.ids_dtype, row) - args.first;
      const bool here = column >= 0 && column < args.columns;
      to[row] = here ? from[row * args.columns + column] : T{0};
    }
  });
}

template <typename T>
void spread_typed(const PickArgs& args, const void* ids, const void* dy, void* out,
                  const CpuDevice& device) {
  const auto* from = static_cast<const T*>(dy);
  auto* to = static_cast<T*>(out);
  parallel_rows(args.rows, args.columns, device.threads, [&](std::int64_t begin, std::int64_t end) {
    std::fill(to + begin * args.columns, to + end * args.columns, T{0});
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t column = index_at(ids, args.ids_dtype, row) - args.first;
      if (column >= 0 && column < args.columns) to[row * args.columns + column] = from[row];
    }
  });
}

}  // namespace

void embedding(const EmbeddingArgs& args, const void* ids, const void* table, void* out,
               const CpuDevice& device) {
  if (args.row_bytes == 0) return;
  const auto* from = static_cast<const std::byte*>(table);
  auto* to = static_cast<std::byte*>(out);
  const auto weight = static_cast<std::int64_t>(args.row_bytes / 4 + 1);
  parallel_rows(args.ids, weight, device.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t row = index_at(ids, args.ids_dtype, n) - args.first;
      std::byte* target = to + static_cast<std::size_t>(n) * args.row_bytes;
      if (row >= 0 && row < args.rows) {
        std::memcpy(target, from + static_cast<std::size_t>(row) * args.row_bytes, args.row_bytes);
      } else {
        std::memset(target, 0, args.row_bytes);
      }
    }
  });
}

std::int64_t embedding_gradient_workspace(const EmbeddingGradientArgs& args) {
  return (args.rows + 1 + args.ids) * static_cast<std::int64_t>(sizeof(std::int64_t));
}

void embedding_gradient(const EmbeddingGradientArgs& args, const void* ids, const void* dy,
                        void* out, void* workspace, const CpuDevice& device) {
  if (args.rows * args.columns == 0) return;
  const Segments segments = sort_by_id(args, ids, workspace);
  with_floating(args.dtype, [&](auto element) {
    using T = decltype(element);
    sum_segments(args, segments, static_cast<const T*>(dy), static_cast<T*>(out), device);
  });
}

void pick(const PickArgs& args, const void* x, const void* ids, void* out,
          const CpuDevice& device) {
  with_width(args.element_size,
             [&](auto element) { pick_typed<decltype(element)>(args, x, ids, out, device); });
}

void pick_gradient(const PickArgs& args, const void* ids, const void* dy, void* out,
                   const CpuDevice& device) {
  if (args.rows * args.columns == 0) return;
  with_width(args.element_size,
             [&](auto element) { spread_typed<decltype(element)>(args, ids, dy, out, device); });
}

}  // namespace tessera::kernels
