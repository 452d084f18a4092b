// Runs that are cut and go on give what uncut runs give; damaged checkpoints are refused.
#include <catch2/catch.hpp>
#include <cmath>
#include <mutex>

#include "base/error.h"
#include "runtime/io/array_file.h"
#include "runtime/train/checkpoint.h"
#include "runtime/train/weights_file.h"
#include "tests/unit/io_files.h"
#include "tests/unit/run_fixture.h"

using Catch::Matchers::Contains;
using namespace tessera;
using namespace tessera::train;
using namespace tessera::train::test;
using tessera::testing::error_of;
using tessera::testing::Folder;
using tessera::testing::read_bytes;
namespace fs = std::filesystem;

namespace {

constexpr auto kWeights = Error::Kind::weights;

/// Ends a run as a lost rank does, after all other callbacks of a step or an epoch.
class Cut : public Callback {
 public:
  Cut(std::int64_t step, std::int64_t epoch) : step_(step), epoch_(epoch) {}
  bool saves_state() const override { return true; }
  void on_batch_end(FitContext& /*context*/, const BatchEvent& event) override {
    if (event.step == step_) throw Error(Error::Kind::rank_lost, "cut");
  }
  void on_epoch_end(FitContext& /*context*/, std::int64_t epoch, Logs& /*logs*/) override {
    if (epoch + 1 == epoch_) throw Error(Error::Kind::rank_lost, "cut");
  }

 private:
  std::int64_t step_;
  std::int64_t epoch_;
};

struct Run {
  int ranks = 1;
  Checkpoints::Options checkpoint{};
  std::int64_t cut_step = 0;
  std::int64_t cut_epoch = 0;
  std::string optimizer =
      R"({"class_name": "Adam", "config": {"learning_rate": 0.05, "gradient_accumulation_steps": 3}})";
  std::optional<std::int64_t> steps_per_epoch{};
  data::Shuffle shuffle = data::Shuffle::samples;
  std::int64_t epochs = 7;
  std::uint64_t seed = 7;
  std::int64_t rows = 22;
  std::int64_t hidden = 6;
  int extra_callbacks = 0;
};

struct Result {
  std::string weights;  // bytes of the file
  History history;
  std::string printed;
};

/// Trains with shuffle, dropout, accumulation, a ragged last batch, EarlyStopping (which puts the
/// best weights back) and ReduceLROnPlateau; checkpoints in `folder`/checkpoints.
Result train_net(const Folder& folder, const Run& run) {
  Result result;
  result.printed = output_of([&] {
    comm::run_as_threads(run.ranks, [&](comm::World& world) {
      Net net(world, run.optimizer, run.seed, run.hidden);
      const auto early = callback(
          R"({"class_name": "EarlyStopping", "config": {"patience": 3, "restore_best_weights": true, "min_delta": 0.01}})",
          net.session());
      const auto plateau = callback(
          R"({"class_name": "ReduceLROnPlateau", "config": {"patience": 1, "factor": 0.5, "min_delta": 0.02}})",
          net.session());
      Checkpoints checkpoints(folder / "checkpoints", run.checkpoint);
      Cut cut(run.cut_step, run.cut_epoch);
      Cut never(0, 0);
      std::vector<Callback*> callbacks{early.get(), plateau.get(), &checkpoints, &cut};
      callbacks.insert(callbacks.end(), static_cast<std::size_t>(run.extra_callbacks), &never);
      FitOptions options;
      options.epochs = run.epochs;
      options.batch_size = 5;
      options.verbose = 0;
      options.steps_per_epoch = run.steps_per_epoch;
      options.shuffle = run.shuffle;
      const data::Dataset validation = samples(9, 2);
      History history = fit(net.session(), samples(run.rows, 1), &validation, options, callbacks);
      save_weights(net.session().storage(), world, folder / "w.safetensors");
      if (world.rank() == 0) result.history = std::move(history);
    });
  });
  result.weights = read_bytes(folder / "w.safetensors");
  return result;
}

/// Totals of several ranks become one in a checkpoint: the epoch that was cut may round otherwise.
void check_same_values(const History& a, const History& b, double relative) {
  REQUIRE(a.values.size() == b.values.size());
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    CHECK(a.values[i].first == b.values[i].first);
    REQUIRE(a.values[i].second.size() == b.values[i].second.size());
    for (std::size_t k = 0; k < a.values[i].second.size(); ++k) {
      const double expected = b.values[i].second[k];
      CHECK(std::abs(a.values[i].second[k] - expected) <= relative * std::abs(expected));
    }
  }
}

Checkpoints::Options every_step(const std::string& resume = "") { return {0, 1, 1, resume}; }

}  // namespace

TEST_CASE("a run that is cut at any step and goes on gives the weights of the uncut run") {
  for (const int ranks : {1, 2}) {
    for (const bool steps : {false, true}) {
      Run plain{.ranks = ranks};
      if (steps) {
        plain.steps_per_epoch = 3;  // epochs begin in the middle of the data
        plain.shuffle = data::Shuffle::within_batches;
      }
      const Folder whole_folder;
      const Result whole = train_net(whole_folder, plain);
      CHECK(whole.history.values.back().second.size() >= 3);
      for (const std::int64_t step : {1, 3, 5, 6, 8, 10, 14}) {
        CAPTURE(ranks, steps, step);
        const Folder folder;
        Run cut = plain;
        cut.checkpoint = every_step();
        cut.cut_step = step;
        error_of(Error::Kind::rank_lost, [&] { train_net(folder, cut); });
        CHECK(list_checkpoints(folder / "checkpoints") ==
              std::vector<std::string>{folder / ("checkpoints/step_" + std::to_string(step))});
        Run rest = plain;
        rest.checkpoint = every_step("auto");
        const Result resumed = train_net(folder, rest);
        CHECK_THAT(resumed.printed, Contains("step_" + std::to_string(step) + " (step " +
                                             std::to_string(step) + ")"));
        CHECK(resumed.weights == whole.weights);
        CHECK(resumed.history.epochs == whole.history.epochs);
        check_same_values(resumed.history, whole.history, ranks == 1 ? 0.0 : 1e-6);
      }
    }
  }
}

TEST_CASE("a run that is cut after an epoch goes on with the next one") {
  for (const int ranks : {1, 2}) {
    Run plain{.ranks = ranks};
    const Folder whole_folder;
    const Result whole = train_net(whole_folder, plain);
    const auto epochs = static_cast<std::int64_t>(whole.history.epochs.size());
    for (std::int64_t epoch = 1; epoch <= epochs; ++epoch) {
      CAPTURE(ranks, epoch);
      const Folder folder;
      Run cut = plain;
      cut.checkpoint = {1, 0, 2, ""};
      cut.cut_epoch = epoch;
      error_of(Error::Kind::rank_lost, [&] { train_net(folder, cut); });
      CHECK(list_checkpoints(folder / "checkpoints").size() ==
            static_cast<std::size_t>(std::min<std::int64_t>(epoch, 2)));
      Run rest = plain;
      rest.checkpoint = {1, 0, 2, "auto"};
      const Result resumed = train_net(folder, rest);
      CHECK(resumed.weights == whole.weights);
      // Also when the cut came after the last epoch: a run that stopped early stays stopped.
      CHECK(resumed.history.epochs == whole.history.epochs);
    }
  }
}

TEST_CASE("the run of these tests stops early and lowers its rate") {
  const Folder folder;
  const Result result = train_net(folder, {.epochs = 40});
  CHECK(result.history.epochs.size() < 40);
  const auto& rates = result.history.values.back();
  CHECK(rates.first == "learning_rate");
  CHECK(rates.second.back() < rates.second.front());
}

TEST_CASE("a checkpoint is read on another number of ranks") {
  const Folder folder;
  Run cut{.ranks = 2, .checkpoint = every_step(), .cut_step = 7};
  error_of(Error::Kind::rank_lost, [&] { train_net(folder, cut); });
  const Folder whole_folder;
  const Result whole = train_net(whole_folder, {});
  const Result resumed = train_net(folder, {.ranks = 1, .checkpoint = {0, 0, 1, "auto"}});
  const auto mine = io::open_array_file(folder / "w.safetensors", kWeights);
  const auto other = io::open_array_file(whole_folder / "w.safetensors", kWeights);
  for (std::size_t i = 0; i < mine->arrays().size(); ++i) {
    const std::int64_t count = mine->arrays()[i].shape.elements();
    std::vector<double> a(static_cast<std::size_t>(count));
    std::vector<double> b(a.size());
    mine->read(static_cast<int>(i), 0, count, a.data(), DType::float64);
    other->read(static_cast<int>(i), 0, count, b.data(), DType::float64);
    for (std::size_t k = 0; k < a.size(); ++k) CHECK(std::abs(a[k] - b[k]) < 1e-4);
  }
}

TEST_CASE("checkpoints do not depend on the mesh, and the oldest go") {
  const Folder one;
  const Folder two;
  train_net(one, {.checkpoint = {1, 3, 2, ""}, .epochs = 1});
  train_net(two, {.ranks = 2, .checkpoint = {1, 3, 2, ""}, .epochs = 1});
  for (const Folder* folder : {&one, &two}) {
    CHECK(list_checkpoints(*folder / "checkpoints") ==
          std::vector<std::string>{*folder / "checkpoints/step_5", *folder / "checkpoints/step_3"});
    for (const auto& entry : fs::recursive_directory_iterator(*folder / "checkpoints"))
      CHECK(entry.path().string().find(".tmp") == std::string::npos);
  }
  const auto names = [](const Folder& folder) {
    std::vector<std::string> list;
    const auto file =
        io::open_array_file(folder / "checkpoints/step_5/state.safetensors", kWeights);
    for (const io::ArrayInfo& info : file->arrays())
      list.push_back(info.name + to_string(info.shape));
    return list;
  };
  CHECK(names(one) == names(two));
  CHECK(list_checkpoints(one / "none").empty());
  fs::create_directory(one / "checkpoints/step_9");  // not finished
  fs::create_directory(one / "checkpoints/step_9x");
  one.file("checkpoints/step_10", "a file");
  CHECK(list_checkpoints(one / "checkpoints").size() == 2);
}

TEST_CASE("a damaged checkpoint is an error that names the file") {
  const Folder folder;
  Run cut{.checkpoint = every_step(), .cut_step = 7};
  error_of(Error::Kind::rank_lost, [&] { train_net(folder, cut); });
  const std::string good = folder / "checkpoints/step_7";
  const std::string training = read_bytes(good + "/training.json");
  const std::string state = read_bytes(good + "/state.safetensors");
  fs::create_directory(folder / "bad");
  const auto message = [&](const std::string& json, const std::string& tensors, Run run = {}) {
    folder.file("bad/training.json", json);
    folder.file("bad/state.safetensors", tensors);
    run.checkpoint.resume = folder / "bad";
    return error_of(kWeights, [&] { train_net(folder, run); });
  };
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = training;
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  const std::string in_training = folder / "bad/training.json";
  const std::string in_state = folder / "bad/state.safetensors";

  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, training.size() / 2, training.size() - 3})
    CHECK_THAT(message(training.substr(0, size), state), Contains(in_training));
  for (const char* text :
       {"[]", "null", "{}", "\xFF", "{\"format\": \"tessera-checkpoint\"}", "{\"format\": 3}"})
    CHECK_THAT(message(text, state), Contains(in_training));
  CHECK_THAT(message(changed("\"version\": 1", "\"version\": 2"), state), Contains("version 1"));
  for (const char* key :
       {"step", "seed", "epoch", "batch", "sample", "pass", "stop", "callbacks"}) {
    const std::string name = std::string("\"") + key + "\":";
    CHECK_THAT(message(changed(name, "\"other\":"), state), Contains(in_training) && Contains(key));
    CHECK_THAT(message(changed(name, name + " \"text\", \"other\":"), state),
               Contains(in_training) && Contains(key));
  }
  for (const char* key : {"step", "epoch", "batch", "sample", "pass"}) {
    const std::string name = std::string("\"") + key + "\":";
    CHECK_THAT(message(changed(name, name + " -1, \"other\":"), state), Contains(key));
    CHECK_THAT(message(changed(name, name + " 1.5, \"other\":"), state), Contains(key));
    CHECK_THAT(message(changed(name, name + " 99999999999999999999, \"other\":"), state),
               Contains(in_training));
  }
  CHECK_THAT(message(changed("\"sample\":", "\"sample\": 23, \"other\":"), state),
             Contains("23 samples") && Contains("22"));
  CHECK_THAT(message(training, state, {.seed = 8}), Contains("seed 7, this run has seed 8"));
  CHECK_THAT(message(training, state, {.extra_callbacks = 1}), Contains("callbacks, this run has"));
  CHECK_THAT(message(changed("\"EarlyStopping\"", "\"CSVLogger\""), state),
             Contains("callback 0 is \"CSVLogger\", in this run it is \"EarlyStopping\""));
  CHECK_THAT(message(changed("\"class_name\":", "\"other\":"), state), Contains("callback 0"));
  CHECK_THAT(message(training, state, {.rows = 9}), Contains("samples"));

  for (std::size_t size = 0; size < state.size(); size += size < 12 ? 1 : state.size() / 9)
    CHECK_THAT(message(training, state.substr(0, size)), Contains(in_state));
  CHECK_THAT(message(training, state + "x"), Contains(in_state));
  std::string renamed = state;
  renamed.replace(renamed.find("up/bias"), 7, "up/bios");
  CHECK_THAT(message(training, renamed), Contains(in_state) && Contains("up/bias"));
  CHECK_THAT(message(training, state, {.hidden = 7}),
             Contains(in_state) && Contains("[4, 6]") && Contains("[4, 7]"));
  CHECK_THAT(message(training, state, {.optimizer = "\"rmsprop\""}),
             Contains(in_state) && Contains("lacks"));
  fs::remove(in_state);
  Run missing;
  missing.checkpoint.resume = folder / "bad";
  CHECK_THAT(error_of(kWeights, [&] { train_net(folder, missing); }), Contains(in_state));
  missing.checkpoint.resume = folder / "none";
  CHECK_THAT(error_of(kWeights, [&] { train_net(folder, missing); }),
             Contains("none/training.json"));
}

TEST_CASE("resume auto passes over damaged checkpoints, and starts afresh without any") {
  for (const int ranks : {1, 2}) {
    const Folder folder;
    Run cut{.ranks = ranks, .checkpoint = {0, 1, 9, ""}, .cut_step = 4};
    error_of(Error::Kind::rank_lost, [&] { train_net(folder, cut); });
    const Folder whole_folder;
    const Result whole = train_net(whole_folder, {.ranks = ranks});
    Run rest{.ranks = ranks, .checkpoint = {0, 0, 9, "auto"}};
    const std::string state = folder / "checkpoints/step_4/state.safetensors";
    fs::resize_file(state, fs::file_size(state) / 2);
    folder.file("checkpoints/step_3/training.json", "{");
    std::string printed;
    const std::string warnings = output_of(
        [&] {
          const Result resumed = train_net(folder, rest);
          CHECK(resumed.weights == whole.weights);
          printed = resumed.printed;
        },
        true);
    CHECK_THAT(printed, Contains("Resuming from " + (folder / "checkpoints/step_2") + " (step 2)"));
    CHECK_THAT(warnings, Contains("step_4 is passed over") && Contains("step_3 is passed over"));
    fs::remove_all(folder / "checkpoints");
    CHECK(train_net(folder, rest).weights == whole.weights);
  }
}

TEST_CASE("a checkpoint that cannot be written fails on all ranks and leaves the older one") {
  for (const int ranks : {1, 2}) {
    const Folder folder;
    folder.file("checkpoints", "a file");
    CHECK_THAT(error_of(Error::Kind::internal,
                        [&] { train_net(folder, {.ranks = ranks, .checkpoint = every_step()}); }),
               Contains("checkpoints/step_1"));
    CHECK(read_bytes(folder / "checkpoints") == "a file");
  }
}

TEST_CASE("BackupAndRestore goes on from its folder and removes it in the end") {
  const Folder folder;
  const auto run = [&](std::int64_t cut_step, const std::string& rest) {
    std::string weights;
    const std::string printed = output_of([&] {
      alone([&](comm::World& world) {
        Net net(world, "\"adam\"");
        const auto backup =
            callback(R"({"class_name": "BackupAndRestore", "config": {"backup_dir": ")" +
                         (folder / "b") + "\"" + rest + "}}",
                     net.session());
        CHECK(backup->saves_state());
        Cut cut(cut_step, 0);
        FitOptions options;
        options.epochs = 3;
        options.batch_size = 5;
        options.verbose = 0;
        fit(net.session(), samples(22, 1), nullptr, options, {backup.get(), &cut});
        save_weights(net.session().storage(), world, folder / "w.safetensors");
      });
    });
    return printed + read_bytes(folder / "w.safetensors");
  };
  const std::string whole = run(0, "");
  CHECK_FALSE(fs::exists(folder / "b"));
  error_of(Error::Kind::rank_lost, [&] { run(8, ""); });
  CHECK(list_checkpoints(folder / "b") == std::vector<std::string>{folder / "b/step_5"});
  CHECK(run(0, "") == "Resuming from " + (folder / "b/step_5") + " (step 5)\n" + whole);
  CHECK_FALSE(fs::exists(folder / "b"));
  error_of(Error::Kind::rank_lost,
           [&] { run(8, R"(, "save_freq": 3, "double_checkpoint": true)"); });
  CHECK(list_checkpoints(folder / "b").size() == 2);
  CHECK(run(0, R"(, "save_freq": 3, "delete_checkpoint": false)") ==
        "Resuming from " + (folder / "b/step_6") + " (step 6)\n" + whole);
  CHECK(fs::exists(folder / "b"));
}
