// Reads ids and labels whatever type they are stored in.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/dtype.h"

namespace tessera::kernels {

/// Whole part of a float as an index; -1 (never an index) for NaN and values out of range.
inline std::int64_t index_from(double value) {
  constexpr double kLimit = 9.0e18;
  return value > -kLimit && value < kLimit ? static_cast<std::int64_t>(value) : -1;
}

/// Element `i` of an array of ids.
inline std::int64_t index_at(const void* ids, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::int32:
      return static_cast<const std::int32_t*>(ids)[i];
    case DType::int64:
      return static_cast<const std::int64_t*>(ids)[i];
    case DType::uint8:
    case DType::boolean:
      return static_cast<const std::uint8_t*>(ids)[i];
    case DType::float32:
      return index_from(static_cast<double>(static_cast<const float*>(ids)[i]));
    case DType::float64:
      return index_from(static_cast<const double*>(ids)[i]);
    case DType::bfloat16:
      return index_from(static_cast<double>(to_float(static_cast<const BFloat16*>(ids)[i])));
    case DType::float16:
      return index_from(static_cast<double>(to_float(static_cast<const Float16*>(ids)[i])));
  }
  return -1;
}

}  // namespace tessera::kernels
