// Sizes of a tensor's dimensions, and boxes inside it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace tessera {

/// Sizes of up to kMaxRank dimensions, held inline: a value type that never allocates. Row-major
/// order everywhere.
class Shape {
 public:
  static constexpr std::size_t kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes)
      : Shape(std::span<const std::int64_t>(sizes.begin(), sizes.size())) {}
  /// Throws config when there are more than kMaxRank dimensions.
  explicit Shape(std::span<const std::int64_t> sizes);

  std::size_t rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  std::int64_t operator[](std::size_t dim) const { return sizes_[dim]; }
  std::int64_t& operator[](std::size_t dim) { return sizes_[dim]; }
  std::int64_t back() const { return sizes_[rank_ - 1U]; }
  const std::int64_t* begin() const { return sizes_.data(); }
  const std::int64_t* end() const { return sizes_.data() + rank_; }
  std::span<const std::int64_t> sizes() const { return {sizes_.data(), rank_}; }

  void push_back(std::int64_t size);
  /// Product of the sizes: 1 for a scalar, 0 where a dimension is empty.
  std::int64_t elements() const;
  /// Elements between neighbours along each dimension, row-major.
  Shape strides() const;

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<std::int64_t, kMaxRank> sizes_{};
  std::size_t rank_ = 0;
};

/// "[2, 3]"; "[]" for a scalar.
std::string to_string(const Shape& shape);

/// Product of sizes, or throws config when it does not fit into 63 bits.
std::int64_t checked_elements(std::span<const std::int64_t> sizes);

/// A rectangular part of a tensor: first index and size along each dimension.
struct Box {
  Shape begin;
  Shape size;

  std::int64_t elements() const { return size.elements(); }
  friend bool operator==(const Box& a, const Box& b) = default;
};

}  // namespace tessera
