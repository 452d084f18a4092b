// Index of the largest or smallest element on the CPU.
#include <algorithm>
#include <array>
#include <cstddef>

#include "kernels/argmax.h"
#include "kernels/parallel.h"
#include "kernels/vector.h"

namespace tessera::kernels {
namespace {

constexpr std::int64_t kTile = 512;

/// Does `a` come before `b`, the best so far?
template <typename T>
bool beats(T a, T b, bool smallest) {
  if (a != a) return b == b;
  return smallest ? a < b : a > b;
}

template <typename T>
class ArgmaxRun {
 public:
  ArgmaxRun(const ArgmaxArgs& args, const CpuDevice& device)
      : args_(args),
        load_(vector_loops().convert[static_cast<std::size_t>(args.dtype)][static_cast<std::size_t>(
            std::is_same_v<T, float> ? DType::float32 : DType::float64)]),
        reduce_(vector_loops().typed<T>().reduce[static_cast<std::size_t>(
            args.smallest ? ReduceCode::min : ReduceCode::max)]),
        element_(static_cast<std::int64_t>(size_of(args.dtype))),
        tiles_((args.inner + kTile - 1) / kTile),
        threads_(threads_for(device, args.outer * args.size * args.inner, 65536)) {}

  void operator()(const void* input, std::int32_t* output) const {
    parallel_ranges(threads_, args_.outer * tiles_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t place = begin; place < end; ++place) {
        const auto* from = static_cast<const std::byte*>(input);
        if (args_.inner == 1) {
          output[place] = along_row(from + place * args_.size * element_);
        } else {
          along_columns(from, place / tiles_, place % tiles_ * kTile, output);
        }
      }
    });
  }

 private:
  std::int32_t along_row(const std::byte* row) const {
    std::array<T, kTile> tile;
    T best{};
    std::int64_t best_tile = -1;
    for (std::int64_t begin = 0; begin < args_.size; begin += kTile) {
      const std::int64_t n = std::min(kTile, args_.size - begin);
      load_(row + begin * element_, tile.data(), n);
      const auto found = static_cast<T>(reduce_(tile.data(), n));
      if (best_tile < 0 || beats(found, best, args_.smallest)) {
        best = found;
        best_tile = begin;
      }
    }
    const std::int64_t n = std::min(kTile, args_.size - best_tile);
    load_(row + best_tile * element_, tile.data(), n);
    const auto is_best = [best](T value) {
      return value == best || (best != best && value != value);
    };
    return static_cast<std::int32_t>(
        best_tile + (std::find_if(tile.begin(), tile.begin() + n, is_best) - tile.begin()));
  }

  void along_columns(const std::byte* from, std::int64_t outer, std::int64_t column,
                     std::int32_t* output) const {
    const std::int64_t n = std::min(kTile, args_.inner - column);
    std::array<T, kTile> best;
    std::array<T, kTile> line;
    std::int32_t* index = output + outer * args_.inner + column;
    for (std::int64_t i = 0; i < args_.size; ++i) {
      const std::int64_t offset = (outer * args_.size + i) * args_.inner + column;
      load_(from + offset * element_, i == 0 ? best.data() : line.data(), n);
      for (std::int64_t j = 0; j < n; ++j) {
        const auto at = static_cast<std::size_t>(j);
        if (i == 0) {
          index[j] = 0;
        } else if (beats(line[at], best[at], args_.smallest)) {
          best[at] = line[at];
          index[j] = static_cast<std::int32_t>(i);
        }
      }
    }
  }

  ArgmaxArgs args_;
  ConvertLoop load_;
  ReduceLoop<T> reduce_;
  std::int64_t element_;
  std::int64_t tiles_;
  int threads_;
};

}  // namespace

ArgmaxKernel prepare_argmax(const ArgmaxArgs& args, const CpuDevice& device) {
  const bool wide =
      args.dtype == DType::float64 || args.dtype == DType::int32 || args.dtype == DType::int64;
  if (wide) return ArgmaxRun<double>(args, device);
  return ArgmaxRun<float>(args, device);
}

}  // namespace tessera::kernels
