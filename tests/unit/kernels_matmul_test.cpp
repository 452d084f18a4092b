// Matrix products against plain loops: layouts, batches, dtypes, bias and activation, own loops and
// library.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/matmul.h"
#include "tests/support/buffer.h"

namespace tessera::kernels {
namespace {

using testing::Buffer;

struct Case {
  std::int64_t batch = 1;
  std::int64_t m = 1;
  std::int64_t n = 1;
  std::int64_t k = 1;
  bool transposed_a = false;
  bool transposed_b = false;
  DType operands = DType::float32;
  DType result = DType::float32;
  std::optional<DType> bias;
  std::optional<MapCode> activation;
};

MatmulOperand matrix(DType dtype, std::int64_t batch, std::int64_t rows, std::int64_t columns,
                     bool transposed) {
  MatmulOperand operand{dtype, batch * rows * columns, columns, 1, {}};
  if (transposed) {
    operand.row = 1;
    operand.column = rows;
  }
  if (batch != 1) operand.batch.push_back(rows * columns);
  return operand;
}

Buffer filled(DType dtype, std::int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> value(-3, 3);
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& each : values) each = value(random);
  Buffer buffer(dtype, n);
  buffer.set(values);
  return buffer;
}

double activate(std::optional<MapCode> code, double x) {
  if (!code) return x;
  if (*code == MapCode::relu) return x < 0 ? 0 : x;
  if (*code == MapCode::tanh) return std::tanh(x);
  if (*code == MapCode::sigmoid) return 1 / (1 + std::exp(-x));
  if (*code == MapCode::silu) return x / (1 + std::exp(-x));
  if (*code == MapCode::softplus) return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0);
  if (*code == MapCode::gelu_erf) return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(u));
}

MatmulArgs args_of(const Case& c) {
  MatmulArgs args;
  if (c.batch != 1) args.batch.push_back(c.batch);
  args.m = c.m;
  args.n = c.n;
  args.k = c.k;
  args.a = matrix(c.operands, c.batch, c.m, c.k, c.transposed_a);
  args.b = matrix(c.operands, c.batch, c.k, c.n, c.transposed_b);
  args.c = matrix(c.result, c.batch, c.m, c.n, false);
  args.bias = c.bias;
  args.activation = c.activation;
  return args;
}

Buffer run(const Case& c, int threads) {
  const MatmulArgs args = args_of(c);
  const Buffer a = filled(c.operands, args.a.elements, 1);
  const Buffer b = filled(c.operands, args.b.elements, 2);
  const Buffer bias = filled(c.bias.value_or(DType::float32), c.n, 3);
  Buffer y(c.result, args.c.elements);
  Buffer workspace(DType::uint8, matmul_workspace_bytes(args));
  const MatmulKernel kernel = prepare_matmul(args, CpuDevice{threads});
  kernel(a.data(), b.data(), c.bias ? bias.data() : nullptr, y.data(), workspace.data());
  const Buffer first = y;
  kernel(a.data(), b.data(), c.bias ? bias.data() : nullptr, y.data(), workspace.data());
  CHECK(first == y);
  return y;
}

void check_case(const Case& c, double tolerance = 0.0) {
  const MatmulArgs args = args_of(c);
  const std::vector<double> a = filled(c.operands, args.a.elements, 1).get();
  const std::vector<double> b = filled(c.operands, args.b.elements, 2).get();
  const std::vector<double> bias = filled(DType::float64, c.n, 3).get();
  std::vector<double> expected;
  for (std::int64_t batch = 0; batch < c.batch; ++batch) {
    for (std::int64_t i = 0; i < c.m; ++i) {
      for (std::int64_t j = 0; j < c.n; ++j) {
        double sum = c.bias ? bias[static_cast<std::size_t>(j)] : 0.0;
        for (std::int64_t p = 0; p < c.k; ++p) {
          sum +=
              a[static_cast<std::size_t>(batch * c.m * c.k + i * args.a.row + p * args.a.column)] *
              b[static_cast<std::size_t>(batch * c.k * c.n + p * args.b.row + j * args.b.column)];
        }
        expected.push_back(activate(c.activation, sum));
      }
    }
  }
  Buffer rounded(c.result, args.c.elements);
  rounded.set(expected);
  const std::vector<double> wanted = rounded.get();
  for (const int threads : {1, 2}) {
    const std::vector<double> found = run(c, threads).get();
    double worst = 0.0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      worst = std::max(worst, std::abs(found[i] - wanted[i]) / std::max(1.0, std::abs(wanted[i])));
    }
    INFO(c.batch << "x" << c.m << "x" << c.n << "x" << c.k << (c.transposed_a ? " a^T" : "")
                 << (c.transposed_b ? " b^T" : "") << " " << name_of(c.operands) << " to "
                 << name_of(c.result) << ", " << threads << " threads");
    CHECK(worst <= tolerance);
  }
}

TEST_CASE("products of every layout, tiny to medium") {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                {16, 1, 4},
                                {4, 1, 16},
                                {1, 7, 5},
                                {3, 70, 9},
                                {33, 17, 65},
                                {64, 64, 64},
                                {100, 1, 300},
                                {1, 300, 100},
                                {129, 100, 31},
                                {300, 10, 128}}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        for (const std::int64_t batch : {1, 3}) {
          check_case({batch, m, n, k, ta, tb, DType::float32, DType::float32, {}, {}});
          check_case({batch, m, n, k, ta, tb, DType::float64, DType::float64, {}, {}});
          check_case({batch, m, n, k, ta, tb, DType::bfloat16, DType::float32, {}, {}});
          check_case({batch, m, n, k, ta, tb, DType::bfloat16, DType::bfloat16, {}, {}});
        }
      }
    }
  }
}

TEST_CASE("products of other dtypes are converted") {
  for (const auto& [from, to] : {std::pair{DType::float16, DType::float16},
                                 {DType::float16, DType::float32},
                                 {DType::float32, DType::bfloat16},
                                 {DType::float32, DType::float64},
                                 {DType::int32, DType::int32},
                                 {DType::int64, DType::int64}}) {
    check_case({2, 5, 6, 7, false, true, from, to, {}, {}});
    check_case({1, 40, 50, 60, true, false, from, to, {}, {}});
  }
}

TEST_CASE("empty products") {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64}) {
    check_case({1, 0, 5, 6, false, false, dtype, dtype, {}, {}});
    check_case({1, 5, 0, 6, false, false, dtype, dtype, {}, {}});
    check_case({1, 5, 6, 0, false, false, dtype, dtype, {}, {}});
    check_case({1, 5, 6, 0, false, false, dtype, dtype, dtype, MapCode::relu});
    check_case({0, 5, 6, 3, false, false, dtype, dtype, {}, {}});
  }
}

TEST_CASE("bias and activation") {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{5, 7, 3}, {70, 65, 80}}) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      check_case({1, m, n, k, false, false, dtype, dtype, dtype, {}});
      check_case({1, m, n, k, false, false, dtype, DType::float32, dtype, MapCode::relu});
      check_case({3, m, n, k, false, true, dtype, DType::float32, DType::float32, MapCode::relu});
    }
    for (const MapCode code : {MapCode::sigmoid, MapCode::tanh, MapCode::gelu_erf,
                               MapCode::gelu_tanh, MapCode::silu, MapCode::softplus}) {
      CHECK(can_fuse_activation(code));
      check_case({1, m, n, k, false, false, DType::float32, DType::float32, DType::float32, code},
                 2e-5);
      check_case({1, m, n, k, false, false, DType::float32, DType::float32, {}, code}, 2e-5);
    }
  }
  CHECK_FALSE(can_fuse_activation(MapCode::power));
}

TEST_CASE("batches with strides of their own") {
  // q [b, s, h, d] and k [b, t, h, d] as products over d for every b and h: [b, h, s, t].
  const std::int64_t b = 2;
  const std::int64_t s = 17;
  const std::int64_t t = 19;
  const std::int64_t h = 3;
  for (const std::int64_t d : {4, 64}) {
    for (const DType dtype : {DType::float32, DType::float64}) {
      MatmulArgs args;
      args.batch = {b, h};
      args.m = s;
      args.n = t;
      args.k = d;
      args.a = {dtype, b * s * h * d, h * d, 1, {s * h * d, d}};
      args.b = {dtype, b * t * h * d, 1, h * d, {t * h * d, d}};
      args.c = {dtype, b * h * s * t, t, 1, {h * s * t, s * t}};
      const Buffer q = filled(dtype, args.a.elements, 1);
      const Buffer k = filled(dtype, args.b.elements, 2);
      Buffer y(dtype, args.c.elements);
      Buffer workspace(DType::uint8, matmul_workspace_bytes(args));
      prepare_matmul(args, CpuDevice{2})(q.data(), k.data(), nullptr, y.data(), workspace.data());
      const std::vector<double> x = q.get();
      const std::vector<double> z = k.get();
      std::vector<double> expected;
      for (std::int64_t i = 0; i < b * h * s * t; ++i) {
        const std::int64_t batch = i / (h * s * t);
        const std::int64_t head = i / (s * t) % h;
        const std::int64_t row = i / t % s;
        const std::int64_t column = i % t;
        double sum = 0.0;
        for (std::int64_t p = 0; p < d; ++p) {
          sum += x[static_cast<std::size_t>(((batch * s + row) * h + head) * d + p)] *
                 z[static_cast<std::size_t>(((batch * t + column) * h + head) * d + p)];
        }
        expected.push_back(sum);
      }
      CHECK(y.get() == expected);
    }
  }
}

TEST_CASE("results whose rows are not dense are refused") {
  MatmulArgs args = args_of({1, 4, 4, 4, false, false, DType::float32, DType::float32, {}, {}});
  std::swap(args.c.row, args.c.column);
  CHECK_THROWS(prepare_matmul(args, CpuDevice{1}));
}

}  // namespace
}  // namespace tessera::kernels
