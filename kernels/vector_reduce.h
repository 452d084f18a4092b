// Reductions as vector loops.
// Included by the vector loops alone, inside the namespace of their level.

/// A whole cache line of elements: the compiler maps it to the registers that the level has.
template <typename T>
struct LineOf {
  static constexpr int kSize = 64 / sizeof(T);
  typedef T Type __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
};

template <ReduceCode code, typename V>
inline V combine(V a, V b) {
  if constexpr (code == ReduceCode::sum) return a + b;
  // NaN wins: it is the one value that differs from itself.
  if constexpr (code == ReduceCode::max) return (b > a) || (b != b) ? b : a;
  if constexpr (code == ReduceCode::min) return (b < a) || (b != b) ? b : a;
}

template <ReduceCode code, typename T>
constexpr T identity_of() {
  if constexpr (code == ReduceCode::sum) return T{0};
  if constexpr (code == ReduceCode::max) return -std::numeric_limits<T>::infinity();
  if constexpr (code == ReduceCode::min) return std::numeric_limits<T>::infinity();
}

/// Up to one block: every one of 4 lines of partial results takes each fourth line of x.
template <ReduceCode code, typename T>
double reduce_block(const T* x, std::int64_t n) {
  using Line = typename LineOf<T>::Type;
  constexpr std::int64_t kLine = LineOf<T>::kSize;
  double result = identity_of<code, double>();
  std::int64_t done = 0;
  if (n >= 4 * kLine) {
    const auto* lines = reinterpret_cast<const Line*>(x);
    Line a = lines[0];
    Line b = lines[1];
    Line c = lines[2];
    Line d = lines[3];
    const std::int64_t groups = n / (4 * kLine);
    for (std::int64_t i = 1; i < groups; ++i) {
      a = combine<code>(a, lines[4 * i]);
      b = combine<code>(b, lines[4 * i + 1]);
      c = combine<code>(c, lines[4 * i + 2]);
      d = combine<code>(d, lines[4 * i + 3]);
    }
    a = combine<code>(combine<code>(a, b), combine<code>(c, d));
    for (int j = 0; j < kLine; ++j) result = combine<code>(result, static_cast<double>(a[j]));
    done = groups * 4 * kLine;
  }
  // Four chains: one would wait for every addition.
  double parts[4] = {result, identity_of<code, double>(), identity_of<code, double>(),
                     identity_of<code, double>()};
  for (; done + 4 <= n; done += 4) {
    for (int j = 0; j < 4; ++j)
      parts[j] = combine<code>(parts[j], static_cast<double>(x[done + j]));
  }
  for (; done < n; ++done) parts[0] = combine<code>(parts[0], static_cast<double>(x[done]));
  return combine<code>(combine<code>(parts[0], parts[1]), combine<code>(parts[2], parts[3]));
}

template <ReduceCode code, typename T>
double reduce_loop(const T* x, std::int64_t n) {
  // Of 2048 elements, no partial sum adds more than 32.
  constexpr std::int64_t kBlock = 2048;
  double result = identity_of<code, double>();
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    result = combine<code>(result, reduce_block<code>(x + begin, std::min(kBlock, n - begin)));
  }
  return result;
}

template <ReduceCode code, typename T>
void accumulate_loop(const T* x, std::int64_t stride, std::int64_t rows, T* accumulator,
                     std::int64_t n) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const T* x0 = x + row * stride;
    const T* x1 = x0 + stride;
    const T* x2 = x1 + stride;
    const T* x3 = x2 + stride;
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) {
      accumulator[j] = combine<code>(
          accumulator[j], combine<code>(combine<code>(x0[j], x1[j]), combine<code>(x2[j], x3[j])));
    }
  }
  for (; row < rows; ++row) {
    const T* x0 = x + row * stride;
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) accumulator[j] = combine<code>(accumulator[j], x0[j]);
  }
}
