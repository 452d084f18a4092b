// Memory of one tensor in tests, filled and read as doubles whatever its dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace tessera::testing {

/// `elements` elements of one dtype, zero at first, aligned to 64 bytes. Copies are deep.
class Buffer {
 public:
  Buffer() = default;
  Buffer(DType dtype, std::int64_t elements);
  Buffer(const Buffer& other);
  Buffer& operator=(const Buffer& other);
  Buffer(Buffer&&) = default;
  Buffer& operator=(Buffer&&) = default;
  ~Buffer() = default;

  DType dtype() const { return dtype_; }
  std::int64_t elements() const { return elements_; }
  std::size_t bytes() const { return static_cast<std::size_t>(elements_) * size_of(dtype_); }
  void* data() { return memory_.get(); }
  const void* data() const { return memory_.get(); }

  /// Stores all elements; float64 rounds to the dtype, integers truncate, booleans are `!= 0`.
  /// Throws internal when the number of values differs.
  void set(const std::vector<double>& values);
  std::vector<double> get() const;

  friend bool operator==(const Buffer& a, const Buffer& b);  // bit by bit

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  DType dtype_ = DType::float32;
  std::int64_t elements_ = 0;
  std::unique_ptr<void, Free> memory_;
};

/// The elements of `box` out of a row-major tensor of `shape`, and back.
std::vector<double> cut(const std::vector<double>& whole, const Shape& shape, const Box& box);
void paste(std::vector<double>& whole, const Shape& shape, const Box& box,
           const std::vector<double>& part);

}  // namespace tessera::testing
