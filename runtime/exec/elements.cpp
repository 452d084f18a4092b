// Conversions go through the dtype's own rounding.
#include "runtime/exec/elements.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/error.h"

namespace tessera::exec {
namespace {

template <class T>
double to_double(T value) {
  return static_cast<double>(value);
}
double to_double(BFloat16 value) { return static_cast<double>(to_float(value)); }
double to_double(Float16 value) { return static_cast<double>(to_float(value)); }

template <class T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, Float16>) {
    return to_float16(static_cast<float>(value));
  } else if constexpr (std::is_integral_v<T>) {
    if (std::isnan(value)) return 0;
    // The largest integer may not be a double: compare with the power of two above it.
    constexpr double kAbove = 2.0 * static_cast<double>(std::numeric_limits<T>::max() / 2 + 1);
    if (value >= kAbove) return std::numeric_limits<T>::max();
    if (value <= static_cast<double>(std::numeric_limits<T>::min())) {
      return std::numeric_limits<T>::min();
    }
    return static_cast<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

template <class Call>
void with_type(DType dtype, const Call& call) {
  switch (dtype) {
    case DType::float32:
      return call(float{});
    case DType::float64:
      return call(double{});
    case DType::bfloat16:
      return call(BFloat16{});
    case DType::float16:
      return call(Float16{});
    case DType::int32:
      return call(std::int32_t{});
    case DType::int64:
      return call(std::int64_t{});
    case DType::uint8:
    case DType::boolean:
      return call(std::uint8_t{});
  }
  throw Error(Error::Kind::internal, "elements: unknown dtype");
}

}  // namespace

void load_elements(DType dtype, const void* from, double* to, std::int64_t count) {
  with_type(dtype, [&](auto type) {
    const auto* values = static_cast<const decltype(type)*>(from);
    for (std::int64_t i = 0; i < count; ++i) to[i] = to_double(values[i]);
  });
}

void store_elements(DType dtype, const double* from, void* to, std::int64_t count) {
  if (dtype == DType::boolean) {
    auto* values = static_cast<std::uint8_t*>(to);
    for (std::int64_t i = 0; i < count; ++i) values[i] = from[i] != 0.0 ? 1 : 0;
    return;
  }
  with_type(dtype, [&](auto type) {
    auto* values = static_cast<decltype(type)*>(to);
    for (std::int64_t i = 0; i < count; ++i) values[i] = from_double<decltype(type)>(from[i]);
  });
}

}  // namespace tessera::exec
