// Layers that act in training only, and activity penalties.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/unit/models_fixture.h"
#include "tests/unit/models_json.h"

using namespace tessera;
using namespace tessera::models::test;

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
