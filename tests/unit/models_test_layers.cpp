// What layers compute where no acceptance case looks: training-only layers, masks, variants.
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "models/activations.h"
#include "runtime/ops/gradients.h"
#include "runtime/ops/ops.h"
#include "tests/unit/models_fixture.h"

using namespace tessera;
using namespace tessera::models::test;
using Values = std::vector<double>;

namespace {

// A Sequential "m" of layers given as "ClassName", config members.
std::string model_of(const std::string& shape,
                     const std::vector<std::pair<std::string, std::string>>& layers,
                     const std::string& dtype = "float32") {
  std::string text = R"({"class_name": "Sequential", "config": {"name": "m", "layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "dtype": ")" +
                     dtype + R"(", "batch_shape": )" + shape + "}}";
  int index = 0;
  for (const auto& [class_name, config] : layers) {
    text += R"(, {"class_name": ")" + class_name + R"(", "config": {"name": "l)" +
            std::to_string(index++) + "\"" + (config.empty() ? "" : ", " + config) + "}}";
  }
  return text + "]}}";
}

std::int64_t size_of_batch(const Loaded& loaded, const Values& x) {
  return static_cast<std::int64_t>(x.size()) /
         loaded.model->inputs().front().sample_shape.elements();
}

// Output of one layer without weights, or with weights as they are initialised.
Values apply(const std::string& class_name, const std::string& config, const std::string& shape,
             const Values& x, bool training = false, std::uint64_t step = 0) {
  Loaded loaded(model_of(shape, {{class_name, config}}));
  loaded.model->seed = 7;
  Runner runner(loaded, size_of_batch(loaded, x), training);
  return runner({x}, step);
}

double mean_of(const Values& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

void check_near(const Values& a, const Values& b, double tolerance = 1e-6) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    INFO(i);
    CHECK(a[i] == Approx(b[i]).margin(tolerance).epsilon(tolerance));
  }
}

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

TEST_CASE("dropout acts in training only, scales what is kept and follows its stream") {
  const Values ones(4000, 1.0);
  CHECK(apply("Dropout", "\"rate\": 0.25", "[null, 4]", ones) == ones);
  const Values y = apply("Dropout", "\"rate\": 0.25", "[null, 4]", ones, true);
  std::size_t dropped = 0;
  for (const double value : y) {
    const bool zero = value == 0.0;
    CHECK((zero || value == Approx(1 / 0.75)));
    dropped += zero ? 1 : 0;
  }
  CHECK(static_cast<double>(dropped) / 4000 == Approx(0.25).margin(0.03));
  CHECK(apply("Dropout", "\"rate\": 0.25", "[null, 4]", ones, true) == y);
  CHECK(apply("Dropout", "\"rate\": 0.25", "[null, 4]", ones, true, 1) != y);
  CHECK(apply("Dropout", R"("rate": 0.25, "seed": 3)", "[null, 4]", ones, true) != y);
  CHECK(apply("Dropout", "\"rate\": 0", "[null, 4]", ones, true) == ones);
  CHECK(apply("Dropout", "\"rate\": 1", "[null, 4]", ones, true) == Values(4000, 0.0));
}

TEST_CASE("two dropout layers, and two calls of one, draw independently") {
  const Values ones(400, 1.0);
  Loaded loaded(R"({"class_name": "Functional", "config": {"name": "net", "layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 4]}},
    {"class_name": "Dropout", "config": {"name": "a", "rate": 0.5},
     "inbound_nodes": [[["x", 0, 0, {}]], [["x", 0, 0, {}]]]},
    {"class_name": "Dropout", "config": {"name": "b", "rate": 0.5},
     "inbound_nodes": [[["x", 0, 0, {}]]]}],
    "input_layers": [["x", 0, 0]],
    "output_layers": [["a", 0, 0], ["a", 1, 0], ["b", 0, 0]]}})");
  Runner runner(loaded, 100, true);
  const Values first = runner({ones});
  const Values second = runner.value(runner.result().outputs[1]);
  const Values third = runner.value(runner.result().outputs[2]);
  CHECK(first != second);
  CHECK(first != third);
  CHECK(second != third);
}

TEST_CASE("spatial dropout drops whole channels, noise_shape shares draws") {
  const auto constant_over = [](const Values& y, std::size_t positions, std::size_t channels) {
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t sample = i / (positions * channels);
      if (y[i] != y[sample * positions * channels + i % channels]) return false;
    }
    return true;
  };
  const Values ones(960, 1.0);
  Values y = apply("SpatialDropout1D", "\"rate\": 0.5", "[null, 4, 3]", ones, true);
  CHECK(constant_over(y, 4, 3));
  CHECK(mean_of(y) == Approx(1.0).margin(0.25));
  CHECK(std::count(y.begin(), y.end(), 0.0) > 0);
  CHECK(constant_over(apply("SpatialDropout2D", "\"rate\": 0.5", "[null, 2, 2, 3]", ones, true), 4,
                      3));
  CHECK(constant_over(apply("SpatialDropout3D", "\"rate\": 0.5", "[null, 2, 2, 2, 3]", ones, true),
                      8, 3));
  y = apply("SpatialDropout2D", R"("rate": 0.5, "data_format": "channels_first")",
            "[null, 3, 2, 2]", ones, true);
  for (std::size_t i = 0; i < y.size(); ++i) CHECK(y[i] == y[i - i % 4]);
  y = apply("Dropout", R"("rate": 0.5, "noise_shape": [null, 1, 3])", "[null, 4, 3]", ones, true);
  CHECK(constant_over(y, 4, 3));
  y = apply("Dropout", R"("rate": 0.5, "noise_shape": [1, null, null])", "[null, 4, 3]", ones,
            true);
  for (std::size_t i = 12; i < y.size(); ++i) CHECK(y[i] == y[i % 12]);
}

TEST_CASE("noise has its mean and deviation, in training only") {
  const Values twos(20000, 2.0);
  const auto deviation = [](const Values& y) {
    double sum = 0.0;
    for (const double value : y) sum += (value - mean_of(y)) * (value - mean_of(y));
    return std::sqrt(sum / static_cast<double>(y.size()));
  };
  const Values small(twos.begin(), twos.begin() + 2000);
  for (const auto& [class_name, config, expected] :
       {std::tuple{"GaussianNoise", "\"stddev\": 0.5", 0.5},
        std::tuple{"GaussianDropout", "\"rate\": 0.2", 1.0}}) {
    INFO(class_name);
    CHECK(apply(class_name, config, "[null, 4]", small) == small);
    const Values y = apply(class_name, config, "[null, 4]", small, true);
    CHECK(mean_of(y) == Approx(2.0).margin(0.1));
    CHECK(deviation(y) == Approx(expected).epsilon(0.08));
  }
  // Dropped values saturate; inputs of mean 0 and variance 1 keep both.
  Values normal;
  for (int i = 0; i < 2000; ++i) normal.push_back(i % 2 == 0 ? 1.0 : -1.0);
  const Values y = apply("AlphaDropout", "\"rate\": 0.3", "[null, 4]", normal, true);
  CHECK(mean_of(y) == Approx(0.0).margin(0.08));
  CHECK(deviation(y) == Approx(1.0).epsilon(0.08));
  CHECK(apply("AlphaDropout", "\"rate\": 0.3", "[null, 4]", normal) == normal);
}

TEST_CASE("activity penalties are sums over all values, divided by the batch") {
  const Values x{1, -2, 3, -4};
  Loaded loaded(model_of("[null, 2]", {{"ActivityRegularization", R"("l1": 0.1, "l2": 0.01)"},
                                       {"Activation", R"("activation": "relu",
                      "activity_regularizer": {"class_name": "L2", "config": {"l2": 0.5}})"}}));
  Runner runner(loaded, 2, true);
  check_near(runner({x}), {1, 0, 3, 0});
  REQUIRE(runner.result().added_losses.size() == 2);
  check_near(runner.value(runner.result().added_losses[0]), {(0.1 * 10 + 0.01 * 30) / 2});
  check_near(runner.value(runner.result().added_losses[1]), {0.5 * 10 / 2});
}

TEST_CASE("BatchNormalization takes batch statistics in training and moves its own") {
  Loaded loaded(
      model_of("[null, 2]", {{"BatchNormalization", R"("momentum": 0.9, "epsilon": 0)"}}));
  Runner runner(loaded, 2, true);
  check_near(runner({{1, 10, 3, 30}}), {-1, -1, 1, 1});
  check_near(runner.interpreter().variable(loaded.id("m/l0/moving_mean")), {0.2, 2});
  check_near(runner.interpreter().variable(loaded.id("m/l0/moving_variance")), {1, 0.9 + 10});
  Runner inference(loaded, 1);
  check_near(inference({{1, 10}}), {1, 10});
  CHECK(inference.graph().assignments.empty());
}

TEST_CASE("BatchNormalization leaves masked positions out of its statistics") {
  Loaded loaded(
      model_of("[null, 3, 1]", {{"Masking", "\"mask_value\": -1"},
                                {"BatchNormalization", R"("momentum": 0.5, "epsilon": 0)"}}));
  Runner runner(loaded, 1, true);
  const Values y = runner({{1, 3, -1}});
  CHECK(y[0] == Approx(-1).epsilon(1e-4));
  CHECK(y[1] == Approx(1).epsilon(1e-4));
  check_near(runner.interpreter().variable(loaded.id("m/l1/moving_mean")), {1.0}, 1e-5);
  check_near(runner.interpreter().variable(loaded.id("m/l1/moving_variance")), {1.0}, 1e-5);
}

TEST_CASE("a BatchNormalization that is called twice moves twice") {
  Loaded loaded(R"({"class_name": "Functional", "config": {"name": "net", "layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 1]}},
    {"class_name": "BatchNormalization", "config": {"name": "n", "momentum": 0.5},
     "inbound_nodes": [[["x", 0, 0, {}]], [["x", 0, 0, {}]]]}],
    "input_layers": [["x", 0, 0]], "output_layers": [["n", 0, 0], ["n", 1, 0]]}})");
  Runner runner(loaded, 2, true);
  runner({{1, 3}});
  check_near(runner.interpreter().variable(loaded.id("n/moving_mean")), {1.5});
}

TEST_CASE("normalisations in their variants") {
  const Values x{1, 2, 3, 4, 5, 7, 9, 11};
  SECTION("LayerNormalization over the last axis, over all, by deviation only") {
    check_near(apply("LayerNormalization", "\"epsilon\": 0", "[null, 2]", {1, 3, 4, 10}),
               {-1, 1, -1, 1});
    check_near(apply("LayerNormalization", R"("axis": [1, 2], "epsilon": 0)", "[null, 2, 2]",
                     {1, 1, 3, 3}),
               {-1, -1, 1, 1});
    check_near(apply("LayerNormalization", R"("rms_scaling": true, "epsilon": 0)", "[null, 2]",
                     {1, 3, 4, 10}),
               {1, 3, 4.0 / 3, 10.0 / 3});
  }
  SECTION("weights of LayerNormalization") {
    Loaded scale(model_of("[null, 3]", {{"LayerNormalization", "\"center\": false"}}));
    CHECK(scale.paths() == std::vector<std::string>{"m/l0/gamma"});
    Loaded rms(model_of("[null, 2, 3]",
                        {{"LayerNormalization", R"("axis": [1, 2], "rms_scaling": true)"}}));
    CHECK(rms.paths() == std::vector<std::string>{"m/l0/gamma"});
    CHECK(rms.table[rms.id("m/l0/gamma")].shape == Shape{2, 3});
  }
  SECTION("RMSNormalization along another axis") {
    check_near(
        apply("RMSNormalization", R"("axis": 1, "epsilon": 0)", "[null, 2, 1]", {3, 4, 1, 1}),
        {3 / std::sqrt(12.5), 4 / std::sqrt(12.5), 1, 1});
  }
  SECTION("GroupNormalization: instances, one group, channels first") {
    check_near(apply("GroupNormalization", R"("groups": -1, "epsilon": 0)", "[null, 2, 2]",
                     {1, 10, 3, 20}),
               {-1, -1, 1, 1});
    check_near(apply("GroupNormalization", R"("groups": 1, "axis": 1, "epsilon": 0)",
                     "[null, 2, 2]", {1, 1, 3, 3}),
               {-1, -1, 1, 1});
  }
  SECTION("UnitNormalization, also of zeros") {
    check_near(apply("UnitNormalization", "", "[null, 2]", {3, 4, 0, 0}), {0.6, 0.8, 0, 0});
    check_near(apply("UnitNormalization", "\"axis\": [1, 2]", "[null, 2, 2]", {1, 1, 1, 1}),
               {0.5, 0.5, 0.5, 0.5});
  }
}

TEST_CASE("Normalization with given and with stored statistics") {
  check_near(apply("Normalization", R"("mean": [1, 2], "variance": [4, 9])", "[null, 2]", {3, 8}),
             {1, 2});
  check_near(apply("Normalization", R"("mean": [1, 2], "variance": [4, 9], "invert": true)",
                   "[null, 2]", {1, 2}),
             {3, 8});
  check_near(
      apply("Normalization", R"("axis": null, "mean": 1.0, "variance": 4.0)", "[null, 2]", {3, 8}),
      {1, 3.5});
  check_near(apply("Normalization", R"("axis": 1, "mean": [1, 2], "variance": [4, 9])",
                   "[null, 2, 2]", {3, 5, 8, 11}),
             {1, 2, 2, 3});
  Loaded loaded(model_of("[null, 2]", {{"Normalization", ""}}));
  CHECK(loaded.paths() == std::vector<std::string>{"m/l0/mean", "m/l0/variance", "m/l0/count"});
  CHECK(loaded.table[loaded.id("m/l0/count")].dtype == DType::int32);
  Runner runner(loaded, 1);
  runner.interpreter().set_variable(loaded.id("m/l0/mean"), {1, 2});
  runner.interpreter().set_variable(loaded.id("m/l0/variance"), {4, 9});
  check_near(runner({{3, 8}}), {1, 2});
}

TEST_CASE("Rescaling by numbers and by arrays, of whole numbers too") {
  check_near(apply("Rescaling", R"("scale": [1, 10], "offset": [0, 5])", "[null, 2]", {3, 8}),
             {3, 85});
  Loaded loaded(model_of("[null, 2]", {{"Rescaling", "\"scale\": 0.5"}}, "int32"));
  Runner runner(loaded, 1);
  check_near(runner({{3, 8}}), {1.5, 4});
}

TEST_CASE("shapes: Flatten, Reshape, Permute, RepeatVector, Identity") {
  const Values x{1, 2, 3, 4, 5, 6};
  CHECK(apply("Flatten", "\"data_format\": \"channels_first\"", "[null, 2, 3]", x) ==
        Values{1, 4, 2, 5, 3, 6});
  CHECK(apply("Permute", "\"dims\": [2, 1]", "[null, 2, 3]", x) == Values{1, 4, 2, 5, 3, 6});
  CHECK(apply("RepeatVector", "\"n\": 2", "[null, 3]", x) ==
        Values{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6});
  CHECK(apply("Identity", "", "[null, 3]", x) == x);
  Loaded loaded(model_of("[null, 2, 3]", {{"Reshape", "\"target_shape\": [-1, 1]"}}));
  CHECK(loaded.model->outputs().front().sample_shape == Shape{6, 1});
  Loaded scalar(model_of("[null]", {{"Flatten", ""}}));
  CHECK(scalar.model->outputs().front().sample_shape == Shape{1});
}

namespace {

// A Functional model on inputs "x" and "y" whose last layer takes both as a list.
std::string merged(const std::string& shape_x, const std::string& shape_y,
                   const std::string& class_name, const std::string& config) {
  return R"({"class_name": "Functional", "config": {"name": "net", "layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": )" +
         shape_x + R"(}},
    {"class_name": "InputLayer", "config": {"name": "y", "batch_shape": )" +
         shape_y + R"(}},
    {"class_name": ")" +
         class_name + R"(", "config": {"name": "l")" + (config.empty() ? "" : ", " + config) +
         R"(}, "inbound_nodes": [[["x", 0, 0, {}], ["y", 0, 0, {}]]]}],
    "input_layers": [["x", 0, 0], ["y", 0, 0]], "output_layers": [["l", 0, 0]]}})";
}

Values merge(const std::string& shape_x, const std::string& shape_y, const std::string& class_name,
             const std::string& config, const Values& x, const Values& y) {
  Loaded loaded(merged(shape_x, shape_y, class_name, config));
  Runner runner(loaded, size_of_batch(loaded, x));
  return runner({x, y});
}

}  // namespace

TEST_CASE("merging layers broadcast") {
  CHECK(merge("[null, 2, 2]", "[null, 1, 2]", "Add", "", {1, 2, 3, 4}, {10, 20}) ==
        Values{11, 22, 13, 24});
  CHECK(merge("[null, 2, 2]", "[null, 2]", "Multiply", "", {1, 2, 3, 4}, {10, 20}) ==
        Values{10, 40, 30, 80});
  CHECK(merge("[null, 2]", "[null, 2]", "Average", "", {1, 2}, {3, 6}) == Values{2, 4});
  CHECK(merge("[null, 2]", "[null, 2]", "Minimum", "", {1, 7}, {3, 6}) == Values{1, 6});
}

TEST_CASE("Dot contracts, of vectors too, and normalises") {
  CHECK(merge("[null, 2]", "[null, 2]", "Dot", "\"axes\": 1", {1, 2, 3, 4}, {5, 6, 7, 8}) ==
        Values{17, 53});
  CHECK(merge("[null, 1, 2]", "[null, 2, 2]", "Dot", "\"axes\": [2, 1]", {1, 2}, {1, 2, 3, 4}) ==
        Values{7, 10});
  check_near(
      merge("[null, 2]", "[null, 2]", "Dot", R"("axes": -1, "normalize": true)", {3, 4}, {6, 8}),
      {1});
}

TEST_CASE("EinsumDense with an ellipsis at either end") {
  Loaded front(model_of("[null, 2, 3]", {{"EinsumDense",
                                          R"("equation": "...x,xy->...y", "output_shape": 4,
                                          "bias_axes": "y")"}}));
  CHECK(front.table[front.id("m/l0/kernel")].shape == Shape{3, 4});
  CHECK(front.table[front.id("m/l0/bias")].shape == Shape{4});
  CHECK(front.model->outputs().front().sample_shape == Shape{2, 4});
  Loaded back(model_of("[null, 2, 3]", {{"EinsumDense",
                                         R"("equation": "ab...,bc->ac...",
                                         "output_shape": [5, null], "bias_axes": "c")"}}));
  CHECK(back.table[back.id("m/l0/kernel")].shape == Shape{2, 5});
  CHECK(back.table[back.id("m/l0/bias")].shape == Shape{5, 1});
  CHECK(back.model->outputs().front().sample_shape == Shape{5, 3});
  Loaded middle(model_of("[null, 2, 3]", {{"EinsumDense",
                                           R"("equation": "abc,cde->abde",
                                           "output_shape": [2, 4, 5], "bias_axes": "d")"}}));
  CHECK(middle.table[middle.id("m/l0/bias")].shape == Shape{4, 1});
}

TEST_CASE("ReversibleEmbedding goes both ways") {
  const auto text = [](const std::string& config) {
    return R"({"class_name": "Functional", "config": {"name": "net", "layers": [
      {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 1],
       "dtype": "int32"}},
      {"class_name": "ReversibleEmbedding", "config": {"name": "e", "input_dim": 3,
       "output_dim": 2)" +
           config + R"(}, "inbound_nodes": [[["x", 0, 0, {}]], [["e", 0, 0, {"reverse": true}]]]}],
      "input_layers": [["x", 0, 0]], "output_layers": [["e", 1, 0]]}})";
  };
  Loaded tied(text(""));
  Runner runner(tied, 1);
  runner.interpreter().set_variable(tied.id("e/embeddings"), {1, 0, 0, 1, 2, 3});
  check_near(runner({{2}}), {2, 3, 13});
  Loaded untied(text(R"(, "tie_weights": false, "logit_soft_cap": 2.0)"));
  CHECK(untied.table[untied.id("e/reverse_embeddings")].shape == Shape{2, 3});
  Runner capped(untied, 1);
  capped.interpreter().set_variable(untied.id("e/embeddings"), {1, 0, 0, 1, 2, 3});
  capped.interpreter().set_variable(untied.id("e/reverse_embeddings"), {1, 0, 0, 0, 1, 0});
  check_near(capped({{2}}), {2 * std::tanh(1.0), 2 * std::tanh(1.5), 0});
}

namespace {

// The mask of a model's output, or nothing.
std::optional<Values> mask_of(const std::string& text, const std::vector<Values>& inputs) {
  Loaded loaded(text);
  Runner runner(loaded, size_of_batch(loaded, inputs.front()));
  runner(inputs);
  const graph::SymbolicTensor mask = runner.result().masks.front();
  if (!mask) return std::nullopt;
  CHECK(mask.dtype() == DType::boolean);
  return runner.value(mask);
}

}  // namespace

TEST_CASE("masks go through layers that keep them and end at those that do not") {
  const Values x{1, 0, 2, 0};  // two positions of two features... as [1, 4, 1]
  const std::pair<std::string, std::string> masking{"Masking", ""};
  CHECK(mask_of(model_of("[null, 4, 1]", {masking,
                                          {"Dense", R"("units": 2, "kernel_initializer": "ones")"},
                                          {"Dropout", "\"rate\": 0.5"},
                                          {"LayerNormalization", ""},
                                          {"Activation", "\"activation\": \"relu\""}}),
                {x}) == Values{1, 0, 1, 0});
  CHECK_FALSE(mask_of(model_of("[null, 4, 1]", {masking, {"Flatten", ""}}), {x}).has_value());
  CHECK_FALSE(
      mask_of(model_of("[null, 4, 1]", {{"Dense", R"("units": 2, "kernel_initializer": "ones")"}}),
              {x})
          .has_value());
  CHECK(mask_of(model_of("[null, 4]", {{"Embedding", R"("input_dim": 3, "output_dim": 2,
                                                       "mask_zero": true, "embeddings_initializer": "ones")"}},
                         "int32"),
                {x}) == Values{1, 0, 1, 0});
  // Position by position: any feature that differs from the value is enough.
  CHECK(mask_of(model_of("[null, 2, 2]", {{"Masking", "\"mask_value\": 0"}}), {{0, 3, 0, 0}}) ==
        Values{1, 0});
}

TEST_CASE("masks of several inputs are joined") {
  const auto text = [](bool both, const std::string& class_name, const std::string& config) {
    return R"({"class_name": "Functional", "config": {"name": "net", "layers": [
      {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 2, 1]}},
      {"class_name": "InputLayer", "config": {"name": "y", "batch_shape": [null, 2, 1]}},
      {"class_name": "Masking", "config": {"name": "a"}, "inbound_nodes": [[["x", 0, 0, {}]]]},
      {"class_name": ")" +
           std::string(both ? "Masking" : "Identity") +
           R"(", "config": {"name": "b"}, "inbound_nodes": [[["y", 0, 0, {}]]]},
      {"class_name": ")" +
           class_name + R"(", "config": {"name": "l")" + config +
           R"(}, "inbound_nodes": [[["a", 0, 0, {}], ["b", 0, 0, {}]]]}],
      "input_layers": [["x", 0, 0], ["y", 0, 0]], "output_layers": [["l", 0, 0]]}})";
  };
  const std::vector<Values> inputs{{1, 0, 0, 0}, {0, 0, 2, 0}};
  CHECK(mask_of(text(true, "Add", ""), inputs) == Values{1, 0, 1, 0});
  CHECK_FALSE(mask_of(text(false, "Add", ""), inputs).has_value());
  CHECK(mask_of(text(true, "Concatenate", ""), inputs) == Values{1, 0, 1, 0});
  CHECK(mask_of(text(false, "Concatenate", ""), inputs) == Values{1, 1, 1, 1});
  CHECK(mask_of(text(true, "Concatenate", ", \"axis\": 1"), inputs) ==
        Values{1, 0, 0, 0, 0, 0, 1, 0});
  CHECK(mask_of(text(false, "Concatenate", ", \"axis\": 1"), inputs) ==
        Values{1, 0, 1, 1, 0, 0, 1, 1});
  CHECK_FALSE(mask_of(text(true, "Dot", ", \"axes\": 1"), inputs).has_value());
}
