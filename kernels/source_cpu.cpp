// Constants, indices and random numbers on the CPU.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/philox.h"
#include "kernels/parallel.h"
#include "kernels/source.h"
#include "kernels/vector.h"

namespace tessera::kernels {
namespace {

constexpr std::int64_t kTile = 1024;

ConvertLoop converter(DType from, DType to) {
  return vector_loops().convert[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

template <typename Element>
void fill(void* output, std::int64_t begin, std::int64_t end, const std::byte* bits) {
  Element element;
  std::memcpy(&element, bits, sizeof(Element));
  auto* to = static_cast<Element*>(output);
  std::fill(to + begin, to + end, element);
}

/// Runs of elements of a box that are neighbours in the whole tensor.
struct Runs {
  std::int64_t length = 1;
  std::int64_t count = 1;
  Shape sizes;    // of the box's dimensions outside a run
  Shape strides;  // of those, in the whole tensor
  std::int64_t first = 0;

  Runs(const Shape& global, const Box& box) {
    const Shape all = global.strides();
    for (std::size_t dim = 0; dim < global.rank(); ++dim) first += box.begin[dim] * all[dim];
    std::size_t outer = global.rank();
    bool whole = true;
    while (outer > 0 && whole) {
      --outer;
      length *= box.size[outer];
      whole = box.size[outer] == global[outer];
    }
    for (std::size_t dim = 0; dim < outer; ++dim) {
      sizes.push_back(box.size[dim]);
      strides.push_back(all[dim]);
      count *= box.size[dim];
    }
  }

  /// Global index of the first element of a run.
  std::int64_t begin_of(std::int64_t run) const {
    std::int64_t index = first;
    for (std::size_t dim = sizes.rank(); dim-- > 0;) {
      index += run % sizes[dim] * strides[dim];
      run /= sizes[dim];
    }
    return index;
  }
};

/// `n` draws from global index `index` on.
void draw(Distribution distribution, std::uint64_t key, std::uint64_t step, std::uint64_t index,
          float* out, std::int64_t n) {
  if (distribution == Distribution::uniform) {
    vector_loops().uniform(key, step, index, out, n);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = random_normal(key, step, index + static_cast<std::uint64_t>(i));
  }
}

}  // namespace

SourceKernel prepare_full(std::int64_t elements, double value, DType dtype,
                          const CpuDevice& device) {
  std::array<std::byte, 8> bits{};
  converter(DType::float64, dtype)(&value, bits.data(), 1);
  const std::size_t size = size_of(dtype);
  const auto fill_range = size == 8   ? &fill<std::uint64_t>
                          : size == 4 ? &fill<std::uint32_t>
                          : size == 2 ? &fill<std::uint16_t>
                                      : &fill<std::uint8_t>;
  const int threads = threads_for(device, elements, 131072);
  return [=](void* output, std::uint64_t /*step*/) {
    parallel_ranges(threads, elements, [&](std::int64_t begin, std::int64_t end) {
      fill_range(output, begin, end, bits.data());
    });
  };
}

SourceKernel prepare_iota(const Box& box, std::size_t dim, DType dtype, const CpuDevice& device) {
  std::int64_t before = 1;
  std::int64_t after = 1;
  for (std::size_t i = 0; i < dim; ++i) before *= box.size[i];
  for (std::size_t i = dim + 1; i < box.size.rank(); ++i) after *= box.size[i];
  const std::int64_t size = box.size[dim];
  const std::int64_t first = box.begin[dim];
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  const ConvertLoop store = converter(DType::int64, dtype);
  const int threads = threads_for(device, before * size * after, 65536);
  return [=](void* output, std::uint64_t /*step*/) {
    auto* to = static_cast<std::byte*>(output);
    parallel_ranges(threads, before * size * after, [&](std::int64_t begin, std::int64_t end) {
      std::array<std::int64_t, kTile> tile{};
      while (begin < end) {
        const std::int64_t n = std::min(kTile, end - begin);
        for (std::int64_t i = 0; i < n; ++i) {
          tile[static_cast<std::size_t>(i)] = first + (begin + i) / after % size;
        }
        store(tile.data(), to + begin * element, n);
        begin += n;
      }
    });
  };
}

SourceKernel prepare_random(Distribution distribution, std::uint64_t key, const Shape& global,
                            const Box& box, DType dtype, const CpuDevice& device) {
  const Runs runs(global, box);
  const ConvertLoop store = dtype == DType::float32 ? nullptr : converter(DType::float32, dtype);
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  // A normal draw costs about 20 times a uniform one.
  const std::int64_t least = distribution == Distribution::uniform ? 8192 : 512;
  const int threads = threads_for(device, box.elements(), least);
  return [=](void* output, std::uint64_t step) {
    parallel_ranges(threads, box.elements(), [&](std::int64_t begin, std::int64_t end) {
      std::array<float, kTile> tile;
      while (begin < end) {
        const std::int64_t run = begin / runs.length;
        const std::int64_t within = begin % runs.length;
        const std::int64_t n = std::min({kTile, end - begin, runs.length - within});
        const auto index = static_cast<std::uint64_t>(runs.begin_of(run) + within);
        std::byte* to = static_cast<std::byte*>(output) + begin * element;
        if (store == nullptr) {
          draw(distribution, key, step, index, reinterpret_cast<float*>(to), n);
        } else {
          draw(distribution, key, step, index, tile.data(), n);
          store(tile.data(), to, n);
        }
        begin += n;
      }
    });
  };
}

}  // namespace tessera::kernels
