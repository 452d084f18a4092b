// The order of samples, and the rows that a rank loads for each batch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "runtime/data/source.h"

namespace tessera::data {

enum class Shuffle : std::uint8_t { none, samples, within_batches };

/// Sample at each position of an epoch: a function of (seed, epoch) alone, the same for every
/// number of ranks.
class Order {
 public:
  Order(std::int64_t rows, Shuffle shuffle, std::int64_t batch, std::uint64_t seed,
        std::int64_t epoch);
  std::int64_t at(std::int64_t position) const;

 private:
  std::int64_t rows_;
  Shuffle shuffle_;
  std::int64_t batch_;
  std::uint64_t key_;
};

/// One input of a program: where its rows come from and which of the batch's rows this rank holds.
class InputFeed {
 public:
  /// Arrays of up to `cache_bytes` are read once and kept, converted.
  InputFeed(std::shared_ptr<const Source> source, DType dtype,
            std::int64_t cache_bytes = std::int64_t{1} << 30U);

  /// Rows at positions first..first+count-1 of `order`, into a buffer that stays valid until the
  /// next call. Rows that follow one another are copied together; where they lie together in the
  /// cache, the cache itself is returned.
  const void* load(const Order& order, std::int64_t first, std::int64_t count);

 private:
  std::shared_ptr<const Source> source_;
  DType dtype_;
  std::size_t sample_bytes_;
  std::vector<std::byte> cache_;
  std::vector<std::byte> buffer_;
  std::vector<std::int64_t> rows_;
  bool cached_ = false;
  std::int64_t cache_bytes_;
};

}  // namespace tessera::data
