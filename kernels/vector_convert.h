// Conversions between element types as vector loops.
// Included by the vector loops alone, inside the namespace of their level.

template <DType dtype>
struct StorageOf;
template <>
struct StorageOf<DType::float32> {
  using Type = float;
};
template <>
struct StorageOf<DType::float64> {
  using Type = double;
};
template <>
struct StorageOf<DType::bfloat16> {
  using Type = BFloat16;
};
template <>
struct StorageOf<DType::float16> {
  using Type = Float16;
};
template <>
struct StorageOf<DType::int32> {
  using Type = std::int32_t;
};
template <>
struct StorageOf<DType::int64> {
  using Type = std::int64_t;
};
template <>
struct StorageOf<DType::uint8> {
  using Type = std::uint8_t;
};
template <>
struct StorageOf<DType::boolean> {
  using Type = bool;
};

inline float half_to_float(Float16 half) {
  const std::uint32_t sign = (half.bits & 0x8000U) << 16U;
  const std::uint32_t rest = (half.bits & 0x7FFFU) << 13U;
  // Exponents differ by 112; the product also normalises subnormal numbers.
  const auto scaled = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) * 0x1p112F);
  const std::uint32_t magnitude = rest >= 0x0F800000U ? rest | 0x7F800000U : scaled;
  return std::bit_cast<float>(sign | magnitude);
}

inline Float16 float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  // Rounds to even while the exponent is rebiased from 127 to 15.
  const std::uint32_t normal = (magnitude + 0xC8000FFFU + ((magnitude >> 13U) & 1U)) >> 13U;
  // One unit in the last place of 1/2 is one unit of a subnormal half: the sum rounds.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
  std::uint32_t half = magnitude < 0x38800000U ? subnormal : normal;
  half = magnitude >= 0x47800000U ? 0x7C00U : half;
  half = magnitude > 0x7F800000U ? 0x7E00U : half;
  return {static_cast<std::uint16_t>(sign | half)};
}

/// Towards zero, saturating; NaN gives 0.
template <typename To, typename From>
inline To floating_to_integer(From value) {
  // Both limits are powers of two, or small: exact in From.
  constexpr From kAbove = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * From{2};
  constexpr From kLowest = static_cast<From>(std::numeric_limits<To>::min());
  const bool above = value >= kAbove;
  const bool inside = value >= kLowest && !above;
  const To whole = static_cast<To>(inside ? value : From{0});
  const To edge = above ? std::numeric_limits<To>::max()
                        : (value < kLowest ? std::numeric_limits<To>::min() : To{0});
  return inside ? whole : edge;
}

/// The arithmetic value of an element.
template <typename From>
inline auto value_of(From element) {
  if constexpr (std::is_same_v<From, BFloat16>) {
    return to_float(element);
  } else if constexpr (std::is_same_v<From, Float16>) {
    return half_to_float(element);
  } else if constexpr (std::is_same_v<From, bool>) {
    return static_cast<std::uint8_t>(element);
  } else {
    return element;
  }
}

template <typename To, typename Value>
inline To element_of(Value value) {
  if constexpr (std::is_same_v<To, BFloat16>) {
    return to_bfloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, Float16>) {
    return float_to_half(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != Value{0};
  } else if constexpr (std::is_floating_point_v<Value> && std::is_integral_v<To>) {
    return floating_to_integer<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <DType from, DType to>
void convert(const void* source, void* target, std::int64_t n) {
  using From = typename StorageOf<from>::Type;
  using To = typename StorageOf<to>::Type;
  if constexpr (from == to) {
    std::memmove(target, source, static_cast<std::size_t>(n) * sizeof(To));
  } else {
    const auto* x = static_cast<const From*>(source);
    auto* y = static_cast<To*>(target);
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) y[i] = element_of<To>(value_of(x[i]));
  }
}
