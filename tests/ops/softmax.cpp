// Cases of softmax, log_softmax and sparse_softmax_cross_entropy.
#include <cmath>

#include "base/error.h"
#include "runtime/ops/gradients.h"
#include "tests/ops/values.h"

namespace tessera::testing {
namespace {

const DType kFloating[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

Tensors soft(Builder&, const Tensors& x) { return {ops::softmax(x[0])}; }
Tensors log_soft(Builder&, const Tensors& x) { return {ops::log_softmax(x[0])}; }
Tensors cross_entropy(Builder&, const Tensors& x) {
  return {ops::sparse_softmax_cross_entropy(x[0], x[1])};
}

std::vector<double> reference_softmax(const std::vector<double>& x) {
  const double largest = *std::max_element(x.begin(), x.end());
  std::vector<double> y;
  double sum = 0.0;
  for (const double value : x) {
    y.push_back(std::exp(value - largest));
    sum += y.back();
  }
  for (double& value : y) value /= sum;
  return y;
}

TEST_CASE("softmax") {
  check_op({{real({6, 4})}, {real({5, 7})}, {real({2, 3, 1})}, {real({1, 2, 5})}, {real({4})}},
           soft);
  check_op({{real({4, 6})}, {real({3, 5})}, {real({2, 3, 4})}},
           [](Builder&, const Tensors& x) { return Tensors{ops::softmax(x[0], 0)}; });
  for (const DType dtype : kFloating) check_op({{real({5, 6}, {}, dtype)}}, soft);
}

TEST_CASE("log_softmax") {
  Options options;
  // Its backward multiplies pending gradients by exp(y): products of real numbers.
  options.tolerance = 1e-3;  // terms of up to exp(4) * 50 cancel
  options.reason = "exp(y) is no whole number, so splitting dy rounds differently";
  check_op({{real({6, 4})}, {real({5, 7})}, {real({2, 3, 1})}}, log_soft, options);
  check_op(
      {{real({4, 6})}},
      [](Builder&, const Tensors& x) { return Tensors{ops::log_softmax(x[0], -2)}; }, options);
}

TEST_CASE("softmax values, short and long rows, all dtypes") {
  for (const std::size_t columns : {1UL, 3UL, 17UL, 1024UL, 1025UL, 3000UL}) {
    std::vector<double> row(columns);
    for (std::size_t i = 0; i < columns; ++i) {
      row[i] = static_cast<double>(i * 37 % 64) / 8.0 - 4.0;
    }
    std::vector<double> x = row;
    x.insert(x.end(), row.rbegin(), row.rend());
    std::vector<double> expected = reference_softmax(row);
    std::vector<double> logarithms;
    for (const double value : expected) logarithms.push_back(std::log(value));
    const std::size_t half = columns;
    expected.resize(2 * half);
    logarithms.resize(2 * half);
    std::reverse_copy(expected.begin(), expected.begin() + static_cast<long>(half),
                      expected.begin() + static_cast<long>(half));
    std::reverse_copy(logarithms.begin(), logarithms.begin() + static_cast<long>(half),
                      logarithms.begin() + static_cast<long>(half));
    const Shape shape{2, static_cast<std::int64_t>(columns)};
    for (const DType dtype : kFloating) {
      const double precision = dtype == DType::float64    ? 1e-14
                               : dtype == DType::float32  ? 1e-6
                               : dtype == DType::bfloat16 ? 4e-3
                                                          : 5e-4;
      INFO(columns << " columns of " << name_of(dtype));
      check_near(result_of({{shape, x, dtype}}, soft), expected, precision);
      check_near(result_of({{shape, x, dtype}}, log_soft), logarithms, precision);
    }
  }
}

TEST_CASE("softmax of extreme rows") {
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(result_of({{{1, 3}, {1e30, 0, -1e30}}}, soft) == std::vector<double>{1, 0, 0});
  CHECK(result_of({{{1, 3}, {0, -inf, 0}}}, soft) == std::vector<double>{0.5, 0, 0.5});
  const std::vector<double> broken = result_of({{{1, 3}, {1, std::nan(""), 2}}}, soft);
  for (const double value : broken) CHECK(std::isnan(value));
  CHECK(result_of({{{0, 3}, {}}}, soft).empty());
  CHECK_THROWS_WITH(result_of({{{3}, {}, DType::int32}}, soft), Catch::Contains("found int32"));
}

TEST_CASE("softmax does not depend on threads") {
  check_threads({real({500, 300})}, soft);
  check_threads({real({50, 3000})}, soft);
  check_threads({real({5000, 10})}, log_soft);
}

TEST_CASE("sparse_softmax_cross_entropy") {
  Options options;
  options.tolerance = 1e-5;
  options.reason = "probabilities are no whole numbers, so splitting dloss rounds differently";
  check_op({{real({6, 4}), whole({6}, -1, 4)},
            {real({5, 7}), whole({5}, 0, 6, DType::int64)},
            {real({2, 3, 2}), whole({2, 3}, 0, 1, DType::uint8)},
            {real({1, 1}), whole({1}, 0, 0)},
            {real({0, 3}), whole({0}, 0, 2)},
            {real({3}), whole({}, 0, 2)}},
           cross_entropy, options);
  options.gradient = false;  // done in float64 above
  options.tolerance = 0.05;  // of terms up to 8
  check_op({{real({4, 5}, {}, DType::bfloat16), whole({4}, 0, 4)},
            {real({4, 5}, {}, DType::float16), whole({4}, 0, 4)}},
           cross_entropy, options);
}

TEST_CASE("sparse_softmax_cross_entropy values") {
  const std::vector<Given> operands{{{4, 3}, {1, 2, 3, 1000, 0, 0, 0, 1000, 0, 1, 1, 1}},
                                    {{4}, {0, 0, 0, 7}, DType::int32}};
  check_near(result_of(operands, cross_entropy),
             {std::log(std::exp(0) + std::exp(1) + std::exp(2)), 0.0, 1000.0, 0.0}, 1e-6);
  const auto wrong = std::vector<Given>{{{4, 3}, {}}, {{3}, {}, DType::int32}};
  CHECK_THROWS_WITH(result_of(wrong, cross_entropy),
                    Catch::Contains("labels [3] do not go with logits [4, 3]"));
}

TEST_CASE("cross-entropy gradients in bfloat16 keep small probabilities of being wrong") {
  graph::VariableTable table;
  graph::Graph graph(table);
  Builder builder(graph);
  const SymbolicTensor logits = builder.input("logits", {1, 2}, DType::bfloat16);
  const SymbolicTensor labels = builder.input("labels", {1}, DType::int32);
  const SymbolicTensor loss = ops::sum(ops::sparse_softmax_cross_entropy(logits, labels));
  const std::vector<SymbolicTensor> targets{logits};
  const SymbolicTensor gradient = ops::gradients(builder, loss, targets).front();
  Interpreter interpreter(graph);
  interpreter.set_input("logits", {7, 0});
  interpreter.set_input("labels", {0});
  interpreter.run();
  const double wrong = 1.0 / (1.0 + std::exp(7.0));
  check_near(interpreter.value(gradient.id), {-wrong, wrong}, 0.01 * wrong);
}

TEST_CASE("cross-entropy does not depend on threads") {
  check_threads({real({4000, 30}), whole({4000}, -1, 30)}, cross_entropy);
}

TEST_CASE("softmax and cross-entropy in all dtypes") {
  check_dtypes({real({9, 20})}, soft);
  check_dtypes({real({3, 1100})}, soft);
  check_dtypes({real({9, 20})}, log_soft);
  check_dtypes({real({70, 20}), whole({70}, -1, 20)}, cross_entropy);
  check_dtypes({real({3, 1100}), whole({3}, 0, 1099)}, cross_entropy);
}

}  // namespace
}  // namespace tessera::testing
