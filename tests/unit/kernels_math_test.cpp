// Accuracy of the vector loops on every instruction-set level that this processor has.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/philox.h"
#include "kernels/vector.h"

namespace tessera::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Every `step`-th float32 by its bits, with all signs, and the special ones.
std::vector<float> sampled_floats(std::uint32_t step) {
  std::vector<float> values = {
      0.0F,           -0.0F,           kInfinity,     -kInfinity,     kNan,   1e-45F, -1e-45F,
      1.1754942e-38F, 1.17549435e-38F, 3.4028235e38F, -3.4028235e38F, 1.0F,   -1.0F,  0.5F,
      88.72283F,      88.72284F,       -87.33655F,    -103.9F,        -104.5F};
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32U); bits += step) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  return values;
}

/// Distance from the exact value in units of the last place of float32 there.
double ulps(float found, double exact) {
  if (std::isnan(exact)) return std::isnan(found) ? 0.0 : 1e30;
  const auto nearest = static_cast<float>(exact);
  if (found == nearest) return 0.0;
  if (std::isinf(nearest) || !std::isfinite(found)) return 1e30;
  const float magnitude = std::max(std::abs(nearest), 1.17549435e-38F);
  const double unit = std::ldexp(1.0, std::ilogb(magnitude) - 23);
  return std::abs(static_cast<double>(found) - exact) / unit;
}

struct Function {
  MapCode code;
  double (*exact)(double);
  double limit;           // ulps
  double absolute = 0.0;  // allowed besides
};

double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double gelu_erf(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
double gelu_tanh(double x) {
  return x * sigmoid(2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
}
double silu(double x) { return x * sigmoid(x); }
double rsqrt(double x) { return 1 / std::sqrt(x); }

const Function kFunctions[] = {
    {MapCode::exp, [](double x) { return std::exp(x); }, 1.01},
    {MapCode::expm1, [](double x) { return std::expm1(x); }, 2.0},
    {MapCode::log, [](double x) { return std::log(x); }, 1.01},
    {MapCode::log1p, [](double x) { return std::log1p(x); }, 2.0},
    {MapCode::tanh, [](double x) { return std::tanh(x); }, 3.0},
    {MapCode::sigmoid, sigmoid, 2.5},
    {MapCode::softplus, softplus, 2.0},
    {MapCode::erf, [](double x) { return std::erf(x); }, 2.0},
    {MapCode::sin, [](double x) { return std::sin(x); }, 1.0},
    {MapCode::cos, [](double x) { return std::cos(x); }, 1.0},
    {MapCode::sqrt, [](double x) { return std::sqrt(x); }, 0.51},
    {MapCode::rsqrt, rsqrt, 1.5},
    {MapCode::silu, silu, 4.0, 1e-37},
    // The tails cancel: what is left is exact to an ulp of 1, times x.
    {MapCode::gelu_erf, gelu_erf, 4.0, 1e-6},
    {MapCode::gelu_tanh, gelu_tanh, 16.0, 1e-7},
};

TEST_CASE("float32 functions are exact to a few ulps on all levels") {
  const std::vector<float> x = sampled_floats(4099);
  std::vector<float> y(x.size());
  for (const VectorLoops* loops : supported_vector_loops()) {
    for (const Function& function : kFunctions) {
      loops->f32.map[static_cast<int>(function.code)][0](x.data(), nullptr, nullptr, y.data(),
                                                         static_cast<std::int64_t>(x.size()));
      double worst = 0.0;
      float where = 0.0F;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double exact = function.exact(static_cast<double>(x[i]));
        // x times a probability: at infinity a product of infinity and 0, as in other libraries.
        const bool gate = function.code == MapCode::silu || function.code == MapCode::gelu_erf ||
                          function.code == MapCode::gelu_tanh;
        if (gate && !std::isfinite(x[i])) continue;
        if (std::abs(static_cast<double>(y[i]) - exact) <= function.absolute) continue;
        const double error = ulps(y[i], exact);
        if (error > worst) {
          worst = error;
          where = x[i];
        }
      }
      INFO(name_of(function.code) << " at " << where << ": " << worst << " ulps");
      CHECK(worst <= function.limit);
    }
  }
}

TEST_CASE("signs of zeros are kept where the function is odd") {
  const float x[] = {-0.0F};
  float y[1];
  for (const VectorLoops* loops : supported_vector_loops()) {
    for (const MapCode code : {MapCode::tanh, MapCode::erf, MapCode::expm1, MapCode::log1p}) {
      loops->f32.map[static_cast<int>(code)][0](x, nullptr, nullptr, y, 1);
      CHECK(std::signbit(y[0]));
    }
  }
}

TEST_CASE("a float32 function gives one value whatever the place in the loop") {
  std::vector<float> x(67, 0.7321F);
  std::vector<float> y(x.size());
  for (const VectorLoops* loops : supported_vector_loops()) {
    for (const Function& function : kFunctions) {
      loops->f32.map[static_cast<int>(function.code)][0](x.data(), nullptr, nullptr, y.data(),
                                                         static_cast<std::int64_t>(x.size()));
      for (const float value : y) CHECK(value == y[0]);
    }
  }
}

TEST_CASE("half-precision conversions round like the scalar ones") {
  const std::vector<float> x = sampled_floats(65537);
  std::vector<std::uint16_t> half(x.size());
  std::vector<float> back(x.size());
  const auto n = static_cast<std::int64_t>(x.size());
  const auto at = [](DType dtype) { return static_cast<std::size_t>(dtype); };
  for (const VectorLoops* loops : supported_vector_loops()) {
    loops->convert[at(DType::float32)][at(DType::float16)](x.data(), half.data(), n);
    loops->convert[at(DType::float16)][at(DType::float32)](half.data(), back.data(), n);
    for (std::size_t i = 0; i < x.size(); ++i) {
      REQUIRE(half[i] == to_float16(x[i]).bits);
      REQUIRE((back[i] == to_float(Float16{half[i]}) || std::isnan(x[i])));
    }
    loops->convert[at(DType::float32)][at(DType::bfloat16)](x.data(), half.data(), n);
    for (std::size_t i = 0; i < x.size(); ++i) REQUIRE(half[i] == to_bfloat16(x[i]).bits);
  }
  std::vector<std::uint16_t> all(65536);
  std::vector<float> values(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const VectorLoops* loops : supported_vector_loops()) {
    loops->convert[at(DType::float16)][at(DType::float32)](all.data(), values.data(), 65536);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const float expected = to_float(Float16{all[i]});
      REQUIRE(std::bit_cast<std::uint32_t>(values[i]) == std::bit_cast<std::uint32_t>(expected));
    }
  }
}

TEST_CASE("floats become integers towards zero, saturating") {
  const std::vector<float> x = {1.9F,       -1.9F,  0.5F,   -0.5F,  3e9F,  -3e9F,
                                1e20F,      -1e20F, kNan,   300.0F, -5.0F, kInfinity,
                                -kInfinity, 255.0F, 256.0F, -0.0F,  1e-30F};
  const auto n = static_cast<std::int64_t>(x.size());
  const auto from = static_cast<std::size_t>(DType::float32);
  constexpr auto kMax32 = std::numeric_limits<std::int32_t>::max();
  constexpr auto kMin32 = std::numeric_limits<std::int32_t>::min();
  constexpr auto kMax64 = std::numeric_limits<std::int64_t>::max();
  constexpr auto kMin64 = std::numeric_limits<std::int64_t>::min();
  for (const VectorLoops* loops : supported_vector_loops()) {
    std::vector<std::int32_t> int32(x.size());
    loops->convert[from][static_cast<std::size_t>(DType::int32)](x.data(), int32.data(), n);
    CHECK(int32 == std::vector<std::int32_t>{1, -1, 0, 0, kMax32, kMin32, kMax32, kMin32, 0, 300,
                                             -5, kMax32, kMin32, 255, 256, 0, 0});
    std::vector<std::int64_t> int64(x.size());
    loops->convert[from][static_cast<std::size_t>(DType::int64)](x.data(), int64.data(), n);
    CHECK(int64 == std::vector<std::int64_t>{1, -1, 0, 0, 3000000000, -3000000000, kMax64, kMin64,
                                             0, 300, -5, kMax64, kMin64, 255, 256, 0, 0});
    std::vector<std::uint8_t> bytes(x.size());
    loops->convert[from][static_cast<std::size_t>(DType::uint8)](x.data(), bytes.data(), n);
    CHECK(bytes ==
          std::vector<std::uint8_t>{1, 0, 0, 0, 255, 0, 255, 0, 0, 255, 0, 255, 0, 255, 255, 0, 0});
    loops->convert[from][static_cast<std::size_t>(DType::boolean)](x.data(), bytes.data(), n);
    CHECK(bytes == std::vector<std::uint8_t>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1});
  }
}

TEST_CASE("uniform draws equal those of base, from any index on, across the border of a word") {
  const std::uint64_t key = 0x123456789ABCDEFU;
  const std::uint64_t border = std::uint64_t{1} << 34U;  // four draws a counter
  std::vector<float> drawn(600);
  for (const VectorLoops* loops : supported_vector_loops()) {
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{250}, border - 21}) {
      for (std::uint64_t offset = 0; offset < 5; ++offset) {
        for (const std::int64_t n : {0, 1, 2, 3, 4, 5, 8, 77, 255, 256, 257, 599}) {
          std::fill(drawn.begin(), drawn.end(), -1.0F);
          loops->uniform(key, 5, first + offset, drawn.data(), n);
          for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
            REQUIRE(drawn[i] == random_uniform(key, 5, first + offset + i));
          }
          REQUIRE(drawn[static_cast<std::size_t>(n)] == -1.0F);
        }
      }
    }
  }
}

TEST_CASE("levels agree on exact operations") {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> whole(-4, 4);
  std::vector<float> a(131);
  std::vector<float> b(131);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(whole(random));
    b[i] = static_cast<float>(whole(random));
  }
  for (const MapCode code :
       {MapCode::add, MapCode::subtract, MapCode::multiply, MapCode::divide, MapCode::maximum,
        MapCode::minimum, MapCode::equal, MapCode::less, MapCode::greater_equal,
        MapCode::logical_and, MapCode::sign, MapCode::round, MapCode::relu}) {
    for (int form = 0; form < (operands_of(code) == 2 ? 4 : 2); ++form) {
      std::vector<std::vector<float>> results;
      for (const VectorLoops* loops : supported_vector_loops()) {
        results.emplace_back(a.size());
        loops->f32.map[static_cast<int>(code)][form](a.data(), b.data(), nullptr,
                                                     results.back().data(), 131);
      }
      for (const auto& result : results) {
        for (std::size_t i = 0; i < result.size(); ++i) {
          REQUIRE(std::bit_cast<std::uint32_t>(result[i]) ==
                  std::bit_cast<std::uint32_t>(results[0][i]));
        }
      }
    }
  }
}

TEST_CASE("NaN passes through maxima, minima and comparisons") {
  const std::vector<float> a = {kNan, 1.0F, kNan, 2.0F};
  const std::vector<float> b = {1.0F, kNan, kNan, 3.0F};
  std::vector<float> y(4);
  for (const VectorLoops* loops : supported_vector_loops()) {
    const auto run = [&](MapCode code) {
      loops->f32.map[static_cast<int>(code)][0](a.data(), b.data(), nullptr, y.data(), 4);
    };
    for (const MapCode code : {MapCode::maximum, MapCode::minimum}) {
      run(code);
      CHECK((std::isnan(y[0]) && std::isnan(y[1]) && std::isnan(y[2]) && !std::isnan(y[3])));
    }
    run(MapCode::equal);
    CHECK(y == std::vector<float>{0, 0, 0, 0});
    run(MapCode::not_equal);
    CHECK(y == std::vector<float>{1, 1, 1, 1});
    run(MapCode::is_finite);
    CHECK(y == std::vector<float>{0, 1, 0, 1});
    std::vector<float> long_row(5000, 1.0F);
    long_row[4097] = kNan;
    CHECK(std::isnan(loops->f32.reduce[static_cast<int>(ReduceCode::max)](long_row.data(), 5000)));
    CHECK(std::isnan(loops->f32.reduce[static_cast<int>(ReduceCode::min)](long_row.data(), 4098)));
    CHECK(loops->f32.reduce[static_cast<int>(ReduceCode::max)](long_row.data(), 4097) == 1.0);
  }
}

}  // namespace
}  // namespace tessera::kernels
