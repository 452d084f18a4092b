// Activation functions and layers: formulas, derivatives, edges.
#include <catch2/catch.hpp>
#include <cmath>

#include "models/activations.h"
#include "runtime/ops/gradients.h"
#include "runtime/ops/ops.h"
#include "tests/unit/models_fixture.h"
#include "tests/unit/models_json.h"

using namespace tessera;
using namespace tessera::models::test;

namespace {

// f and its derivative at the points of x.
std::pair<Values, Values> activation_at(const std::string& name, const Values& x) {
  graph::VariableTable table;
  graph::Graph graph(table);
  graph::Builder builder(graph);
  const json::Value value = json::make(name);
  json::Problems problems;
  const models::Activation activation = models::make_activation(&value, "", problems);
  problems.throw_if_any();
  const auto input =
      builder.input("x", Shape{1, static_cast<std::int64_t>(x.size())}, DType::float64);
  const auto y = activation ? activation(input) : input;
  const auto gradients = ops::gradients(builder, ops::sum(y), std::span(&input, 1));
  testing::Interpreter interpreter(graph);
  interpreter.set_input("x", x);
  interpreter.run();
  return {interpreter.value(y.id),
          gradients[0] ? interpreter.value(gradients[0].id) : Values(x.size(), 0.0)};
}

}  // namespace

TEST_CASE("activation functions follow Keras's formulas") {
  const Values x{-7.0, -2.5, -0.75, -0.25, 0.3, 0.9, 2.5, 7.5};
  using F = double (*)(double);
  const std::map<std::string, F> table{
      {"celu", [](double v) { return v > 0 ? v : std::expm1(v); }},
      {"elu", [](double v) { return v > 0 ? v : std::expm1(v); }},
      {"exponential", [](double v) { return std::exp(v); }},
      {"gelu", [](double v) { return v * 0.5 * std::erfc(-v / std::sqrt(2.0)); }},
      {"hard_shrink", [](double v) { return std::abs(v) > 0.5 ? v : 0.0; }},
      {"hard_sigmoid", [](double v) { return std::clamp(v / 6 + 0.5, 0.0, 1.0); }},
      {"hard_silu", [](double v) { return v * std::clamp(v / 6 + 0.5, 0.0, 1.0); }},
      {"hard_swish", [](double v) { return v * std::clamp(v / 6 + 0.5, 0.0, 1.0); }},
      {"hard_tanh", [](double v) { return std::clamp(v, -1.0, 1.0); }},
      {"leaky_relu", [](double v) { return v > 0 ? v : 0.2 * v; }},
      {"linear", [](double v) { return v; }},
      {"log_sigmoid", [](double v) { return -std::log1p(std::exp(-v)); }},
      {"mish", [](double v) { return v * std::tanh(std::log1p(std::exp(v))); }},
      {"relu", [](double v) { return std::max(v, 0.0); }},
      {"relu6", [](double v) { return std::clamp(v, 0.0, 6.0); }},
      {"selu",
       [](double v) {
         return 1.0507009873554805 * (v > 0 ? v : 1.6732632423543772 * std::expm1(v));
       }},
      {"sigmoid", [](double v) { return 1 / (1 + std::exp(-v)); }},
      {"silu", [](double v) { return v / (1 + std::exp(-v)); }},
      {"soft_shrink", [](double v) { return v > 0.5 ? v - 0.5 : (v < -0.5 ? v + 0.5 : 0.0); }},
      {"softplus", [](double v) { return std::log1p(std::exp(v)); }},
      {"softsign", [](double v) { return v / (1 + std::abs(v)); }},
      {"sparse_plus", [](double v) { return v <= -1 ? 0.0 : (v < 1 ? (v + 1) * (v + 1) / 4 : v); }},
      {"sparse_sigmoid", [](double v) { return std::clamp(0.5 * (v + 1), 0.0, 1.0); }},
      {"squareplus", [](double v) { return (v + std::sqrt(v * v + 4)) / 2; }},
      {"swish", [](double v) { return v / (1 + std::exp(-v)); }},
      {"tanh", [](double v) { return std::tanh(v); }},
      {"tanh_shrink", [](double v) { return v - std::tanh(v); }},
  };
  std::vector<std::string> checked{"glu", "log_softmax", "softmax", "sparsemax"};  // below, layers
  for (const auto& [name, formula] : table) {
    INFO(name);
    checked.push_back(name);
    const auto [y, gradient] = activation_at(name, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      INFO(x[i]);
      constexpr double kStep = 1e-5;
      CHECK(y[i] == Approx(formula(x[i])).margin(1e-7));
      const double slope = (formula(x[i] + kStep) - formula(x[i] - kStep)) / (2 * kStep);
      CHECK(gradient[i] == Approx(slope).margin(1e-6));
    }
  }
  std::sort(checked.begin(), checked.end());
  CHECK(checked == models::activation_names());
}

TEST_CASE("activations stay finite far out") {
  for (const std::string name : {"elu", "selu", "celu", "mish", "softplus", "log_sigmoid"}) {
    INFO(name);
    const auto [y, gradient] = activation_at(name, {-900.0, 900.0});
    for (const double value : y) CHECK(std::isfinite(value));
    for (const double value : gradient) CHECK(std::isfinite(value));
  }
}

TEST_CASE("sparsemax projects onto the simplex") {
  // Two of three in the support: threshold (1.2 + 0.8 - 1) / 2 = 0.5.
  check_near(apply("Activation", "\"activation\": \"sparsemax\"", "[null, 3]", {1.2, 0.8, -3}),
             {0.7, 0.3, 0});
  check_near(apply("Activation", "\"activation\": \"sparsemax\"", "[null, 3]", {2, 2, 2}),
             {1.0 / 3, 1.0 / 3, 1.0 / 3});
  check_near(apply("Activation", "\"activation\": \"sparsemax\"", "[null, 3]", {5, 0, 0, 0, 0, 9}),
             {1, 0, 0, 0, 0, 1});
  check_near(apply("Activation", "\"activation\": \"sparsemax\"", "[null, 1]", {-4}), {1});
}

TEST_CASE("glu gates its first half") {
  check_near(apply("Activation", "\"activation\": \"glu\"", "[null, 4]", {1, -2, 0, 100}),
             {0.5, -2});
}

TEST_CASE("an activation may be a layer") {
  Loaded loaded(model_of("[null, 2]", {{"Activation",
                                        R"("activation": {"module": "keras.layers",
                                        "class_name": "LeakyReLU",
                                        "config": {"negative_slope": 0.5}})"}}));
  Runner runner(loaded, 1);
  check_near(runner({{-2, 4}}), {-1, 4});
}

TEST_CASE("ReLU with a slope, a limit and a threshold") {
  const Values x{-2, 0.1, 0.5, 3};
  check_near(apply("ReLU", "", "[null, 4]", x), {0, 0.1, 0.5, 3});
  check_near(apply("ReLU", "\"negative_slope\": 0.1", "[null, 4]", x), {-0.2, 0.1, 0.5, 3});
  check_near(apply("ReLU", "\"max_value\": 1", "[null, 4]", x), {0, 0.1, 0.5, 1});
  check_near(
      apply("ReLU", R"("max_value": 1, "negative_slope": 0.1, "threshold": 0.2)", "[null, 4]", x),
      {-0.22, -0.01, 0.5, 1});
}

TEST_CASE("Softmax over several axes, and with masked positions") {
  check_near(apply("Softmax", "\"axis\": [1, 2]", "[null, 2, 2]", {0, 0, 0, 0}),
             {0.25, 0.25, 0.25, 0.25});
  Loaded loaded(
      model_of("[null, 3, 1]", {{"Masking", "\"mask_value\": 0"}, {"Softmax", "\"axis\": 1"}}));
  Runner runner(loaded, 2);
  check_near(runner({{1, 0, 1, 0, 0, 0}}), {0.5, 0, 0.5, 0, 0, 0});
}
