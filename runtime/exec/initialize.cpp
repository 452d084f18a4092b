// First values of variables: drawn by global index, so that every mesh starts from the same bits.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "kernels/vector.h"
#include "runtime/exec/boxes.h"
#include "runtime/exec/elements.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/holders.h"
#include "runtime/exec/orthogonal.h"

namespace tessera::exec {
namespace {

using graph::Initializer;
using graph::Variable;

/// Elements drawn at a time.
constexpr std::int64_t kTile = 1024;
/// Elements that one thread fills at a time.
constexpr std::int64_t kSlab = std::int64_t{1} << 16U;

/// Values of elements by their global, row-major index.
class Source {
 public:
  Source(const Variable& variable, std::uint64_t seed)
      : initializer_(variable.initializer),
        key_(stream_key(initializer_.seed.value_or(seed), "initializer", variable.path)),
        columns_(variable.shape.empty() ? 1 : variable.shape.back()) {
    using Kind = Initializer::Kind;
    if (initializer_.kind == Kind::orthogonal) {
      matrix_ = orthogonal_matrix(variable.shape, key_, initializer_.a);
    }
    if (initializer_.kind == Kind::identity && variable.shape.rank() != 2) {
      throw Error(Error::Kind::config,
                  variable.path + ": the identity initializer needs a matrix, the shape is " +
                      to_string(variable.shape));
    }
    if (initializer_.kind == Kind::values) {
      check(initializer_.values != nullptr &&
                static_cast<std::int64_t>(initializer_.values->size()) == variable.shape.elements(),
            "initializer: the number of values is not that of the variable's elements");
    }
  }

  void draw(std::int64_t first, std::int64_t count, double* to) const {
    using Kind = Initializer::Kind;
    switch (initializer_.kind) {
      case Kind::zeros:
        return std::fill_n(to, count, 0.0), void();
      case Kind::ones:
        return std::fill_n(to, count, 1.0), void();
      case Kind::constant:
        return std::fill_n(to, count, initializer_.a), void();
      case Kind::random_uniform:
        return draw_uniform(first, count, to);
      case Kind::random_normal:
        return draw_scaled(random_normal, first, count, to);
      case Kind::truncated_normal:
        return draw_scaled(random_truncated_normal, first, count, to);
      case Kind::identity:
        for (std::int64_t i = 0; i < count; ++i) {
          to[i] = (first + i) / columns_ == (first + i) % columns_ ? initializer_.a : 0.0;
        }
        return;
      case Kind::orthogonal:
        std::copy_n(matrix_.begin() + first, count, to);
        return;
      case Kind::values:
        std::copy_n(initializer_.values->begin() + first, count, to);
        return;
    }
  }

 private:
  using Draw = float (*)(std::uint64_t key, std::uint64_t step, std::uint64_t index);

  /// a + b times the draw.
  void draw_scaled(Draw draw, std::int64_t first, std::int64_t count, double* to) const {
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = draw(key_, 0, static_cast<std::uint64_t>(first + i));
      to[i] = initializer_.a + initializer_.b * static_cast<double>(value);
    }
  }

  /// From a up to b.
  void draw_uniform(std::int64_t first, std::int64_t count, double* to) const {
    std::array<float, kTile> draws;
    kernels::vector_loops().uniform(key_, 0, static_cast<std::uint64_t>(first), draws.data(),
                                    count);
    const double range = initializer_.b - initializer_.a;
    for (std::int64_t i = 0; i < count; ++i) {
      to[i] = initializer_.a + range * static_cast<double>(draws[static_cast<std::size_t>(i)]);
    }
  }

  const Initializer& initializer_;
  std::uint64_t key_;
  std::int64_t columns_;
  std::vector<double> matrix_;  // orthogonal: the whole of it, on every rank
};

void store(DType dtype, const double* from, std::byte* to, std::int64_t count) {
  if (dtype != DType::float32) return store_elements(dtype, from, to, count);
  auto* values = reinterpret_cast<float*>(to);
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(from[i]);
}

void fill(const Source& source, const Variable& variable, const Box& part, std::byte* to) {
  const auto element_bytes = static_cast<std::int64_t>(size_of(variable.dtype));
  std::array<double, kTile> tile;
  for_each_run(whole(variable.shape), part,
               [&](std::int64_t index, std::int64_t place, std::int64_t count) {
                 for (std::int64_t done = 0; done < count; done += kTile) {
                   const std::int64_t now = std::min(kTile, count - done);
                   source.draw(index + done, now, tile.data());
                   store(variable.dtype, tile.data(), to + (place + done) * element_bytes, now);
                 }
               });
}

/// Reading does not bring pages into being; writing would.
bool is_zero(const std::byte* data, std::int64_t bytes) {
  // Every byte equals its neighbour, and the first is zero.
  return bytes == 0 || (data[0] == std::byte{0} &&
                        std::memcmp(data, data + 1, static_cast<std::size_t>(bytes - 1)) == 0);
}

struct Piece {
  Box box;
  std::int64_t first;  // element in this rank's part
};

}  // namespace

void initialize(Storage& storage, graph::VariableId id, std::uint64_t seed) {
  const Variable& variable = storage.table()[id];
  const Box& mine = storage.box(id);
  auto* data = static_cast<std::byte*>(storage.data(id));
  const auto element_bytes = static_cast<std::int64_t>(size_of(variable.dtype));
  // Fresh memory is zero already, and pages that nobody writes need not exist; memory in use is
  // cleared.
  const bool zero = variable.initializer.kind == Initializer::Kind::zeros ||
                    !keeps_pending_value(variable, storage.mesh(), storage.rank());
  if (zero) {
    const std::int64_t bytes = mine.elements() * element_bytes;
    if (!is_zero(data, bytes)) std::fill_n(data, bytes, std::byte{0});
    return;
  }
  const Source source(variable, seed);
  std::vector<Piece> pieces;
  for_each_slab(mine.size, kSlab, [&](const Box& slab, std::int64_t first) {
    Piece piece{slab, first};
    for (std::size_t dim = 0; dim < slab.begin.rank(); ++dim) {
      piece.box.begin[dim] += mine.begin[dim];
    }
    pieces.push_back(piece);
  });
#pragma omp parallel for schedule(static) if (pieces.size() > 1)
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    fill(source, variable, pieces[i].box, data + pieces[i].first * element_bytes);
  }
}

}  // namespace tessera::exec
