// Small matrix products as vector loops. Every element of the result adds its products in the order
// of k, or, where rows meet columns that both lie dense, in that of a dense sum.
// Included by the vector loops alone, inside the namespace of their level.

/// `lines` lines of one row of c, kept in registers.
template <int lines, typename T>
inline void gemm_lines(const T* a, const T* b, T* c, const GemmShape& s) {
  using Line = typename LineOf<T>::Type;
  constexpr int kLine = LineOf<T>::kSize;
  Line sums[lines] = {};
  for (std::int64_t p = 0; p < s.k; ++p) {
    const T factor = a[p * s.a_column];
    const auto* row = reinterpret_cast<const Line*>(b + p * s.b_row);
    for (int q = 0; q < lines; ++q) sums[q] += row[q] * factor;
  }
  for (int q = 0; q < lines; ++q) *reinterpret_cast<Line*>(c + q * kLine) = sums[q];
}

/// Rows of b and c lie dense.
template <typename T>
inline void gemm_rows(const T* a, const T* b, T* c, const GemmShape& s) {
  constexpr std::int64_t kLine = LineOf<T>::kSize;
  for (std::int64_t i = 0; i < s.m; ++i) {
    const T* factors = a + i * s.a_row;
    T* row = c + i * s.c_row;
    std::int64_t j = 0;
    for (; j + 4 * kLine <= s.n; j += 4 * kLine) gemm_lines<4>(factors, b + j, row + j, s);
    for (; j + kLine <= s.n; j += kLine) gemm_lines<1>(factors, b + j, row + j, s);
    const std::int64_t rest = s.n - j;
    if (rest == 0) continue;
    T sums[kLine] = {};
    for (std::int64_t p = 0; p < s.k; ++p) {
      const T factor = factors[p * s.a_column];
      const T* line = b + p * s.b_row + j;
#pragma omp simd
      for (std::int64_t q = 0; q < rest; ++q) sums[q] += line[q] * factor;
    }
    for (std::int64_t q = 0; q < rest; ++q) row[j + q] = sums[q];
  }
}

/// Rows of a and columns of b lie dense.
template <typename T>
inline T dot(const T* x, const T* y, std::int64_t n) {
  using Line = typename LineOf<T>::Type;
  constexpr std::int64_t kLine = LineOf<T>::kSize;
  T sum{0};
  std::int64_t i = 0;
  if (n >= kLine) {
    Line sums = {};
    for (; i + kLine <= n; i += kLine) {
      sums += *reinterpret_cast<const Line*>(x + i) * *reinterpret_cast<const Line*>(y + i);
    }
    for (int q = 0; q < kLine; ++q) sum += sums[q];
  }
  for (; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

template <typename T>
void gemm_loop(const T* a, const T* b, T* c, const GemmShape& s) {
  if (s.b_column == 1 && s.c_column == 1 && s.n > 1) {
    gemm_rows(a, b, c, s);
    return;
  }
  if (s.a_row == 1 && s.c_row == 1 && s.m > 1) {
    // The transposed product has dense rows.
    gemm_rows(b, a, c, {s.n, s.m, s.k, s.b_column, s.b_row, s.a_column, s.a_row, s.c_column, 1});
    return;
  }
  const bool dense = s.a_column == 1 && s.b_row == 1;
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      const T* x = a + i * s.a_row;
      const T* y = b + j * s.b_column;
      T sum{0};
      if (dense) {
        sum = dot(x, y, s.k);
      } else {
        for (std::int64_t p = 0; p < s.k; ++p) sum += x[p * s.a_column] * y[p * s.b_row];
      }
      c[i * s.c_row + j * s.c_column] = sum;
    }
  }
}
