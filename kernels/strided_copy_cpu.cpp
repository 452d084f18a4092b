// Strided copies on the CPU: whole runs where neighbours stay neighbours, square tiles where two
// dimensions change places.
#include <algorithm>
#include <cstring>

#include "kernels/parallel.h"
#include "kernels/strided_copy.h"

namespace tessera::kernels {
namespace {

/// Side of a tile: several neighbouring cache lines on both sides, as reading single lines far
/// apart defeats prefetching, and at most 16 KiB in all.
template <typename T>
constexpr std::int64_t kTile = sizeof(T) <= 4 ? 64 : 32;

/// Walks the outer dimensions of a copy in order and keeps the offsets of the current one.
class Walk {
 public:
  /// The `dims` outermost dimensions, starting at flat index `start`. Dimension `skip` stays at 0
  /// (-1: none).
  Walk(const StridedCopy& copy, std::size_t dims, std::size_t skip, std::int64_t start)
      : copy_(copy), dims_(dims), skip_(skip) {
    for (std::size_t dim = dims_; dim-- > 0;) {
      if (dim == skip_) continue;
      index_[dim] = start % copy_.size[dim];
      start /= copy_.size[dim];
      in_ += index_[dim] * copy_.in_stride[dim];
      out_ += index_[dim] * copy_.out_stride[dim];
    }
  }

  std::int64_t in() const { return in_; }
  std::int64_t out() const { return out_; }

  void next() {
    for (std::size_t dim = dims_; dim-- > 0;) {
      if (dim == skip_) continue;
      in_ += copy_.in_stride[dim];
      out_ += copy_.out_stride[dim];
      if (++index_[dim] < copy_.size[dim]) return;
      in_ -= copy_.size[dim] * copy_.in_stride[dim];
      out_ -= copy_.size[dim] * copy_.out_stride[dim];
      index_[dim] = 0;
    }
  }

 private:
  const StridedCopy& copy_;
  std::size_t dims_;
  std::size_t skip_;
  std::array<std::int64_t, Shape::kMaxRank> index_{};
  std::int64_t in_ = 0;
  std::int64_t out_ = 0;
};

constexpr std::size_t kNoDim = Shape::kMaxRank;

template <typename T>
void copy_rows(const StridedCopy& copy, const T* in, T* out, const CpuDevice& device) {
  const std::size_t last = copy.rank - 1;
  const std::int64_t length = copy.size[last];
  const std::int64_t in_step = copy.in_stride[last];
  const std::int64_t out_step = copy.out_stride[last];
  std::int64_t rows = 1;
  for (std::size_t dim = 0; dim < last; ++dim) rows *= copy.size[dim];
  parallel_rows(rows, length, device.threads, [&](std::int64_t begin, std::int64_t end) {
    Walk walk(copy, last, kNoDim, begin);
    for (std::int64_t row = begin; row < end; ++row, walk.next()) {
      const T* from = in + walk.in();
      T* to = out + walk.out();
      if (in_step == 1 && out_step == 1) {
        std::memcpy(to, from, static_cast<std::size_t>(length) * sizeof(T));
      } else if (in_step == 0 && out_step == 1) {
        std::fill_n(to, length, *from);
      } else {
        for (std::int64_t i = 0; i < length; ++i) to[i * out_step] = from[i * in_step];
      }
    }
  });
}

/// to[line, column] = from[column, line], by way of a small square: every cache line is read and
/// written whole, once, even where strides are powers of two and lines crowd each other out of the
/// cache.
template <typename T>
void copy_tile(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride,
               std::int64_t lines, std::int64_t columns) {
  T tile[kTile<T>][kTile<T>];
  for (std::int64_t column = 0; column < columns; ++column) {
    std::memcpy(tile[column], from + column * from_stride,
                static_cast<std::size_t>(lines) * sizeof(T));
  }
  for (std::int64_t line = 0; line < lines; ++line) {
    T* target = to + line * to_stride;
    for (std::int64_t column = 0; column < columns; ++column) target[column] = tile[column][line];
  }
}

/// The last dimension is dense in the output, dimension `across` is dense in the input.
template <typename T>
void copy_tiles(const StridedCopy& copy, std::size_t across, const T* in, T* out,
                const CpuDevice& device) {
  const std::size_t last = copy.rank - 1;
  const std::int64_t columns = copy.size[last];
  const std::int64_t lines = copy.size[across];
  constexpr std::int64_t kSide = kTile<T>;
  const std::int64_t bands = (lines + kSide - 1) / kSide;
  std::int64_t outer = bands;
  for (std::size_t dim = 0; dim < last; ++dim) outer *= dim == across ? 1 : copy.size[dim];
  parallel_rows(outer, kSide * columns, device.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const Walk walk(copy, last, across, item / bands);
      const std::int64_t first = item % bands * kSide;
      const std::int64_t count = std::min(kSide, lines - first);
      const T* from = in + walk.in() + first;
      T* to = out + walk.out() + first * copy.out_stride[across];
      for (std::int64_t column = 0; column < columns; column += kSide) {
        copy_tile(from + column * copy.in_stride[last], copy.in_stride[last], to + column,
                  copy.out_stride[across], count, std::min(kSide, columns - column));
      }
    }
  });
}

template <typename T>
void copy_typed(const StridedCopy& copy, const void* in, void* out, const CpuDevice& device) {
  const auto* from = static_cast<const T*>(in);
  auto* to = static_cast<T*>(out);
  if (copy.rank == 0) {
    *to = *from;
    return;
  }
  const std::size_t last = copy.rank - 1;
  if (copy.out_stride[last] == 1 && copy.in_stride[last] > 1) {
    for (std::size_t dim = 0; dim < last; ++dim) {
      if (copy.in_stride[dim] == 1) return copy_tiles(copy, dim, from, to, device);
    }
  }
  copy_rows(copy, from, to, device);
}

}  // namespace

StridedCopy plan_strided_copy(const Shape& size, const Shape& in_strides, const Shape& out_strides,
                              std::size_t element_size) {
  StridedCopy copy;
  copy.element_size = element_size;
  for (std::size_t dim = 0; dim < size.rank(); ++dim) {
    if (size[dim] == 1) continue;
    if (copy.rank > 0) {
      const std::size_t outer = copy.rank - 1;
      if (copy.in_stride[outer] == size[dim] * in_strides[dim] &&
          copy.out_stride[outer] == size[dim] * out_strides[dim]) {
        copy.size[outer] *= size[dim];
        copy.in_stride[outer] = in_strides[dim];
        copy.out_stride[outer] = out_strides[dim];
        continue;
      }
    }
    copy.size[copy.rank] = size[dim];
    copy.in_stride[copy.rank] = in_strides[dim];
    copy.out_stride[copy.rank] = out_strides[dim];
    ++copy.rank;
  }
  return copy;
}

void strided_copy(const StridedCopy& copy, const void* in, void* out, const CpuDevice& device) {
  for (std::size_t dim = 0; dim < copy.rank; ++dim) {
    if (copy.size[dim] == 0) return;
  }
  switch (copy.element_size) {
    case 1:
      return copy_typed<std::uint8_t>(copy, in, out, device);
    case 2:
      return copy_typed<std::uint16_t>(copy, in, out, device);
    case 4:
      return copy_typed<std::uint32_t>(copy, in, out, device);
    default:
      return copy_typed<std::uint64_t>(copy, in, out, device);
  }
}

}  // namespace tessera::kernels
