// Memory of one tensor in tests: conversion between doubles and the stored dtype.
#include "tests/support/buffer.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/error.h"

namespace tessera::testing {
namespace {

constexpr std::size_t kAlignment = 64;

template <typename T>
void store(void* memory, const std::vector<double>& values) {
  auto* out = static_cast<T*>(memory);
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = static_cast<T>(values[i]);
}

template <typename T>
void load(const void* memory, std::vector<double>& values) {
  const auto* in = static_cast<const T*>(memory);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(in[i]);
}

/// Calls `visit(offset in whole, offset in part, length)` for every run of neighbours.
template <typename Visit>
void for_each_run(const Shape& shape, const Box& box, Visit visit) {
  if (box.elements() == 0) return;
  const std::size_t rank = shape.rank();
  if (rank == 0) {
    visit(std::size_t{0}, std::size_t{0}, std::size_t{1});
    return;
  }
  const Shape strides = shape.strides();
  const auto length = static_cast<std::size_t>(box.size.back());
  const std::size_t runs = static_cast<std::size_t>(box.elements()) / length;
  for (std::size_t run = 0; run < runs; ++run) {
    std::size_t rest = run;
    std::int64_t offset = box.begin[rank - 1];
    for (std::size_t dim = rank - 1; dim-- > 0;) {
      const auto size = static_cast<std::size_t>(box.size[dim]);
      offset += strides[dim] * (box.begin[dim] + static_cast<std::int64_t>(rest % size));
      rest /= size;
    }
    visit(static_cast<std::size_t>(offset), run * length, length);
  }
}

}  // namespace

void Buffer::Free::operator()(void* memory) const { std::free(memory); }

Buffer::Buffer(DType dtype, std::int64_t elements) : dtype_(dtype), elements_(elements) {
  const std::size_t rounded = (bytes() + kAlignment) / kAlignment * kAlignment;
  memory_.reset(std::aligned_alloc(kAlignment, rounded));
  if (!memory_) throw std::bad_alloc();
  std::memset(memory_.get(), 0, rounded);
}

Buffer::Buffer(const Buffer& other) : Buffer(other.dtype_, other.elements_) {
  if (other.memory_) std::memcpy(data(), other.data(), bytes());
}

Buffer& Buffer::operator=(const Buffer& other) {
  if (this != &other) *this = Buffer(other);
  return *this;
}

void Buffer::set(const std::vector<double>& values) {
  check(static_cast<std::int64_t>(values.size()) == elements_,
        "test buffer: the number of values differs from the number of elements");
  switch (dtype_) {
    case DType::float32:
      return store<float>(data(), values);
    case DType::float64:
      return store<double>(data(), values);
    case DType::int32:
      return store<std::int32_t>(data(), values);
    case DType::int64:
      return store<std::int64_t>(data(), values);
    case DType::uint8:
      return store<std::uint8_t>(data(), values);
    case DType::boolean:
    case DType::bfloat16:
    case DType::float16:
      break;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype_ == DType::boolean) {
      static_cast<std::uint8_t*>(data())[i] = values[i] != 0.0 ? 1 : 0;
    } else if (dtype_ == DType::bfloat16) {
      static_cast<BFloat16*>(data())[i] = to_bfloat16(static_cast<float>(values[i]));
    } else {
      static_cast<Float16*>(data())[i] = to_float16(static_cast<float>(values[i]));
    }
  }
}

std::vector<double> Buffer::get() const {
  std::vector<double> values(static_cast<std::size_t>(elements_));
  switch (dtype_) {
    case DType::float32:
      load<float>(data(), values);
      break;
    case DType::float64:
      load<double>(data(), values);
      break;
    case DType::int32:
      load<std::int32_t>(data(), values);
      break;
    case DType::int64:
      load<std::int64_t>(data(), values);
      break;
    case DType::uint8:
    case DType::boolean:
      load<std::uint8_t>(data(), values);
      break;
    case DType::bfloat16:
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<double>(to_float(static_cast<const BFloat16*>(data())[i]));
      }
      break;
    case DType::float16:
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<double>(to_float(static_cast<const Float16*>(data())[i]));
      }
      break;
  }
  return values;
}

bool operator==(const Buffer& a, const Buffer& b) {
  return a.dtype_ == b.dtype_ && a.elements_ == b.elements_ &&
         (a.elements_ == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

std::vector<double> cut(const std::vector<double>& whole, const Shape& shape, const Box& box) {
  std::vector<double> part(static_cast<std::size_t>(box.elements()));
  for_each_run(shape, box, [&](std::size_t from, std::size_t to, std::size_t length) {
    std::memcpy(part.data() + to, whole.data() + from, length * sizeof(double));
  });
  return part;
}

void paste(std::vector<double>& whole, const Shape& shape, const Box& box,
           const std::vector<double>& part) {
  for_each_run(shape, box, [&](std::size_t to, std::size_t from, std::size_t length) {
    std::memcpy(whole.data() + to, part.data() + from, length * sizeof(double));
  });
}

}  // namespace tessera::testing
