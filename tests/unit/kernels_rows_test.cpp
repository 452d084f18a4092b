// Row loops of every instruction-set level that this processor has, against float64 written
// plainly.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "kernels/rows.h"

namespace tessera::kernels {

namespace baseline {
extern const RowLoops row_loops;
}
namespace avx2 {
extern const RowLoops row_loops;
}
namespace avx512 {
extern const RowLoops row_loops;
}

namespace {

/// Sums one by one, as instrumented code makes them, round more than those of vector lanes.
#ifdef TESSERA_INSTRUMENTED
constexpr double kSoftmaxError = 2e-6;
#else
constexpr double kSoftmaxError = 1e-6;
#endif

std::vector<const RowLoops*> levels() {
  std::vector<const RowLoops*> found{&baseline::row_loops};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    found.push_back(&avx2::row_loops);
  }
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    found.push_back(&avx512::row_loops);
  }
  return found;
}

template <typename T>
struct Data {
  std::int64_t rows;
  std::int64_t columns;
  std::vector<double> exact;
  std::vector<T> x;

  Data(std::int64_t r, std::int64_t c) : rows(r), columns(c) {
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      exact.push_back(static_cast<double>(i * 31 % 97) / 16.0 - 3.0);  // exact in every type
      x.push_back(narrow<T>(static_cast<SumOf<T>>(exact.back())));
    }
  }
  std::vector<T> results() const { return std::vector<T>(x.size()); }
};

template <typename T>
void check_softmax(const RowLoops& loops, std::int64_t rows, std::int64_t columns, double limit) {
  const Data<T> data(rows, columns);
  std::vector<T> y = data.results();
  std::vector<T> log_y = data.results();
  loops.typed<T>().softmax(data.x.data(), y.data(), rows, columns);
  loops.typed<T>().log_softmax(data.x.data(), log_y.data(), rows, columns);
  double worst = 0.0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const double* x = data.exact.data() + row * columns;
    double sum = 0.0;
    for (std::int64_t i = 0; i < columns; ++i) sum += std::exp(x[i]);
    for (std::int64_t i = 0; i < columns; ++i) {
      const auto at = static_cast<std::size_t>(row * columns + i);
      const double expected = std::exp(x[i]) / sum;
      const double logarithm = x[i] - std::log(sum);
      worst = std::max(worst, std::abs(static_cast<double>(widen(y[at])) / expected - 1.0));
      worst = std::max(worst, std::abs(static_cast<double>(widen(log_y[at])) - logarithm) /
                                  std::max(1.0, std::abs(logarithm)));
    }
  }
  CHECK(worst <= limit);
}

template <typename T>
void check_norm(const RowLoops& loops, std::int64_t rows, std::int64_t columns, double limit) {
  using S = SumOf<T>;
  const Data<T> data(rows, columns);
  std::vector<T> y = data.results();
  const std::vector<S> gamma(static_cast<std::size_t>(columns), S{2});
  const std::vector<S> beta(static_cast<std::size_t>(columns), S{1});
  std::vector<S> mean(static_cast<std::size_t>(rows));
  std::vector<S> rstd(static_cast<std::size_t>(rows));
  NormRows<T> call;
  call.x = data.x.data();
  call.gamma = gamma.data();
  call.beta = beta.data();
  call.y = y.data();
  call.mean = mean.data();
  call.rstd = rstd.data();
  call.rows = rows;
  call.columns = columns;
  call.epsilon = static_cast<S>(0.25);
  loops.typed<T>().norm(call);
  double worst = 0.0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const double* x = data.exact.data() + row * columns;
    double average = 0.0;
    double variance = 0.0;
    for (std::int64_t i = 0; i < columns; ++i) average += x[i] / static_cast<double>(columns);
    for (std::int64_t i = 0; i < columns; ++i) {
      variance += (x[i] - average) * (x[i] - average) / static_cast<double>(columns);
    }
    for (std::int64_t i = 0; i < columns; ++i) {
      const double expected = (x[i] - average) / std::sqrt(variance + 0.25) * 2.0 + 1.0;
      const T found = y[static_cast<std::size_t>(row * columns + i)];
      worst = std::max(worst, std::abs(static_cast<double>(widen(found)) - expected) /
                                  std::max(1.0, std::abs(expected)));
    }
  }
  CHECK(worst <= limit);
}

TEST_CASE("row loops agree with float64 at every level") {
  for (const RowLoops* loops : levels()) {
    for (const std::int64_t columns : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 1024, 1025}) {
      const std::int64_t rows = columns > 100 ? 2 : 70;
      INFO(columns << " columns");
      check_softmax<float>(*loops, rows, columns, kSoftmaxError);
      check_softmax<double>(*loops, rows, columns, 1e-14);
      check_softmax<BFloat16>(*loops, rows, columns, 4e-3);
      check_softmax<Float16>(*loops, rows, columns, columns > 100 ? 0.05 : 2e-3);  // subnormal
      check_norm<float>(*loops, rows, columns, 2e-6);
      check_norm<double>(*loops, rows, columns, 1e-14);
      check_norm<BFloat16>(*loops, rows, columns, 4e-3);
      check_norm<Float16>(*loops, rows, columns, 5e-4);
    }
  }
}

TEST_CASE("a row's softmax does not depend on the rows around it") {
  const Data<float> data(33, 21);
  std::vector<float> together = data.results();
  std::vector<float> alone = data.results();
  for (const RowLoops* loops : levels()) {
    loops->f32.softmax(data.x.data(), together.data(), 33, 21);
    for (std::int64_t row = 0; row < 33; ++row) {
      loops->f32.softmax(data.x.data() + row * 21, alone.data() + row * 21, 1, 21);
    }
    CHECK((together == alone));
  }
}

}  // namespace
}  // namespace tessera::kernels
