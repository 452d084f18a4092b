// Console lines as Keras prints them.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "runtime/train/progress.h"
#include "tests/unit/run_fixture.h"

using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using Catch::Matchers::Matches;
using namespace tessera;
using namespace tessera::train;
using namespace tessera::train::test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

/// What the bar writes; control sequences readable.
std::string bar(std::int64_t target, const std::vector<std::pair<std::int64_t, double>>& updates,
                const Logs& logs = {{"loss", 0.25}}, bool finalize = false) {
  std::string text;
  ProgressBar progress(target, [&text](const std::string& piece) { text += piece; });
  for (std::size_t i = 0; i < updates.size(); ++i)
    progress.update(updates[i].first, updates[i].second, logs, finalize && i + 1 == updates.size());
  std::string shown;
  for (const char c : text) shown += c == '\x1b' ? "ESC" : c == '\r' ? "CR" : std::string(1, c);
  return shown;
}

std::string cells(int green) {
  std::string text = "ESC[32m";
  for (int i = 0; i < green; ++i) text += "━";
  text += "ESC[0mESC[37m";
  for (int i = green; i < 20; ++i) text += "━";
  return text + "ESC[0m";
}

}  // namespace

TEST_CASE("values have four digits, small ones an exponent") {
  CHECK(format_value(0.77344) == "0.7734");
  CHECK(format_value(12345.67891) == "12345.6789");
  CHECK(format_value(-2) == "-2.0000");
  CHECK(format_value(0.001) == "1.0000e-03");
  CHECK(format_value(0.00100001) == "0.0010");
  CHECK(format_value(-0.00051) == "-5.1000e-04");
  CHECK(format_value(-0.5) == "-0.5000");
  CHECK(format_value(0) == "0.0000e+00");
  CHECK(format_value(kInfinity) == "inf");
  CHECK(format_value(-kInfinity) == "-inf");
  CHECK(format_value(kNan) == "nan");
  CHECK(format_value(-kNan) == "nan");
}

TEST_CASE("floats are those of Python") {
  for (const auto& [value, text] : std::vector<std::pair<double, std::string>>{
           {1, "1.0"},
           {-100, "-100.0"},
           {0.1, "0.1"},
           {1e-4, "0.0001"},
           {1e-5, "1e-05"},
           {1e16, "1e+16"},
           {123456789012345.0, "123456789012345.0"},
           {static_cast<double>(0.1F), "0.10000000149011612"},
           {0, "0.0"},
           {-0.0, "-0.0"},
           {kInfinity, "inf"},
           {-kInfinity, "-inf"},
           {kNan, "nan"},
           {-kNan, "nan"}})
    CHECK(python_float(value) == text);
}

TEST_CASE("step times change their unit") {
  CHECK(format_step_time(0) == "0s/step");
  CHECK(format_step_time(1) == "1s/step");
  CHECK(format_step_time(12.6) == "13s/step");
  CHECK(format_step_time(0.9994) == "999ms/step");
  CHECK(format_step_time(0.0513) == "51ms/step");
  CHECK(format_step_time(0.001) == "1ms/step");
  CHECK(format_step_time(0.00032) == "320us/step");
}

TEST_CASE("logs are sorted: training, validation, learning rate") {
  CHECK(format_logs({{"loss", 0.466},
                     {"learning_rate", 0.0001},
                     {"val_loss", 0.5},
                     {"accuracy", 0.7734},
                     {"val_accuracy", 1},
                     {"zero", 2}}) ==
        " - accuracy: 0.7734 - loss: 0.4660 - zero: 2.0000 - val_accuracy: 1.0000 - val_loss: "
        "0.5000 - learning_rate: 1.0000e-04");
  CHECK(format_logs({}).empty());
}

TEST_CASE("the line of an epoch") {
  CHECK(epoch_line(8, 0.408, {{"loss", 0.466}, {"accuracy", 0.7734}}) ==
        "8/8 - 0s - 51ms/step - accuracy: 0.7734 - loss: 0.4660");
  CHECK(epoch_line(1000, 1999.6, {}) == "1000/1000 - 2000s - 2s/step");
  CHECK(epoch_line(1, 0.00032, {{"loss", 0}}) == "1/1 - 0s - 320us/step - loss: 0.0000e+00");
}

TEST_CASE("the bar: cells, count, remaining time, elapsed time in the end") {
  CHECK(bar(8, {{3, 0.3}}) ==
        "CRESC[1m3/8ESC[0m " + cells(7) + " ESC[1m0sESC[0m 100ms/step - loss: 0.2500");
  // One step done: its time counts, and five more are to come.
  CHECK(bar(6, {{1, 0.5}}) ==
        "CRESC[1m1/6ESC[0m " + cells(3) + " ESC[1m2sESC[0m 500ms/step - loss: 0.2500");
  // The first step no longer counts: (2.5 - 0.5) / 2 each.
  CHECK_THAT(bar(6, {{1, 0.5}, {3, 2.5}}),
             Contains("ESC[1m3/6ESC[0m " + cells(10) + " ESC[1m3sESC[0m 1s/step"));
  CHECK_THAT(bar(100, {{7, 1}}), Contains("ESC[1m  7/100ESC[0m " + cells(1)));
  CHECK_THAT(bar(1000, {{1, 1}}), Contains("ESC[1m16:39ESC[0m"));
  CHECK_THAT(bar(10000, {{1, 1}}), Contains("ESC[1m2:46:39ESC[0m"));
  CHECK_THAT(bar(61, {{1, 1}}), Contains("ESC[1m60sESC[0m"));
  CHECK(bar(2, {{2, 3.2}}) ==
        "CRESC[1m2/2ESC[0m " + cells(20) + " ESC[1m3sESC[0m 2s/step - loss: 0.2500\n");
  // Ended early: finalized with what was done.
  CHECK_THAT(bar(8, {{1, 1}, {3, 2}}, {{"loss", 0.25}}, true),
             Matches("(.|\n)*3/8(.|\n)*2s(.|\n)*500ms/step - loss: 0.2500\n"));
}

TEST_CASE("the bar without a known number of steps") {
  CHECK(bar(0, {{3, 1.5}}) ==
        "CRESC[1m      3/UnknownESC[0m  ESC[1m2sESC[0m 500ms/step - loss: 0.2500");
}

TEST_CASE("the bar is drawn at most every 0.05 s, but always in the end") {
  int writes = 0;
  ProgressBar progress(1000, [&writes](const std::string&) { ++writes; });
  for (int i = 1; i < 1000; ++i) progress.update(i, 0.001 * i, {});
  CHECK(writes >= 18);
  CHECK(writes <= 20);
  CHECK_FALSE(progress.due(999, 0.9995));
  CHECK(progress.due(1000, 0.9995));
  const int before = writes;
  progress.update(1000, 1.0, {});
  CHECK(writes == before + 1);
}

TEST_CASE("a shorter line wipes out a longer one") {
  std::string last;
  ProgressBar progress(8, [&last](const std::string& text) { last = text; });
  progress.update(1, 1, {{"loss", 0.5}, {"metric", 0.5}});
  progress.update(2, 2, {{"loss", 0.5}});
  CHECK_THAT(last, Catch::Matchers::EndsWith(
                       "loss: 0.5000" + std::string(std::string(" - metric: 0.5000").size(), ' ')));
}

TEST_CASE("what fit prints with each verbosity") {
  alone([](comm::World& world) {
    const data::Dataset train = samples(11, 1);
    const data::Dataset validation = samples(5, 2);
    const auto printed = [&](int verbose, bool terminal, std::int64_t epochs) {
      Net net(world, "\"sgd\"");
      FitOptions options;
      options.epochs = epochs;
      options.batch_size = 4;
      options.verbose = verbose;
      options.terminal = terminal;
      return output_of([&] { fit(net.session(), train, &validation, options, {}); });
    };
    const std::string line =
        "3/3 - [0-9]+s - [0-9]+(us|ms|s)/step - loss: [0-9.]+ - mae: [0-9.]+ - val_loss: [0-9.]+ - "
        "val_mae: [0-9.]+\n";
    CHECK_THAT(printed(2, false, 2), Matches("Epoch 1/2\n" + line + "Epoch 2/2\n" + line));
    CHECK_THAT(printed(1, false, 2), Matches("Epoch 1/2\n" + line + "Epoch 2/2\n" + line));
    CHECK_THAT(printed(2, true, 1), Matches(line));
    CHECK(printed(0, true, 2).empty());
    const std::string drawn = printed(1, true, 2);
    CHECK_THAT(drawn, Contains("Epoch 2/2\n\r"));
    CHECK_THAT(drawn, Contains("3/3\x1b[0m \x1b[32m━"));
    CHECK_THAT(drawn, Matches("(.|\r|\n)* - val_loss: [0-9.]+ - val_mae: [0-9.]+\n"));
  });
}
