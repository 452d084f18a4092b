// Element types of tensors.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

enum class DType : std::uint8_t {
  float32,
  float64,
  bfloat16,
  float16,
  int32,
  int64,
  uint8,
  boolean,  // one byte, 0 or 1
};

/// Bytes of one element.
std::size_t size_of(DType dtype);
/// "float32", "bfloat16", "bool", ...: Keras's names.
std::string_view name_of(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);
/// True for float32, float64, bfloat16 and float16.
bool is_floating(DType dtype);

/// Storage form of bfloat16: the upper half of a float32.
struct BFloat16 {
  std::uint16_t bits;
};
/// Storage form of IEEE binary16.
struct Float16 {
  std::uint16_t bits;
};

inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}
/// Rounds to nearest even; NaN stays NaN.
inline BFloat16 to_bfloat16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7FFFU + ((bits >> 16U) & 1U);
  const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return {static_cast<std::uint16_t>((nan ? bits | 0x00400000U : rounded) >> 16U)};
}
float to_float(Float16 value);
/// Rounds to nearest even; values beyond 65504 become infinite.
Float16 to_float16(float value);

}  // namespace tessera
