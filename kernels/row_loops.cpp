// Vector loops over rows; this file is compiled once per instruction-set level, in a namespace of
// that level.
#include <bit>
#include <cmath>

#include "kernels/rows.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace tessera::kernels::TESSERA_VECTOR_LEVEL {
namespace {

#include "kernels/vector_math.h"

/// Short rows are taken together, this many elements at a time, so that their exponentials fill
/// whole vectors.
constexpr std::int64_t kBlock = 1024;

// The loads and stores of this level: inlined, so that loops over them become vector code.
inline float load(float value) { return value; }
inline double load(double value) { return value; }
inline float load(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}
inline float load(Float16 value) {
#ifdef __F16C__
  return _cvtsh_ss(value.bits);
#else
  return to_float(value);
#endif
}
inline void store(float& out, float value) { out = value; }
inline void store(double& out, double value) { out = value; }
// As to_bfloat16; functions of other headers could be compiled for one level and linked for all.
inline void store(BFloat16& out, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7FFFU + ((bits >> 16U) & 1U);
  const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  out.bits = static_cast<std::uint16_t>((nan ? bits | 0x00400000U : rounded) >> 16U);
}
inline void store(Float16& out, float value) {
#ifdef __F16C__
  out.bits = _cvtss_sh(value, 0);  // 0: to nearest even
#else
  out = to_float16(value);
#endif
}

inline float exponential(float x) { return exp_float(x); }
inline double exponential(double x) { return __builtin_exp(x); }
inline float logarithm(float x) { return log_float(x); }
inline double logarithm(double x) { return __builtin_log(x); }
inline float root(float x) { return __builtin_sqrtf(x); }
inline double root(double x) { return __builtin_sqrt(x); }

/// NaN only where all elements are NaN: exponentials bring it back.
template <typename T>
SumOf<T> largest_of(const T* x, std::int64_t n) {
  SumOf<T> largest = -__builtin_inff();
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) {
    const SumOf<T> value = load(x[i]);
    largest = value > largest ? value : largest;
  }
  return largest;
}

template <typename S>
S sum_of(const S* x, std::int64_t n) {
  S sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

/// Calls `shift(row)` for the number that is subtracted from a row's elements, then `finish(row,
/// exponentials)` with the exponentials of a whole row. For rows of at most kBlock elements.
template <typename T, typename Shift, typename Finish>
void with_exponentials(const T* x, std::int64_t rows, std::int64_t columns, const Shift& shift,
                       const Finish& finish) {
  using S = SumOf<T>;
  alignas(64) S block[kBlock];
  const std::int64_t together = kBlock / columns;
  for (std::int64_t first = 0; first < rows; first += together) {
    const std::int64_t count = together < rows - first ? together : rows - first;
    for (std::int64_t row = 0; row < count; ++row) {
      const T* from = x + (first + row) * columns;
      const S shifted_by = shift(first + row);
      S* to = block + row * columns;
      for (std::int64_t i = 0; i < columns; ++i) to[i] = load(from[i]) - shifted_by;
    }
    const std::int64_t elements = count * columns;
    for (std::int64_t i = 0; i < elements; ++i) block[i] = exponential(block[i]);
    for (std::int64_t row = 0; row < count; ++row) finish(first + row, block + row * columns);
  }
}

template <typename T>
SumOf<T> sum_of_exponentials(const T* x, SumOf<T> shift, std::int64_t n) {
  SumOf<T> sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += exponential(load(x[i]) - shift);
  return sum;
}

template <typename T>
void softmax(const T* x, T* y, std::int64_t rows, std::int64_t columns) {
  using S = SumOf<T>;
  if (columns <= kBlock) {
    with_exponentials(
        x, rows, columns, [&](std::int64_t row) { return largest_of(x + row * columns, columns); },
        [&](std::int64_t row, const S* exponentials) {
          const S factor = S{1} / sum_of(exponentials, columns);
          T* to = y + row * columns;
          for (std::int64_t i = 0; i < columns; ++i) store(to[i], exponentials[i] * factor);
        });
    return;
  }
  for (std::int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    const S largest = largest_of(x, columns);
    const S factor = S{1} / sum_of_exponentials(x, largest, columns);
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) {
      store(y[i], exponential(load(x[i]) - largest) * factor);
    }
  }
}

template <typename T>
void log_sum_exp(const T* x, SumOf<T>* largest, SumOf<T>* log_sum, std::int64_t rows,
                 std::int64_t columns) {
  using S = SumOf<T>;
  if (columns <= kBlock) {
    with_exponentials(
        x, rows, columns,
        [&](std::int64_t row) {
          largest[row] = largest_of(x + row * columns, columns);
          return largest[row];
        },
        [&](std::int64_t row, const S* exponentials) {
          log_sum[row] = logarithm(sum_of(exponentials, columns));
        });
    return;
  }
  for (std::int64_t row = 0; row < rows; ++row, x += columns) {
    largest[row] = largest_of(x, columns);
    log_sum[row] = logarithm(sum_of_exponentials(x, largest[row], columns));
  }
}

template <typename T>
void log_softmax(const T* x, T* y, std::int64_t rows, std::int64_t columns) {
  using S = SumOf<T>;
  const std::int64_t together = columns < kBlock ? kBlock / columns : 1;
  S largest[kBlock];
  S log_sum[kBlock];
  for (std::int64_t first = 0; first < rows; first += together) {
    const std::int64_t count = together < rows - first ? together : rows - first;
    log_sum_exp(x + first * columns, largest, log_sum, count, columns);
    for (std::int64_t row = 0; row < count; ++row) {
      const T* from = x + (first + row) * columns;
      T* to = y + (first + row) * columns;
      const S shift = largest[row];
      const S log_of_sum = log_sum[row];
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i) store(to[i], (load(from[i]) - shift) - log_of_sum);
    }
  }
}

template <typename T>
void softmax_gradient(const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t columns) {
  using S = SumOf<T>;
  for (std::int64_t row = 0; row < rows; ++row, y += columns, dy += columns, dx += columns) {
    S dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t i = 0; i < columns; ++i) dot += load(y[i]) * load(dy[i]);
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) store(dx[i], load(y[i]) * (load(dy[i]) - dot));
  }
}

template <typename T>
void log_softmax_gradient(const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t columns) {
  using S = SumOf<T>;
  for (std::int64_t row = 0; row < rows; ++row, y += columns, dy += columns, dx += columns) {
    S sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < columns; ++i) sum += load(dy[i]);
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) {
      store(dx[i], load(dy[i]) - exponential(load(y[i])) * sum);
    }
  }
}

template <typename T>
void scaled_probabilities(const T* x, const SumOf<T>* largest, const SumOf<T>* log_sum,
                          const SumOf<T>* scale, T* dx, std::int64_t rows, std::int64_t columns) {
  using S = SumOf<T>;
  if (columns <= kBlock) {
    with_exponentials(
        x, rows, columns, [&](std::int64_t row) { return largest[row] + log_sum[row]; },
        [&](std::int64_t row, const S* exponentials) {
          T* to = dx + row * columns;
          for (std::int64_t i = 0; i < columns; ++i) store(to[i], exponentials[i] * scale[row]);
        });
    return;
  }
  for (std::int64_t row = 0; row < rows; ++row, x += columns, dx += columns) {
    const S shift = largest[row] + log_sum[row];
    const S factor = scale[row];
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) {
      store(dx[i], exponential(load(x[i]) - shift) * factor);
    }
  }
}

template <typename T>
void norm(const NormRows<T>& call) {
  using S = SumOf<T>;
  const std::int64_t columns = call.columns;
  const S count = static_cast<S>(columns);
  for (std::int64_t row = 0; row < call.rows; ++row) {
    const T* x = call.x + row * columns;
    T* y = call.y + row * columns;
    const S* gamma = call.gamma;
    const S* beta = call.beta;
    S mean = 0;
    if (call.mean != nullptr) {
#pragma omp simd reduction(+ : mean)
      for (std::int64_t i = 0; i < columns; ++i) mean += load(x[i]);
      mean /= count;
      call.mean[row] = mean;
    }
    S squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t i = 0; i < columns; ++i) {
      const S centered = load(x[i]) - mean;
      squares += centered * centered;
    }
    const S rstd = S{1} / root(squares / count + call.epsilon);
    call.rstd[row] = rstd;
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) {
      store(y[i], (load(x[i]) - mean) * rstd * gamma[i] + beta[i]);
    }
  }
}

template <typename T>
void norm_gradient(const NormGradientRows<T>& call) {
  using S = SumOf<T>;
  const std::int64_t columns = call.columns;
  const S count = static_cast<S>(columns);
  const S* gamma = call.gamma;
  S* dgamma = call.dgamma;
  S* dbeta = call.dbeta;
  for (std::int64_t row = 0; row < call.rows; ++row) {
    const T* x = call.x + row * columns;
    const T* dy = call.dy + row * columns;
    T* dx = call.dx + row * columns;
    const S mean = call.mean != nullptr ? call.mean[row] : S{0};
    const S rstd = call.rstd[row];
    S sum = 0;  // of g = dy * gamma
    S dot = 0;  // of g * xhat
#pragma omp simd reduction(+ : sum, dot)
    for (std::int64_t i = 0; i < columns; ++i) {
      const S arriving = load(dy[i]);
      const S xhat = (load(x[i]) - mean) * rstd;
      const S g = arriving * gamma[i];
      dgamma[i] += arriving * xhat;
      dbeta[i] += arriving;
      sum += g;
      dot += g * xhat;
    }
    sum = call.mean != nullptr ? sum / count : S{0};
    dot /= count;
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) {
      const S xhat = (load(x[i]) - mean) * rstd;
      store(dx[i], rstd * (load(dy[i]) * gamma[i] - sum - xhat * dot));
    }
  }
}

template <typename T>
constexpr TypedRowLoops<T> loops_of() {
  return {softmax<T>,
          log_softmax<T>,
          softmax_gradient<T>,
          log_softmax_gradient<T>,
          log_sum_exp<T>,
          scaled_probabilities<T>,
          norm<T>,
          norm_gradient<T>};
}

}  // namespace

extern const RowLoops row_loops;
constinit const RowLoops row_loops{loops_of<float>(), loops_of<double>(), loops_of<BFloat16>(),
                                   loops_of<Float16>()};

}  // namespace tessera::kernels::TESSERA_VECTOR_LEVEL
