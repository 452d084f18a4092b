// Cases of layer_norm and rms_norm.
#include <cmath>

#include "base/error.h"
#include "tests/ops/values.h"

namespace tessera::testing {
namespace {

Tensors layer(Builder&, const Tensors& x) { return {ops::layer_norm(x[0], x[1], x[2], 1e-3)}; }
Tensors layer_plain(Builder&, const Tensors& x) { return {ops::layer_norm(x[0], {}, {}, 1e-3)}; }
Tensors layer_gamma(Builder&, const Tensors& x) { return {ops::layer_norm(x[0], x[1], {}, 1e-3)}; }
Tensors layer_beta(Builder&, const Tensors& x) { return {ops::layer_norm(x[0], {}, x[1], 1e-3)}; }
Tensors root(Builder&, const Tensors& x) { return {ops::rms_norm(x[0], x[1], 1e-3)}; }
Tensors root_plain(Builder&, const Tensors& x) { return {ops::rms_norm(x[0], {}, 1e-3)}; }

// Rows of 4 and 8: means of whole numbers are then exact in binary.
TEST_CASE("layer_norm") {
  check_op({{real({6, 4}), real({4}), real({4})},
            {real({5, 8}), real({8}), real({8})},
            {real({1, 4}), real({4}), real({4})},
            {real({2, 3, 4}), real({4}), real({4})},
            {real({0, 4}), real({4}), real({4})},
            {real({4}), real({4}), real({4})}},
           layer);
  check_op({{real({6, 4})}, {real({3, 8})}}, layer_plain);
  check_op({{real({6, 4}), real({4})}, {real({3, 8}), real({8})}}, layer_gamma);
  check_op({{real({6, 4}), real({4})}, {real({3, 8}), real({8})}}, layer_beta);
}

TEST_CASE("rms_norm") {
  check_op({{real({6, 4}), real({4})}, {real({5, 8}), real({8})}, {real({2, 3, 4}), real({4})}},
           root);
  check_op({{real({6, 4})}, {real({1, 8})}}, root_plain);
}

TEST_CASE("normalisation of odd row lengths") {
  Options options;
  options.tolerance = 1e-5;
  options.reason = "means over 7 and 33 elements are not exact, so splitting dy rounds differently";
  check_op({{real({6, 7}), real({7}), real({7})}, {real({3, 33}), real({33}), real({33})}}, layer,
           options);
  check_op({{real({6, 7}), real({7})}}, root, options);
  check_op({{real({4, 1}), real({1}), real({1})}}, layer, options);
}

TEST_CASE("normalisation in 16 bits, with parameters of either type") {
  Options options;
  options.gradient = false;  // done in float64 above
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    options.tolerance = dtype == DType::bfloat16 ? 0.02 : 2e-3;
    options.reason = "parts of pending sums are rounded to 16 bits";
    check_op({{real({6, 4}, {}, dtype), real({4}, {}, dtype), real({4}, {}, dtype)},
              {real({6, 4}, {}, dtype), real({4}), real({4})}},
             layer, options);
    check_op({{real({6, 4}, {}, dtype), real({4})}}, root, options);
  }
}

TEST_CASE("normalisation values") {
  const double std_of = std::sqrt(1.25 + 1e-3);
  const std::vector<Given> operands{
      {{2, 4}, {1, 2, 3, 4, 8, 8, 8, 8}}, {{4}, {1, 2, 3, 4}}, {{4}, {0, 0, 1, 1}}};
  check_near(result_of(operands, layer),
             {-1.5 / std_of, -1.0 / std_of, 1.5 / std_of + 1, 6.0 / std_of + 1, 0, 0, 1, 1}, 1e-6);
  const double root_of = std::sqrt(7.5 + 1e-3);
  const std::vector<Given> row{{{1, 4}, {1, 2, 3, 4}}, {{4}, {1, 1, 2, 1}}};
  check_near(result_of(row, root), {1 / root_of, 2 / root_of, 6 / root_of, 4 / root_of}, 1e-6);
}

TEST_CASE("layer_norm of rows far from zero") {
  std::vector<double> x;
  std::vector<double> expected;
  for (int i = 0; i < 64; ++i) {
    x.push_back(4096.0 + i % 2);
    expected.push_back((i % 2 - 0.5) / std::sqrt(0.25 + 1e-3));
  }
  check_near(result_of({{{1, 64}, x}}, layer_plain), expected, 1e-5);
}

TEST_CASE("normalisation says which parameter does not fit") {
  const std::vector<Given> operands{{{2, 4}, {}}, {{3}, {}}, {{4}, {}}};
  CHECK_THROWS_WITH(
      result_of(operands, layer),
      Catch::Contains("parameter float32 [3] does not go with") && Catch::Contains("[2, 4]"));
}

TEST_CASE("normalisation does not depend on threads") {
  check_threads({real({1000, 60}), real({60}), real({60})}, layer);
  check_threads({real({3000, 20}), real({20})}, root);
}

TEST_CASE("normalisation in all dtypes") {
  check_dtypes({real({9, 40}), real({40}), real({40})}, layer);
  check_dtypes({real({40, 9})}, layer_plain);
  check_dtypes({real({2, 3, 70}), real({70})}, root);
}

}  // namespace
}  // namespace tessera::testing
