// Decisions and messages of callbacks, on logs that are given.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "runtime/exec/whole_tensor.h"
#include "runtime/io/array_file.h"
#include "runtime/train/callback_monitor.h"
#include "tests/unit/io_files.h"
#include "tests/unit/run_fixture.h"

using Catch::Matchers::Contains;
using namespace tessera;
using namespace tessera::train;
using namespace tessera::train::test;
using tessera::testing::error_of;
using tessera::testing::Folder;
using tessera::testing::read_bytes;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

/// A session and a callback that sees what the test says.
struct Stage {
  explicit Stage(comm::World& world, const std::string& text)
      : net(world, R"({"class_name": "SGD", "config": {"learning_rate": 0.5}})"),
        made(callback(text, net.session())) {}

  /// The callback sees these logs at the end of the next epoch; whether it then stops the run.
  bool epoch(Logs values) {
    logs = std::move(values);
    printed = output_of([&] { made->on_epoch_end(context, next++, logs); });
    return context.stop;
  }
  bool loss(double value) { return epoch({{"loss", 1}, {"val_loss", value}}); }
  double weight() { return exec::read_whole(net.session().storage(), 1, net.session().world())[0]; }
  void set_weight(double value) {
    const std::vector<double> values(6, value);
    exec::write_whole(net.session().storage(), 1, values);
  }
  std::string end() {
    return output_of([&] { made->on_train_end(context, logs); });
  }

  Net net;
  std::unique_ptr<Callback> made;
  const std::vector<Callback*> callbacks{made.get()};
  FitContext context{net.session(), 10, 5, {}, callbacks, false, 22, ""};
  Logs logs;
  std::string printed;
  std::int64_t next = 0;
};

void with(const std::string& text, const std::function<void(Stage&)>& body) {
  alone([&](comm::World& world) {
    Stage stage(world, text);
    body(stage);
  });
}

}  // namespace

TEST_CASE("EarlyStopping waits for `patience` epochs without improvement") {
  with(R"({"class_name": "EarlyStopping", "config": {"patience": 2, "verbose": 1}})",
       [](Stage& stage) {
         CHECK_FALSE(stage.loss(5));
         CHECK_FALSE(stage.loss(6));  // one
         CHECK_FALSE(stage.loss(4));
         CHECK_FALSE(stage.loss(4));  // equal is not better
         CHECK(stage.loss(4.5));
         CHECK(stage.printed.empty());
         CHECK(stage.end() == "Epoch 5: early stopping\n");
       });
  with("\"EarlyStopping\"", [](Stage& stage) {
    CHECK_FALSE(stage.loss(5));
    CHECK(stage.loss(5));
    CHECK(stage.end().empty());
  });
}

TEST_CASE("EarlyStopping: directions, margins, baseline, first epoch, missing values") {
  with(
      R"({"class_name": "EarlyStopping", "config": {"mode": "max", "monitor": "x", "min_delta": -0.5}})",
      [](Stage& stage) {
        CHECK_FALSE(stage.epoch({{"x", 1}}));
        CHECK_FALSE(stage.epoch({{"x", 1.6}}));
        CHECK(stage.epoch({{"x", 2}}));  // more by 0.4 only
      });
  with(R"({"class_name": "EarlyStopping", "config": {"min_delta": 0.5}})", [](Stage& stage) {
    CHECK_FALSE(stage.loss(2));
    CHECK_FALSE(stage.loss(1.4));
    CHECK(stage.loss(1));
  });
  // Below the baseline waiting goes on, even while values improve.
  with(R"({"class_name": "EarlyStopping", "config": {"patience": 2, "baseline": 1}})",
       [](Stage& stage) {
         CHECK_FALSE(stage.loss(5));
         CHECK_FALSE(stage.loss(4));
         CHECK(stage.loss(6));
       });
  with(R"({"class_name": "EarlyStopping", "config": {"patience": 2, "baseline": 1}})",
       [](Stage& stage) {
         CHECK_FALSE(stage.loss(5));
         CHECK_FALSE(stage.loss(0.5));
         CHECK_FALSE(stage.loss(0.6));
         CHECK(stage.loss(0.7));
       });
  with(R"({"class_name": "EarlyStopping", "config": {"start_from_epoch": 3}})", [](Stage& stage) {
    for (int i = 0; i < 4; ++i) CHECK_FALSE(stage.loss(5));
    CHECK(stage.loss(5));
  });
  with("\"EarlyStopping\"", [](Stage& stage) {
    const std::string warning = output_of(
        [&] {
          CHECK_FALSE(stage.epoch({{"loss", 1}, {"mae", 2}}));
        },
        true);
    CHECK_THAT(
        warning,
        Contains(
            "EarlyStopping watches \"val_loss\", which is not available; there are: loss, mae"));
    CHECK_FALSE(stage.loss(5));
  });
  // NaN is never better, but the first value counts whatever it is: as in Keras.
  with("\"EarlyStopping\"", [](Stage& stage) {
    CHECK_FALSE(stage.loss(5));
    CHECK(stage.loss(kNan));
  });
}

TEST_CASE("EarlyStopping keeps the best weights and puts them back") {
  with(
      R"({"class_name": "EarlyStopping", "config": {"patience": 1, "restore_best_weights": true, "verbose": 1}})",
      [](Stage& stage) {
        for (const double value : {5.0, 3.0, 4.0}) {
          stage.set_weight(value);
          stage.loss(value);
        }
        CHECK(stage.context.stop);
        CHECK(stage.end() ==
              "Epoch 3: early stopping\nRestoring model weights from the end of the best epoch: "
              "2.\n");
        CHECK(stage.weight() == 3);
      });
  with(R"({"class_name": "EarlyStopping", "config": {"patience": 1}})", [](Stage& stage) {
    for (const double value : {5.0, 3.0, 4.0}) {
      stage.set_weight(value);
      stage.loss(value);
    }
    stage.end();
    CHECK(stage.weight() == 4);
  });
}

TEST_CASE("ReduceLROnPlateau: patience, factor, cooldown, least rate, text") {
  with(
      R"({"class_name": "ReduceLROnPlateau", "config": {"patience": 2, "factor": 0.5, "cooldown": 2, "min_lr": 0.2, "verbose": 1}})",
      [](Stage& stage) {
        Session& session = stage.net.session();
        stage.loss(5);
        CHECK(find_log(stage.logs, "learning_rate") != nullptr);
        CHECK(*find_log(stage.logs, "learning_rate") == 0.5);
        stage.loss(5);
        CHECK(stage.printed.empty());
        stage.loss(4.99995);  // better by less than min_delta
        CHECK(stage.printed == "\nEpoch 3: ReduceLROnPlateau reducing learning rate to 0.25.\n");
        CHECK(*find_log(stage.logs, "learning_rate") == 0.5);  // what the epoch ran with
        CHECK(session.learning_rate() == 0.25);
        stage.loss(5);  // cooldown 2 -> 1
        stage.loss(5);  // 1 -> 0, waited 1
        CHECK(session.learning_rate() == 0.25);
        stage.loss(5);  // waited 2
        CHECK(session.learning_rate() == static_cast<double>(0.2F));
        CHECK_THAT(stage.printed, Contains("to 0.2."));
        for (int i = 0; i < 9; ++i) stage.loss(5);
        CHECK(stage.printed.empty());  // it is at min_lr
        CHECK(session.learning_rate() == static_cast<double>(0.2F));
        CHECK_FALSE(stage.context.stop);
      });
  with(
      R"({"class_name": "ReduceLROnPlateau", "config": {"patience": 1, "monitor": "mae", "mode": "max", "verbose": 1, "min_delta": 0}})",
      [](Stage& stage) {
        stage.net.session().set_learning_rate(20);
        stage.epoch({{"mae", 1}});
        stage.epoch({{"mae", 2}});
        CHECK(stage.printed.empty());
        stage.epoch({{"mae", 2}});
        CHECK(stage.printed == "\nEpoch 3: ReduceLROnPlateau reducing learning rate to 2.0.\n");
      });
}

TEST_CASE("ModelCheckpoint: every epoch, every n batches, only the best") {
  const Folder folder;
  const auto text = [&](const std::string& name, const std::string& rest) {
    return R"({"class_name": "ModelCheckpoint", "config": {"filepath": ")" + (folder / name) +
           "\"" + rest + "}}";
  };
  with(text("all/{epoch:02d}_{val_loss:.2f}.safetensors", R"(, "verbose": 1)"), [&](Stage& stage) {
    const std::string path = folder / "all/01_5.25.safetensors";
    stage.loss(5.25);
    CHECK(stage.printed == "\nEpoch 1: saving model to " + path +
                               "\n\nEpoch 1: finished saving model to " + path + "\n");
    const auto file = io::open_array_file(path, Error::Kind::weights);
    CHECK(file->find("up/kernel") >= 0);
    CHECK(file->arrays().size() == 3);
    stage.loss(5);
    CHECK(std::filesystem::exists(folder / "all/02_5.00.safetensors"));
  });
  with(text("b_{epoch}_{batch}.safetensors", R"(, "save_freq": 3)"), [&](Stage& stage) {
    for (std::int64_t i = 0; i < 10; ++i) {
      stage.made->on_batch_end(stage.context, {i / 5, i % 5, i + 1, 0, 0});
    }
    stage.loss(5);
    for (const char* name : {"b_1_3", "b_2_1", "b_2_4"})
      CHECK(std::filesystem::exists(folder / (name + std::string(".safetensors"))));
    int count = 0;
    for (const std::string& name : folder.names()) count += name.starts_with("b_") ? 1 : 0;
    CHECK(count == 3);
  });
  with(text("best.safetensors", R"(, "save_best_only": true, "verbose": 1)"), [&](Stage& stage) {
    const std::string path = folder / "best.safetensors";
    stage.set_weight(1);
    stage.loss(0.5123449);
    CHECK(stage.printed == "\nEpoch 1: val_loss improved from inf to 0.51234, saving model to " +
                               path + "\n\nEpoch 1: finished saving model to " + path + "\n");
    const std::string first = read_bytes(path);
    stage.set_weight(2);
    stage.loss(0.6);
    CHECK(stage.printed == "\nEpoch 2: val_loss did not improve from 0.51234\n");
    CHECK(read_bytes(path) == first);
    stage.loss(0.5);
    CHECK_THAT(stage.printed, Contains("improved from 0.51234 to 0.50000"));
    CHECK(read_bytes(path) != first);
    const std::string warning = output_of([&] { stage.epoch({{"loss", 1}}); }, true);
    CHECK_THAT(warning, Contains("ModelCheckpoint watches \"val_loss\""));
    CHECK(stage.printed.empty());
  });
  with(
      text(
          "m.safetensors",
          R"(, "save_best_only": true, "mode": "max", "initial_value_threshold": 0.4, "verbose": 1)"),
      [&](Stage& stage) {
        stage.loss(0.3);
        CHECK(stage.printed == "\nEpoch 1: val_loss did not improve from 0.40000\n");
        stage.loss(0.5);
        CHECK_THAT(stage.printed, Contains("improved from 0.40000 to 0.50000"));
      });
  folder.file("plain", "");
  with(text("plain/w.safetensors", ""), [&](Stage& stage) {
    CHECK_THAT(error_of(Error::Kind::internal, [&] { stage.loss(1); }),
               Contains("plain/w.safetensors"));
  });
}

TEST_CASE("places in a filepath") {
  const Logs logs{{"loss", 0.5}, {"val_loss", -kNan}};
  const auto fill = [&](const std::string& pattern) { return fill_path(pattern, 3, 12, logs); };
  CHECK(fill("w.safetensors") == "w.safetensors");
  CHECK(fill("{epoch}-{batch:04d}-{loss:.3f}-{loss}") == "3-0012-0.500-0.5");
  CHECK(fill("{{epoch}}-{epoch:>3}") == "{epoch}-  3");
  CHECK(fill("{val_loss:.2f}") == "nan");
  const auto message = [&](const std::string& pattern) {
    return error_of(Error::Kind::config, [&] { fill(pattern); });
  };
  CHECK_THAT(message("{los}"), Contains("there is no \"los\"; did you mean \"loss\"?") &&
                                   Contains("epoch, batch, loss, val_loss"));
  CHECK_THAT(message("{epoch"), Contains("brace is not closed"));
  CHECK_THAT(message("{}"), Contains("there is no \"\""));
  CHECK_THAT(message("{epoch:.2q}"), Contains("no format for a number"));
  CHECK_THAT(message("{loss:d}"), Contains("no format for a number"));
}

TEST_CASE("TerminateOnNaN") {
  with("\"TerminateOnNaN\"", [](Stage& stage) {
    CHECK(stage.made->needs_batch_loss());
    const auto batch = [&](double loss) {
      return output_of([&] { stage.made->on_batch_end(stage.context, {1, 12, 18, loss, 0}); });
    };
    CHECK(batch(1e30).empty());
    CHECK_FALSE(stage.context.stop);
    CHECK(batch(kNan) == "Batch 12: Invalid loss, terminating training\n");
    CHECK(stage.context.stop);
    CHECK_FALSE(batch(-kInfinity).empty());
  });
  with(R"({"class_name": "TerminateOnNaN", "config": {"raise_error": true}})", [](Stage& stage) {
    CHECK_THAT(
        error_of(Error::Kind::numbers,
                 [&] {
                   stage.made->on_batch_end(stage.context, {1, 12, 18, kInfinity, 0});
                 }),
        Contains("Batch 12: Invalid loss, terminating training") && Contains("epoch 2, step 18"));
  });
}

TEST_CASE("CSVLogger writes sorted columns, fixed at the first epoch") {
  const Folder folder;
  const auto text = [&](const std::string& rest) {
    return R"({"class_name": "CSVLogger", "config": {"filename": ")" + (folder / "log.csv") + "\"" +
           rest + "}}";
  };
  with(text(""), [&](Stage& stage) {
    stage.made->on_train_begin(stage.context);
    stage.epoch({{"loss", 0.1}, {"accuracy", 1}});
    CHECK(read_bytes(folder / "log.csv") ==
          "epoch,accuracy,loss,val_accuracy,val_loss\n0,1.0,0.1,NA,NA\n");  // flushed
    stage.epoch(
        {{"loss", 1e-7}, {"accuracy", -kNan}, {"val_loss", kInfinity}, {"learning_rate", 1}});
    CHECK(read_bytes(folder / "log.csv").substr(58) == "1,nan,1e-07,NA,inf\n");
  });
  with(text(R"(, "append": true, "separator": ";")"), [&](Stage& stage) {
    stage.made->on_train_begin(stage.context);
    stage.epoch({{"loss", 2}, {"val_loss", 3}});
    CHECK(read_bytes(folder / "log.csv").substr(58 + 19) ==
          "0;2.0;3.0\n");  // no header in the middle
  });
  with(text(""), [&](Stage& stage) {
    stage.made->on_train_begin(stage.context);
    stage.epoch({{"loss", 2}, {"val_loss", 3}});
    CHECK(read_bytes(folder / "log.csv") == "epoch,loss,val_loss\n0,2.0,3.0\n");
  });
  with(R"({"class_name": "CSVLogger", "config": {"filename": "/nowhere/log.csv"}})",
       [](Stage& stage) {
         CHECK_THAT(
             error_of(Error::Kind::internal, [&] { stage.made->on_train_begin(stage.context); }),
             Contains("/nowhere/log.csv"));
       });
}

TEST_CASE("mode auto asks for a mode where the direction is not known") {
  alone([](comm::World& world) {
    Net net(world, "\"sgd\"");
    for (const char* monitor : {"loss", "val_loss", "mae", "val_mae", "out_loss"})
      CHECK_NOTHROW(callback(R"({"class_name": "EarlyStopping", "config": {"monitor": ")" +
                                 std::string(monitor) + "\"}}",
                             net.session()));
    CHECK_THAT(
        error_of(Error::Kind::config,
                 [&] {
                   callback(
                       R"({"class_name": "ReduceLROnPlateau", "config": {"monitor": "speed"}})",
                       net.session());
                 }),
        Contains("ReduceLROnPlateau") && Contains("\"speed\"") && Contains("mode"));
  });
}

TEST_CASE("callbacks that are wrong are problems at their place") {
  const std::vector<std::pair<std::string, std::string>> table{
      {"\"EarlyStoping\"",
       "c.json:1:1: error: callbacks[0]: unknown callback \"EarlyStoping\"; did you mean "
       "\"EarlyStopping\"?"},
      {"3", "callbacks[0]"},
      {R"({"class_name": "EarlyStopping", "config": {"patience": -1}})",
       "c.json:1:56: error: callbacks[0].config.patience"},
      {R"({"class_name": "EarlyStopping", "config": {"mode": "up"}})", "callbacks[0].config.mode"},
      {R"({"class_name": "EarlyStopping", "config": {"patient": 1}})",
       "callbacks[0].config.patient: unknown"},
      {R"({"class_name": "ReduceLROnPlateau", "config": {"factor": 1.0}})",
       "ReduceLROnPlateau does not support a factor >= 1.0"},
      {"\"ModelCheckpoint\"", "filepath"},
      {R"({"class_name": "ModelCheckpoint", "config": {"filepath": "w.h5"}})", "w.h5"},
      {R"({"class_name": "ModelCheckpoint", "config": {"filepath": "w.safetensors", "save_freq": "step"}})",
       "save_freq"},
      {R"({"class_name": "ModelCheckpoint", "config": {"filepath": "w.safetensors", "save_freq": 0}})",
       "save_freq"},
      {"\"CSVLogger\"", "filename"},
      {"\"BackupAndRestore\"", "backup_dir"},
      {R"({"class_name": "BackupAndRestore", "config": {"backup_dir": "b", "save_freq": 0}})",
       "save_freq"}};
  for (const auto& [text, message] : table) CHECK_THAT(problems_of(text), Contains(message));
  CHECK(
      problems_of(
          R"({"class_name": "EarlyStopping", "config": {}, "module": "keras.callbacks", "registered_name": null})")
          .empty());
}

TEST_CASE("the memory of callbacks survives as JSON, numbers that are not finite too") {
  for (const double value : {0.1, kInfinity, -kInfinity, kNan}) {
    const std::optional<double> back = optional_from(
        parse(json::dump(json::make_object({{"best", optional_json(value)}}), -1, 17)), "best");
    REQUIRE(back.has_value());
    CHECK(((std::isnan(value) && std::isnan(*back)) || *back == value));
  }
  CHECK_FALSE(
      optional_from(parse(json::dump(json::make_object({{"best", optional_json({})}}), -1)), "best")
          .has_value());
  with(R"({"class_name": "EarlyStopping", "config": {"patience": 2, "verbose": 1}})",
       [](Stage& stage) {
         stage.loss(5);
         stage.loss(6);
         const json::Value state = stage.made->state();
         with(R"({"class_name": "EarlyStopping", "config": {"patience": 2, "verbose": 1}})",
              [&](Stage& other) {
                other.next = 2;
                other.made->restore(parse(json::dump(state, 2, 17)));
                CHECK(other.loss(5));
                CHECK(other.end() == "Epoch 3: early stopping\n");
              });
       });
}
