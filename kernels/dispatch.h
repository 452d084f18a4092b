// From a dtype known at run time to a type known at compile time.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "base/error.h"

namespace tessera::kernels {

/// What sums over elements of type T are kept in.
template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline float widen(float value) { return value; }
inline double widen(double value) { return value; }
inline float widen(BFloat16 value) { return to_float(value); }
inline float widen(Float16 value) { return to_float(value); }

template <typename T>
T narrow(SumOf<T> value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(value);
  } else if constexpr (std::is_same_v<T, Float16>) {
    return to_float16(value);
  } else {
    return value;
  }
}

/// Calls `work` with a zero of the C++ type of a floating dtype.
template <typename Work>
void with_floating(DType dtype, const Work& work) {
  switch (dtype) {
    case DType::float32:
      return work(float{});
    case DType::float64:
      return work(double{});
    case DType::bfloat16:
      return work(BFloat16{});
    case DType::float16:
      return work(Float16{});
    default:
      check(false, "a floating dtype is expected");
  }
}

/// Calls `work` with an unsigned integer as wide as an element.
template <typename Work>
void with_width(std::size_t element_size, const Work& work) {
  switch (element_size) {
    case 1:
      return work(std::uint8_t{});
    case 2:
      return work(std::uint16_t{});
    case 4:
      return work(std::uint32_t{});
    default:
      return work(std::uint64_t{});
  }
}

/// dtype of SumOf<T>.
inline DType sum_dtype(DType dtype) {
  return dtype == DType::float64 ? DType::float64 : DType::float32;
}

}  // namespace tessera::kernels
