// Elementary functions in float32, written so that loops over them become vector code: no branches,
// no calls, no tables. Errors in units in the last place, over all float32: exp 1, expm1 2, log 1,
// log1p 2, tanh 2, sigmoid 2, softplus 2, erf 2. Infinities, NaN, zeros and subnormal numbers give
// what the C library gives. Polynomials: weighted minimax fits on the reduced ranges.
// Included by the vector loops alone, inside the namespace of their level.

inline float multiply_add(float a, float b, float c) {
#ifdef __FMA__
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

inline float as_float(std::int32_t bits) { return std::bit_cast<float>(bits); }
inline std::int32_t as_bits(float value) { return std::bit_cast<std::int32_t>(value); }

inline constexpr float kInfinity = __builtin_inff();
inline constexpr float kLog2E = 1.44269504F;
// ln 2 in two parts: products of the first with whole numbers up to 2^8 are exact.
inline constexpr float kLn2High = 0.693359375F;
inline constexpr float kLn2Low = -2.12194440e-4F;
// Adding and subtracting it rounds to a whole number; the sum's low bits hold that number.
inline constexpr float kRounder = 12582912.0F;

/// x = n ln 2 + r with |r| <= ln 2 / 2.
struct Reduced {
  std::int32_t n;
  float r;
};
inline Reduced reduce_exponent(float x) {
  const float shifted = multiply_add(x, kLog2E, kRounder);
  const float n = shifted - kRounder;
  return {as_bits(shifted) - as_bits(kRounder),
          multiply_add(n, -kLn2Low, multiply_add(n, -kLn2High, x))};
}

inline float exp_float(float x) {
  // Beyond these limits the result is infinite or zero; comparisons let NaN pass.
  x = x > 89.0F ? 89.0F : x;
  x = x < -104.0F ? -104.0F : x;
  const Reduced reduced = reduce_exponent(x);
  const float r = reduced.r;
  float p = 0.00139508734F;
  p = multiply_add(p, r, 0.00836908817F);
  p = multiply_add(p, r, 0.0416661985F);
  p = multiply_add(p, r, 0.166665167F);
  p = multiply_add(p, r, 0.5F);
  p = multiply_add(p, r * r, r) + 1.0F;
  // Two factors, as one power of two cannot reach subnormal results.
  const std::int32_t half = reduced.n >> 1;
  return p * as_float((half + 127) << 23) * as_float((reduced.n - half + 127) << 23);
}

inline float expm1_float(float x) {
  const float kept = x;
  x = x > 89.0F ? 89.0F : x;
  x = x < -80.0F ? -80.0F : x;
  const Reduced reduced = reduce_exponent(x);
  const float r = reduced.r;
  float p = 0.000199131347F;
  p = multiply_add(p, r, 0.00139413355F);
  p = multiply_add(p, r, 0.00833327509F);
  p = multiply_add(p, r, 0.0416663513F);
  p = multiply_add(p, r, 0.166666672F);
  p = multiply_add(p, r, 0.5F);
  p = multiply_add(p, r * r, r);
  // Half the scale, doubled at the end: 2^128 itself is not a float.
  const float scale = as_float((reduced.n - 1 + 127) << 23);
  const float result = 2.0F * multiply_add(scale, p, scale - 0.5F);
  return kept == 0.0F ? kept : (reduced.n == 0 ? p : result);
}

/// log(1 + f) + n ln 2 for 1 + f in [sqrt(1/2), sqrt(2)).
inline float log_reduced(float f, float n) {
  float q = 0.0691660494F;
  q = multiply_add(q, f, -0.117916659F);
  q = multiply_add(q, f, 0.118734188F);
  q = multiply_add(q, f, -0.123840824F);
  q = multiply_add(q, f, 0.142185688F);
  q = multiply_add(q, f, -0.166692615F);
  q = multiply_add(q, f, 0.20002231F);
  q = multiply_add(q, f, -0.249999866F);
  q = multiply_add(q, f, 0.333333105F);
  const float square = f * f;
  float tail = q * f * square;
  tail = multiply_add(n, kLn2Low, tail);
  tail = multiply_add(-0.5F, square, tail);
  return multiply_add(n, kLn2High, f + tail);
}

/// value = 2^n (1 + f) for a normal positive value.
struct Decomposed {
  std::int32_t n;
  float f;
};
inline Decomposed decompose(float value) {
  // Unsigned, as negative values (whose result is discarded) would overflow.
  constexpr std::uint32_t kRootHalfBits = 0x3F3504F3U;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::int32_t n = static_cast<std::int32_t>(bits - kRootHalfBits) >> 23;
  const auto mantissa = bits - (static_cast<std::uint32_t>(n) << 23U);
  return {n, std::bit_cast<float>(mantissa) - 1.0F};
}

inline float log_float(float x) {
  const bool tiny = x < 1.17549435e-38F;
  const float scaled = tiny ? x * 8388608.0F : x;
  const Decomposed parts = decompose(scaled);
  float result = log_reduced(parts.f, static_cast<float>(parts.n) - (tiny ? 23.0F : 0.0F));
  result = x == kInfinity ? x : result;
  result = x == 0.0F ? -kInfinity : result;
  return x >= 0.0F ? result : __builtin_nanf("");
}

inline float log1p_float(float x) {
  const float u = 1.0F + x;
  // What rounding 1 + x lost.
  const float lost = x < 1.0F ? x - (u - 1.0F) : 1.0F - (u - x);
  const Decomposed parts = decompose(u);
  // For the largest n its inverse is subnormal, and `lost` then is nothing.
  const float inverse = parts.n > 126 ? 0.0F : as_float((127 - parts.n) << 23);
  float result = log_reduced(parts.f + lost * inverse, static_cast<float>(parts.n));
  result = x == kInfinity ? x : result;
  result = u == 0.0F ? -kInfinity : result;
  result = u >= 0.0F ? result : __builtin_nanf("");
  return x == 0.0F ? x : result;
}

inline float tanh_float(float x) {
  float twice = 2.0F * __builtin_fabsf(x);
  twice = twice > 20.0F ? 20.0F : twice;
  const float t = expm1_float(twice);
  return __builtin_copysignf(t / (t + 2.0F), x);
}

inline float sigmoid_float(float x) {
  const float e = exp_float(-__builtin_fabsf(x));
  return (x >= 0.0F ? 1.0F : e) / (1.0F + e);
}

inline float softplus_float(float x) {
  // NaN arrives through the first term.
  const float positive = x < 0.0F ? 0.0F : x;
  return positive + log1p_float(exp_float(-__builtin_fabsf(x)));
}

inline float erf_float(float x) {
  const float z = x * x;
  float p = 8.53883175e-05F;
  p = multiply_add(p, z, -0.000818192551F);
  p = multiply_add(p, z, 0.0052044359F);
  p = multiply_add(p, z, -0.0268607531F);
  p = multiply_add(p, z, 0.112837195F);
  p = multiply_add(p, z, -0.376126349F);
  p = multiply_add(p, z, 0.128379166F);
  const float near = multiply_add(x, p, x);
  // Further out: 1 - exp(-q) with q = -log(erfc). From 4 on the result is 1.
  float a = __builtin_fabsf(x);
  a = a > 4.0F ? 4.0F : a;
  float q = 2.06317964e-05F;
  q = multiply_add(q, a, -0.000429114094F);
  q = multiply_add(q, a, 0.00414520269F);
  q = multiply_add(q, a, -0.0250515249F);
  q = multiply_add(q, a, 0.108175471F);
  q = multiply_add(q, a, 0.633441567F);
  q = multiply_add(q, a, 1.12946832F);
  q = multiply_add(q, a, -0.000165059042F);
  const float far = __builtin_copysignf(1.0F - exp_float(-q), x);
  return a < 0.9F ? near : far;
}

inline float gelu_erf_float(float x) { return 0.5F * x * (1.0F + erf_float(x * 0.707106781F)); }

/// x (1 + tanh(u)) / 2 = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
inline float gelu_tanh_float(float x) {
  const float inner = x * multiply_add(x * x, 0.044715F, 1.0F);
  return x * sigmoid_float(1.59576912F * inner);
}
