// Learning-rate schedules against Keras's numbers, in the graph and on the host.
#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "runtime/train/schedules.h"
#include "tests/support/interpreter.h"

using Catch::Matchers::Contains;
using namespace tessera;
using namespace tessera::train;

namespace {

std::unique_ptr<Schedule> make(const std::string& name, const std::string& config) {
  json::Problems problems;
  const json::Value value = json::parse(
      R"({"class_name": ")" + name + R"(", "config": {)" + config + "}}", "s.json", problems);
  std::unique_ptr<Schedule> schedule = make_schedule(value, "learning_rate", problems);
  problems.throw_if_any();
  return schedule;
}

std::vector<double> in_graph(const Schedule& schedule, const std::vector<double>& steps) {
  graph::VariableTable table;
  graph::Graph graph(table);
  graph::Builder builder(graph);
  builder.output("rate", schedule.at(builder.input("step", {}, DType::float32)));
  testing::Interpreter interpreter(graph);
  std::vector<double> rates;
  for (const double step : steps) {
    interpreter.set_input("step", {step});
    interpreter.run();
    rates.push_back(interpreter.output("rate")[0]);
  }
  return rates;
}

void check(const std::string& name, const std::string& config, const std::vector<double>& steps,
           const std::vector<double>& wanted) {
  INFO(name << " " << config);
  const auto schedule = make(name, config);
  const std::vector<double> rates = in_graph(*schedule, steps);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    INFO("step " << steps[i] << ": " << rates[i] << ", expected " << wanted[i]);
    const double tolerance = 5e-6 * std::abs(wanted[i]) + 1e-8;
    CHECK(std::abs(rates[i] - wanted[i]) <= tolerance);
    CHECK(std::abs(schedule->at(steps[i]) - wanted[i]) <= tolerance);
  }
}

}  // namespace

TEST_CASE("schedules give Keras's learning rates") {
  const std::vector<double> steps = {0, 1, 5, 9, 10, 11, 50, 100, 101, 150, 300};
  const std::string decay = R"("initial_learning_rate": 0.1, "decay_steps": )";
  check("ExponentialDecay", decay + R"(10, "decay_rate": 0.5)", steps,
        {0.1, 0.0933033, 0.0707107, 0.0535887, 0.05, 0.0466517, 0.003125, 9.76563e-05, 9.11165e-05,
         3.05176e-06, 9.31323e-11});
  check("ExponentialDecay", decay + R"(10, "decay_rate": 0.5, "staircase": true)", steps,
        {0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.003125, 9.76563e-05, 9.76563e-05, 3.05176e-06,
         9.31323e-11});
  check("PiecewiseConstantDecay", R"("boundaries": [10, 100], "values": [1, 0.5, 0.1])", steps,
        {1, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.1, 0.1, 0.1});
  check("PolynomialDecay", decay + R"(100, "end_learning_rate": 0.01, "power": 2)", steps,
        {0.1, 0.098209, 0.091225, 0.084529, 0.0829, 0.081289, 0.0325, 0.01, 0.01, 0.01, 0.01});
  check("PolynomialDecay", decay + R"(100, "end_learning_rate": 0.01, "cycle": true)", steps,
        {0.1, 0.0991, 0.0955, 0.0919, 0.091, 0.0901, 0.055, 0.01, 0.05455, 0.0325, 0.01});
  check("InverseTimeDecay", decay + R"(10, "decay_rate": 0.5)", steps,
        {0.1, 0.0952381, 0.08, 0.0689655, 0.0666667, 0.0645161, 0.0285714, 0.0166667, 0.0165289,
         0.0117647, 0.00625});
  check("CosineDecay", decay + R"(100, "alpha": 0.1)", steps,
        {0.1, 0.0999778, 0.099446, 0.0982132, 0.0977975, 0.0973396, 0.055, 0.01, 0.01, 0.01, 0.01});
  check(
      "CosineDecay",
      R"("initial_learning_rate": 0, "decay_steps": 100, "warmup_target": 0.1, "warmup_steps": 10)",
      steps, {0, 0.01, 0.05, 0.09, 0.1, 0.0999753, 0.0654508, 0.00244718, 0.00198531, 0, 0});
  check("CosineDecayRestarts", R"("initial_learning_rate": 0.1, "first_decay_steps": 10)", steps,
        {0.1, 0.0975528, 0.05, 0.00244718, 0.1, 0.0993844, 0.05, 0.0691342, 0.0673058, 0.1,
         0.000960734});
}

TEST_CASE("staircases and restarts of equal length") {
  check("InverseTimeDecay",
        R"("initial_learning_rate": 1, "decay_steps": 4, "decay_rate": 1, "staircase": true)",
        {0, 3, 4, 8}, {1, 1, 0.5, 1.0 / 3.0});
  check("CosineDecayRestarts",
        R"("initial_learning_rate": 1, "first_decay_steps": 4, "t_mul": 1, "m_mul": 0.5)",
        {0, 2, 4, 6, 8}, {1, 0.5, 0.5, 0.25, 0.25});
  check("CosineDecay", R"("initial_learning_rate": 1, "decay_steps": 4, "warmup_target": 2)",
        {0, 2, 9}, {2, 1, 0});
}

TEST_CASE("restarts fall on the exact step however the logarithm rounds") {
  for (const double factor : {2.0, 3.0, 1.5}) {
    const auto schedule =
        make("CosineDecayRestarts",
             R"("initial_learning_rate": 1, "first_decay_steps": 1024, "t_mul": )" +
                 std::to_string(factor));
    std::vector<double> steps;
    double length = 1024;
    double start = 0;
    while (start + length < 60000 && length == std::floor(length)) {
      start += length;
      length *= factor;
      steps.push_back(start);
    }
    REQUIRE(steps.size() >= 3);
    for (const double rate : in_graph(*schedule, steps)) CHECK(rate == Approx(1.0).epsilon(1e-4));
  }
}

TEST_CASE("a schedule without boundaries is constant") {
  check("PiecewiseConstantDecay", R"("boundaries": [], "values": [0.25])", {0, 7}, {0.25, 0.25});
}

TEST_CASE("errors of schedules are placed") {
  CHECK_THROWS_WITH(
      make("CosineDecay", R"("initial_learning_rate": 0.1, "decay_steps": 0)"),
      Contains("learning_rate.config.decay_steps: Argument `decay_steps` must be > 0"));
  CHECK_THROWS_WITH(make("CosineDecay", R"("decay_steps": 3)"),
                    Contains("missing key \"initial_learning_rate\""));
  CHECK_THROWS_WITH(make("PiecewiseConstantDecay", R"("boundaries": [1, 2], "values": [1, 2])"),
                    Contains("The length of boundaries should be 1 less"));
  CHECK_THROWS_WITH(
      make("CosineDecay", R"("initial_learning_rate": 0.1, "decay_steps": 3, "warmup_stepz": 1)"),
      Contains("did you mean \"warmup_steps\"?"));
}
