#include "runtime/data/batches.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "base/philox.h"

namespace tessera::data {

Order::Order(std::int64_t rows, Shuffle shuffle, std::int64_t batch, std::uint64_t seed,
             std::int64_t epoch)
    : rows_(rows),
      shuffle_(shuffle),
      batch_(batch),
      key_(stream_key(seed, "shuffle", std::to_string(epoch))) {}

std::int64_t Order::at(std::int64_t position) const {
  if (shuffle_ == Shuffle::none) return position;
  if (shuffle_ == Shuffle::samples) {
    return static_cast<std::int64_t>(random_permutation(key_, static_cast<std::uint64_t>(rows_),
                                                        static_cast<std::uint64_t>(position)));
  }
  const std::int64_t begin = position / batch_ * batch_;
  const auto size = static_cast<std::uint64_t>(std::min(batch_, rows_ - begin));
  const std::uint64_t key = key_ + static_cast<std::uint64_t>(begin / batch_);
  return begin + static_cast<std::int64_t>(
                     random_permutation(key, size, static_cast<std::uint64_t>(position - begin)));
}

InputFeed::InputFeed(std::shared_ptr<const Source> source, DType dtype, std::int64_t cache_bytes)
    : source_(std::move(source)),
      dtype_(dtype),
      sample_bytes_(static_cast<std::size_t>(source_->sample_elements()) * size_of(dtype)),
      cache_bytes_(cache_bytes) {
  if (sample_bytes_ > 0 &&
      source_->rows() > cache_bytes_ / static_cast<std::int64_t>(sample_bytes_))
    return;
  rows_.resize(static_cast<std::size_t>(source_->rows()));
  std::iota(rows_.begin(), rows_.end(), std::int64_t{0});
  cache_.resize(sample_bytes_ * rows_.size());
  source_->read(rows_, dtype_, cache_.data());
  cached_ = true;
}

const void* InputFeed::load(const Order& order, std::int64_t first, std::int64_t count) {
  if (count == 0) return nullptr;
  rows_.resize(static_cast<std::size_t>(count));
  bool together = true;
  for (std::int64_t i = 0; i < count; ++i) {
    rows_[static_cast<std::size_t>(i)] = order.at(first + i);
    together = together && rows_[static_cast<std::size_t>(i)] == rows_[0] + i;
  }
  if (cached_ && together)
    return cache_.data() + static_cast<std::size_t>(rows_[0]) * sample_bytes_;
  buffer_.resize(static_cast<std::size_t>(count) * sample_bytes_);
  if (!cached_) {
    source_->read(rows_, dtype_, buffer_.data());
    return buffer_.data();
  }
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    std::memcpy(buffer_.data() + i * sample_bytes_,
                cache_.data() + static_cast<std::size_t>(rows_[i]) * sample_bytes_, sample_bytes_);
  }
  return buffer_.data();
}

}  // namespace tessera::data
