// The steps of element-wise programs as vector loops.
// Included by the vector loops alone, inside the namespace of their level.

/// float32 takes the functions of vector_math.h; float64 those of the C library.
template <MapCode code, typename T>
inline T unary(T x) {
  constexpr bool kSingle = std::is_same_v<T, float>;
  using C = MapCode;
  if constexpr (code == C::copy) return x;
  if constexpr (code == C::negate) return -x;
  if constexpr (code == C::abs) return std::abs(x);
  // Zeros and NaN are their own sign.
  if constexpr (code == C::sign) return x > T{0} ? T{1} : (x < T{0} ? T{-1} : x);
  if constexpr (code == C::sqrt) return std::sqrt(x);
  if constexpr (code == C::rsqrt) return T{1} / std::sqrt(x);
  if constexpr (code == C::square) return x * x;
  if constexpr (code == C::reciprocal) return T{1} / x;
  if constexpr (code == C::sin) return std::sin(x);
  if constexpr (code == C::cos) return std::cos(x);
  if constexpr (code == C::floor) return std::floor(x);
  if constexpr (code == C::ceil) return std::ceil(x);
  if constexpr (code == C::round) return std::rint(x);
  if constexpr (code == C::relu) return x < T{0} ? T{0} : x;
  if constexpr (code == C::is_finite) {
    return std::abs(x) <= std::numeric_limits<T>::max() ? T{1} : T{0};
  }
  if constexpr (code == C::logical_not) return x == T{0} ? T{1} : T{0};
  if constexpr (kSingle) {
    if constexpr (code == C::exp) return exp_float(x);
    if constexpr (code == C::expm1) return expm1_float(x);
    if constexpr (code == C::log) return log_float(x);
    if constexpr (code == C::log1p) return log1p_float(x);
    if constexpr (code == C::tanh) return tanh_float(x);
    if constexpr (code == C::sigmoid) return sigmoid_float(x);
    if constexpr (code == C::softplus) return softplus_float(x);
    if constexpr (code == C::erf) return erf_float(x);
    if constexpr (code == C::gelu_erf) return gelu_erf_float(x);
    if constexpr (code == C::gelu_tanh) return gelu_tanh_float(x);
    if constexpr (code == C::silu) return x * sigmoid_float(x);
  } else {
    if constexpr (code == C::exp) return std::exp(x);
    if constexpr (code == C::expm1) return std::expm1(x);
    if constexpr (code == C::log) return std::log(x);
    if constexpr (code == C::log1p) return std::log1p(x);
    if constexpr (code == C::tanh) return std::tanh(x);
    if constexpr (code == C::sigmoid) return sigmoid_double(x);
    if constexpr (code == C::softplus) {
      return (x < 0.0 ? 0.0 : x) + std::log1p(std::exp(-std::abs(x)));
    }
    if constexpr (code == C::erf) return std::erf(x);
    if constexpr (code == C::gelu_erf) return 0.5 * x * (1.0 + std::erf(x * kRootHalf));
    if constexpr (code == C::gelu_tanh) {
      return x * sigmoid_double(2.0 * kRootTwoOverPi * (x + 0.044715 * x * x * x));
    }
    if constexpr (code == C::silu) return x * sigmoid_double(x);
  }
}

/// Maxima and minima with a NaN are NaN. Comparisons with NaN are false but for not_equal.
template <MapCode code, typename T>
inline T binary(T a, T b) {
  using C = MapCode;
  if constexpr (code == C::add) return a + b;
  if constexpr (code == C::subtract) return a - b;
  if constexpr (code == C::multiply) return a * b;
  if constexpr (code == C::divide) return a / b;
  if constexpr (code == C::power) return std::pow(a, b);
  if constexpr (code == C::maximum) return (a > b || a != a) ? a : b;
  if constexpr (code == C::minimum) return (a < b || a != a) ? a : b;
  if constexpr (code == C::equal) return a == b ? T{1} : T{0};
  if constexpr (code == C::not_equal) return a != b ? T{1} : T{0};
  if constexpr (code == C::less) return a < b ? T{1} : T{0};
  if constexpr (code == C::less_equal) return a <= b ? T{1} : T{0};
  if constexpr (code == C::greater) return a > b ? T{1} : T{0};
  if constexpr (code == C::greater_equal) return a >= b ? T{1} : T{0};
  if constexpr (code == C::logical_and) return (a != T{0} && b != T{0}) ? T{1} : T{0};
  if constexpr (code == C::logical_or) return (a != T{0} || b != T{0}) ? T{1} : T{0};
}

constexpr int arity_of(MapCode code) {
  return code == MapCode::select ? 3 : (code >= MapCode::add ? 2 : 1);
}

/// Bit i of `form`: operand i is one value.
template <MapCode code, int form, typename T>
void map_loop(const T* a, const T* b, const T* c, T* out, std::int64_t n) {
  constexpr int kArity = arity_of(code);
  constexpr bool kOneA = (form & 1) != 0;
  constexpr bool kOneB = (form & 2) != 0;
  constexpr bool kOneC = (form & 4) != 0;
  if constexpr (kArity == 1) {
    if constexpr (kOneA) {
      std::fill_n(out, n, unary<code>(*a));
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) out[i] = unary<code>(a[i]);
    }
  } else if constexpr (kArity == 2) {
    const T one_a = kOneA ? *a : T{0};
    const T one_b = kOneB ? *b : T{0};
    if constexpr (kOneA && kOneB) {
      std::fill_n(out, n, binary<code>(one_a, one_b));
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) {
        out[i] = binary<code>(kOneA ? one_a : a[i], kOneB ? one_b : b[i]);
      }
    }
  } else {
    const T one_a = kOneA ? *a : T{0};
    const T one_b = kOneB ? *b : T{0};
    const T one_c = kOneC ? *c : T{0};
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
      const T condition = kOneA ? one_a : a[i];
      const T yes = kOneB ? one_b : b[i];
      const T no = kOneC ? one_c : c[i];
      out[i] = condition != T{0} ? yes : no;
    }
  }
}
