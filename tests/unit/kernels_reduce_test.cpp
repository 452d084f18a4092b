// Reductions, argmax and sources against plain loops: every set of dimensions, dtypes, threads.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/philox.h"
#include "kernels/argmax.h"
#include "kernels/reduce.h"
#include "kernels/source.h"
#include "tests/support/buffer.h"

namespace tessera::kernels {
namespace {

using testing::Buffer;

std::vector<double> draw(std::int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> value(0, 3);
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& each : values) each = value(random);
  return values;
}

bool is_reduced(const std::vector<int>& dims, std::size_t dim) {
  return std::find(dims.begin(), dims.end(), static_cast<int>(dim)) != dims.end();
}

std::vector<double> reference(const ReduceArgs& args, const std::vector<double>& x) {
  std::int64_t outputs = 1;
  for (std::size_t dim = 0; dim < args.shape.rank(); ++dim) {
    if (!is_reduced(args.dims, dim)) outputs *= args.shape[dim];
  }
  const double infinity = std::numeric_limits<double>::infinity();
  const double identity = args.code == ReduceCode::sum   ? 0.0
                          : args.code == ReduceCode::max ? -infinity
                                                         : infinity;
  std::vector<double> result(static_cast<std::size_t>(outputs), identity);
  for (std::size_t i = 0; i < x.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    std::int64_t at = 0;
    std::int64_t stride = 1;
    for (std::size_t dim = args.shape.rank(); dim-- > 0;) {
      if (!is_reduced(args.dims, dim)) {
        at += rest % args.shape[dim] * stride;
        stride *= args.shape[dim];
      }
      rest /= args.shape[dim];
    }
    double& value = result[static_cast<std::size_t>(at)];
    if (args.code == ReduceCode::sum) value += x[i];
    if (args.code == ReduceCode::max) value = std::max(value, x[i]);
    if (args.code == ReduceCode::min) value = std::min(value, x[i]);
  }
  return result;
}

Buffer run(const ReduceArgs& args, const Buffer& x, std::int64_t outputs, int threads) {
  Buffer y(args.to, outputs);
  Buffer workspace(DType::uint8, reduce_workspace_bytes(args));
  prepare_reduce(args, CpuDevice{threads})(x.data(), y.data(), workspace.data());
  return y;
}

void check_reduce(const ReduceArgs& args) {
  const std::vector<double> values = draw(args.shape.elements(), 5);
  Buffer x(args.from, args.shape.elements());
  x.set(values);
  const std::vector<double> expected = reference(args, x.get());
  Buffer rounded(args.to, static_cast<std::int64_t>(expected.size()));
  rounded.set(expected);
  for (const int threads : {1, 3}) {
    INFO(to_string(args.shape) << " " << name_of(args.from) << " code "
                               << static_cast<int>(args.code) << " dims " << args.dims.size()
                               << " threads " << threads);
    CHECK(run(args, x, rounded.elements(), threads).get() == rounded.get());
  }
}

TEST_CASE("every set of dimensions is reduced") {
  for (const Shape& shape :
       {Shape{}, Shape{1}, Shape{7}, Shape{5, 3}, Shape{2, 3, 4}, Shape{3, 1, 5, 2}, Shape{0, 4},
        Shape{4, 0}, Shape{1, 6, 1}, Shape{70, 33}, Shape{3, 40, 5, 6}, Shape{2, 1500},
        Shape{1500, 2}, Shape{300, 1100}}) {
    for (unsigned set = 0; set < (1U << shape.rank()); ++set) {
      std::vector<int> dims;
      for (std::size_t dim = 0; dim < shape.rank(); ++dim) {
        if (((set >> dim) & 1U) != 0) dims.push_back(static_cast<int>(dim));
      }
      for (const ReduceCode code : {ReduceCode::sum, ReduceCode::max, ReduceCode::min}) {
        if (code != ReduceCode::sum && shape.elements() == 0) continue;
        check_reduce({code, shape, dims, DType::float32, DType::float32});
      }
    }
  }
}

TEST_CASE("every dtype is reduced") {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16,
                            DType::int32, DType::int64, DType::uint8, DType::boolean}) {
    for (const ReduceCode code : {ReduceCode::sum, ReduceCode::max, ReduceCode::min}) {
      const bool counts = code == ReduceCode::sum && size_of(dtype) == 1;
      const DType to = counts ? DType::int32 : dtype;
      for (const Shape& shape : {Shape{3, 17}, Shape{17, 3}, Shape{40, 1030}, Shape{2, 3000, 2}}) {
        check_reduce({code, shape, {0}, dtype, to});
        check_reduce({code, shape, {1}, dtype, to});
      }
    }
  }
}

TEST_CASE("large sums are exact to rounding and do not depend on threads") {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> value(0.0F, 1.0F);
  for (const Shape& shape :
       {Shape{3000000}, Shape{300000, 10}, Shape{10, 300000}, Shape{1000, 3000}}) {
    Buffer x(DType::float32, shape.elements());
    auto* elements = static_cast<float*>(x.data());
    double total = 0.0;
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      elements[i] = value(random);
      total += static_cast<double>(elements[i]);
    }
    std::vector<int> all;
    for (std::size_t dim = 0; dim < shape.rank(); ++dim) all.push_back(static_cast<int>(dim));
    const ReduceArgs whole{ReduceCode::sum, shape, all, DType::float32, DType::float32};
    const Buffer sum = run(whole, x, 1, 1);
    CHECK(std::abs(sum.get()[0] - total) <= total * 1e-7);
    CHECK(sum == run(whole, x, 1, 2));
    CHECK(sum == run(whole, x, 1, 4));
    if (shape.rank() < 2) continue;
    for (const int dim : {0, 1}) {
      const ReduceArgs part{ReduceCode::sum, shape, {dim}, DType::float32, DType::float32};
      const std::int64_t outputs = shape[static_cast<std::size_t>(1 - dim)];
      const Buffer one = run(part, x, outputs, 1);
      CHECK(one == run(part, x, outputs, 2));
      CHECK(one == run(part, x, outputs, 3));
      double parts = 0.0;
      for (const double each : one.get()) parts += each;
      CHECK(std::abs(parts - total) <= total * 1e-6);
    }
  }
}

TEST_CASE("NaN is kept by maxima and minima of columns and rows") {
  Buffer x(DType::float32, 200 * 300);
  static_cast<float*>(x.data())[150 * 300 + 299] = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceCode code : {ReduceCode::max, ReduceCode::min}) {
    const Buffer columns = run({code, {200, 300}, {0}, DType::float32, DType::float32}, x, 300, 1);
    CHECK(std::isnan(columns.get()[299]));
    CHECK(columns.get()[298] == 0.0);
    const Buffer rows = run({code, {200, 300}, {1}, DType::float32, DType::float32}, x, 200, 2);
    CHECK(std::isnan(rows.get()[150]));
    CHECK(rows.get()[151] == 0.0);
  }
}

TEST_CASE("argmax and argmin find the first") {
  for (const bool smallest : {false, true}) {
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64, DType::int32,
                              DType::int64, DType::uint8}) {
      for (const auto& shape : {std::array<std::int64_t, 3>{3, 5, 1},
                                               {2, 1, 7},
                                               {1, 2000, 1},
                                               {4, 6, 700},
                                               {0, 3, 2},
                                               {100, 1500, 1}}) {
        const std::int64_t outer = shape[0];
        const std::int64_t size = shape[1];
        const std::int64_t inner = shape[2];
        const std::vector<double> values = draw(outer * size * inner, 9);
        Buffer x(dtype, outer * size * inner);
        x.set(values);
        Buffer y(DType::int32, outer * inner);
        for (const int threads : {1, 3}) {
          prepare_argmax({smallest, outer, size, inner, dtype}, CpuDevice{threads})(
              x.data(), static_cast<std::int32_t*>(y.data()));
          bool right = true;
          for (std::int64_t o = 0; o < outer; ++o) {
            for (std::int64_t i = 0; i < inner; ++i) {
              std::int64_t best = 0;
              const auto at = [&](std::int64_t s) {
                return values[static_cast<std::size_t>((o * size + s) * inner + i)];
              };
              for (std::int64_t s = 1; s < size; ++s) {
                if (smallest ? at(s) < at(best) : at(s) > at(best)) best = s;
              }
              right = right &&
                      y.get()[static_cast<std::size_t>(o * inner + i)] == static_cast<double>(best);
            }
          }
          CHECK(right);
        }
      }
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float x[] = {1.0F, nan, 5.0F, nan};
  std::int32_t row = -1;
  prepare_argmax({false, 1, 4, 1, DType::float32}, CpuDevice{1})(x, &row);
  CHECK(row == 1);
  std::int32_t columns[2] = {-1, -1};
  prepare_argmax({false, 1, 2, 2, DType::float32}, CpuDevice{1})(x, columns);
  CHECK(columns[0] == 1);
  CHECK(columns[1] == 0);
}

TEST_CASE("constants and indices") {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16,
                            DType::int32, DType::int64, DType::uint8}) {
    Buffer x(dtype, 7);
    prepare_full(7, 3.0, dtype, CpuDevice{1})(x.data(), 0);
    CHECK(x.get() == std::vector<double>(7, 3.0));
    Buffer index(dtype, 12);
    const Box box{{1, 5, 0}, {2, 3, 2}};
    prepare_iota(box, 1, dtype, CpuDevice{1})(index.data(), 0);
    CHECK(index.get() == std::vector<double>{5, 5, 6, 6, 7, 7, 5, 5, 6, 6, 7, 7});
  }
  prepare_full(0, 3.0, DType::float32, CpuDevice{2})(nullptr, 0);
}

TEST_CASE("draws depend on the global index alone") {
  const Shape global{40, 30, 20};
  Buffer whole(DType::float32, global.elements());
  for (const Distribution distribution : {Distribution::uniform, Distribution::normal}) {
    prepare_random(distribution, 99, global, {{0, 0, 0}, global}, DType::float32, CpuDevice{2})(
        whole.data(), 4);
    const std::vector<double> values = whole.get();
    for (const std::size_t i : {0UL, 1UL, 777UL, 23999UL}) {
      CHECK(values[i] == static_cast<double>(distribution == Distribution::uniform
                                                 ? random_uniform(99, 4, i)
                                                 : random_normal(99, 4, i)));
    }
    for (const Box& box : {Box{{3, 0, 0}, {5, 30, 20}}, Box{{0, 7, 0}, {40, 11, 20}},
                           Box{{1, 2, 3}, {4, 5, 6}}, Box{{1, 2, 3}, {0, 5, 6}}}) {
      for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64}) {
        Buffer part(dtype, box.elements());
        Buffer expected(dtype, box.elements());
        expected.set(testing::cut(values, global, box));
        prepare_random(distribution, 99, global, box, dtype, CpuDevice{1})(part.data(), 4);
        CHECK(part == expected);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
