// metrics.jsonl, history.json and the order in which fit calls back.
#include <catch2/catch.hpp>
#include <limits>

#include "base/error.h"
#include "runtime/train/run_files.h"
#include "tests/unit/io_files.h"
#include "tests/unit/run_fixture.h"

using Catch::Matchers::Contains;
using Catch::Matchers::Matches;
using namespace tessera;
using namespace tessera::train;
using namespace tessera::train::test;
using tessera::testing::error_of;
using tessera::testing::Folder;
using tessera::testing::read_bytes;

namespace {

std::vector<json::Value> lines_of(const std::string& text) {
  std::vector<json::Value> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    REQUIRE(end != std::string::npos);
    lines.push_back(parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return lines;
}

std::string keys_of(const json::Value& object) {
  std::string keys;
  for (const json::Member& member : object.object) keys += member.key + " ";
  return keys;
}

/// Writes down what fit calls.
class Recorder : public Callback {
 public:
  void on_train_begin(FitContext& context) override {
    said += "begin(" + std::to_string(context.steps) + ") ";
  }
  void on_epoch_begin(FitContext& /*context*/, std::int64_t epoch) override {
    said += "epoch" + std::to_string(epoch) + "( ";
  }
  void on_batch_end(FitContext& context, const BatchEvent& event) override {
    check(context.position.batch == event.batch + 1, "position");
    said += std::to_string(event.batch) + "/" + std::to_string(event.step) + "/" +
            std::to_string(context.position.sample) + " ";
    if (event.step == stop_at) context.stop = true;
  }
  void on_epoch_end(FitContext& context, std::int64_t epoch, Logs& logs) override {
    check(context.position.epoch == epoch + 1 && context.position.batch == 0, "position");
    said += ")" + std::to_string(logs.size()) + " ";
  }
  void on_train_end(FitContext& /*context*/, const Logs& logs) override {
    said += "end" + std::to_string(logs.size());
  }
  std::int64_t stop_at = 0;
  std::string said;
};

}  // namespace

TEST_CASE("metrics.jsonl has a line for steps, epochs and the end") {
  const Folder folder;
  const std::string path = folder / "metrics.jsonl";
  alone([&](comm::World& world) {
    const data::Dataset train = samples(11, 1);
    FitOptions options;
    options.epochs = 2;
    options.batch_size = 4;
    options.verbose = 0;
    for (const bool append : {false, true}) {
      Net net(world, R"({"class_name": "SGD", "config": {"learning_rate": 0.125}})");
      MetricsFile file(path, 2, true, append);
      CHECK(file.needs_batch_loss());
      const History history = fit(net.session(), train, &train, options, {&file});
      CHECK(history.epochs == std::vector<std::int64_t>{0, 1});
      const json::Value json = history_json(history);
      CHECK(keys_of(json) == "loss mae val_loss val_mae ");
      CHECK(json.find("loss")->array.size() == 2);
      CHECK(json.find("loss")->array[1].number == history.values[0].second[1]);
    }
  });
  const std::vector<json::Value> lines = lines_of(read_bytes(path));
  REQUIRE(lines.size() == 12);  // twice: steps 2, 4, 6, two epochs, the end
  CHECK(keys_of(lines[0]) == "event step epoch loss learning_rate seconds ");
  CHECK(lines[0].find("event")->string == "step");
  CHECK(lines[0].find("step")->integer == 2);
  CHECK(lines[0].find("epoch")->integer == 1);
  CHECK(lines[0].find("learning_rate")->number == 0.125);
  CHECK(lines[0].find("loss")->number > 0);
  CHECK(lines[2].find("step")->integer == 4);
  CHECK(lines[2].find("epoch")->integer == 2);
  CHECK(keys_of(lines[1]) == "event epoch step seconds logs ");
  CHECK(lines[1].find("event")->string == "epoch");
  CHECK(lines[1].find("epoch")->integer == 1);
  CHECK(lines[1].find("step")->integer == 3);
  CHECK(keys_of(*lines[1].find("logs")) == "loss mae val_loss val_mae ");
  CHECK(json::dump(lines[5], -1) == R"({"event": "end", "status": "completed"})");
  CHECK(json::dump(lines[0].find("loss") != nullptr ? *lines[0].find("loss") : json::Value{}, -1) ==
        json::dump(*lines[6].find("loss"), -1));
}

TEST_CASE("metrics.jsonl without steps, on other ranks, and where it cannot be written") {
  const Folder folder;
  MetricsFile none(folder / "a", 0, true, false);
  CHECK_FALSE(none.needs_batch_loss());
  MetricsFile other(folder / "b", 1, false, false);
  CHECK(folder.names() == std::vector<std::string>{"a"});
  CHECK_THAT(error_of(Error::Kind::internal, [&] { MetricsFile(folder / "no/m", 0, true, false); }),
             Contains("no/m") && Contains("No such file"));
}

TEST_CASE("numbers that are not finite are null in JSON") {
  CHECK(number_json(std::numeric_limits<double>::quiet_NaN()).is_null());
  CHECK(number_json(-std::numeric_limits<double>::infinity()).is_null());
  CHECK(number_json(0.1).number == 0.1);
  History history;
  history.add(0, {{"loss", std::numeric_limits<double>::infinity()}, {"mae", 1}});
  history.add(1, {{"loss", 2}, {"mae", 3}, {"val_loss", 4}});
  CHECK(json::dump(history_json(history), -1) ==
        R"({"loss": [null, 2.0], "mae": [1.0, 3.0], "val_loss": [4.0]})");
}

TEST_CASE("fit calls back in order, and stops after a batch or an epoch") {
  alone([](comm::World& world) {
    const data::Dataset train = samples(11, 1);
    FitOptions options;
    options.epochs = 2;
    options.batch_size = 4;
    options.verbose = 0;
    const auto said = [&](const FitOptions& chosen, std::int64_t stop_at = 0) {
      Net net(world, "\"sgd\"");
      Recorder recorder;
      recorder.stop_at = stop_at;
      const std::string warnings =
          output_of([&] { fit(net.session(), train, nullptr, chosen, {&recorder}); }, true);
      return recorder.said + (warnings.empty() ? "" : " warned");
    };
    CHECK(said(options) ==
          "begin(3) epoch0( 0/1/4 1/2/8 2/3/11 )2 epoch1( 0/4/4 1/5/8 2/6/11 )2 end2");
    CHECK(said(options, 2) == "begin(3) epoch0( 0/1/4 1/2/8 )2 end2");
    FitOptions later = options;
    later.initial_epoch = 1;
    CHECK(said(later) == "begin(3) epoch1( 0/1/4 1/2/8 2/3/11 )2 end2");
    later.initial_epoch = 2;
    CHECK(said(later) == "begin(3) end0");
    // Fewer steps than the data has: the next epoch goes on where the last one ended.
    FitOptions steps = options;
    steps.steps_per_epoch = 2;
    CHECK(said(steps) == "begin(2) epoch0( 0/1/4 1/2/8 )2 epoch1( 0/3/11 )2 end2 warned");
    steps.steps_per_epoch = 4;
    steps.epochs = 1;
    CHECK(said(steps) == "begin(4) epoch0( 0/1/4 1/2/8 2/3/11 )2 end2 warned");
  });
}

TEST_CASE("validation runs after the epochs that are named") {
  alone([](comm::World& world) {
    const data::Dataset train = samples(8, 1);
    const data::Dataset validation = samples(5, 2);
    FitOptions options;
    options.epochs = 5;
    options.verbose = 0;
    const auto validations = [&](const FitOptions& chosen) {
      Net net(world, "\"sgd\"");
      const History history = fit(net.session(), train, &validation, chosen, {});
      return history.values.size() < 3 ? 0 : history.values[2].second.size();
    };
    CHECK(validations(options) == 5);
    options.validation_freq = 2;
    CHECK(validations(options) == 2);
    options.validation_freq = 6;
    CHECK(validations(options) == 0);
    options.validation_epochs = {1, 4, 5, 9};
    CHECK(validations(options) == 3);
  });
  FitOptions sizes;
  CHECK(batch_size_of(sizes, 100) == 32);
  sizes.steps_per_epoch = 7;
  CHECK(batch_size_of(sizes, 100) == 15);
  sizes.batch_size = 9;
  CHECK(batch_size_of(sizes, 100) == 9);
}
