#include "runtime/train/callbacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/arguments.h"
#include "base/error.h"
#include "runtime/train/callback_monitor.h"
#include "runtime/train/checkpoint.h"
#include "runtime/train/weights_file.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;
using Made = std::unique_ptr<Callback>;

/// Stops when a value no longer gets better.
class EarlyStopping : public MonitorCallback {
 public:
  explicit EarlyStopping(json::Arguments& arguments)
      : monitor_("EarlyStopping", arguments),
        margin_(std::abs(arguments.number("min_delta", 0.0))),
        patience_(arguments.integer("patience", 0, 0)),
        verbose_(arguments.integer("verbose", 0, 0)),
        baseline_(arguments.optional_number("baseline")),
        restores_(arguments.boolean("restore_best_weights", false)),
        first_epoch_(arguments.integer("start_from_epoch", 0, 0)) {}
  void set_directions(const Directions& directions) override { monitor_.resolve(directions); }

  void on_epoch_end(FitContext& context, std::int64_t epoch, Logs& logs) override {
    const double* current = monitor_.value(context, logs);
    if (current == nullptr || epoch < first_epoch_) return;
    if (restores_ && weights_.empty()) {
      weights_.take(context.session);
      best_epoch_ = epoch;
    }
    ++wait_;
    if (monitor_.better(*current, best_, margin_)) {
      best_ = *current;
      best_epoch_ = epoch;
      if (restores_) weights_.take(context.session);
      if (!baseline_ || monitor_.better(*current, baseline_, margin_)) wait_ = 0;
      return;
    }
    if (wait_ >= patience_ && epoch > 0) {
      stopped_epoch_ = epoch;
      context.stop = true;
    }
  }

  void on_train_end(FitContext& context, const Logs& /*logs*/) override {
    if (stopped_epoch_ > 0 && verbose_ > 0)
      context.print(fmt::format("Epoch {}: early stopping", stopped_epoch_ + 1));
    if (!restores_ || weights_.empty()) return;
    if (verbose_ > 0)
      context.print(fmt::format("Restoring model weights from the end of the best epoch: {}.",
                                best_epoch_ + 1));
    weights_.put_back(context.session);
  }

  json::Value state() const override {
    return json::make_object({{"wait", json::make(wait_)},
                              {"best", optional_json(best_)},
                              {"best_epoch", json::make(best_epoch_)}});
  }
  void restore(const json::Value& state) override {
    wait_ = integer_from(state, "wait");
    best_ = optional_from(state, "best");
    best_epoch_ = integer_from(state, "best_epoch");
  }
  WeightsCopy* kept_weights() override { return restores_ ? &weights_ : nullptr; }

 private:
  Monitor monitor_;
  double margin_;
  std::int64_t patience_;
  std::int64_t verbose_;
  std::optional<double> baseline_;
  bool restores_;
  std::int64_t first_epoch_;
  std::int64_t wait_ = 0;
  std::int64_t stopped_epoch_ = 0;
  std::int64_t best_epoch_ = 0;
  std::optional<double> best_;
  WeightsCopy weights_;
};

/// Lowers the learning rate when a value no longer gets better.
class ReduceLROnPlateau : public MonitorCallback {
 public:
  explicit ReduceLROnPlateau(json::Arguments& arguments)
      : monitor_("ReduceLROnPlateau", arguments),
        factor_(arguments.number("factor", 0.1)),
        patience_(arguments.integer("patience", 10, 0)),
        verbose_(arguments.integer("verbose", 0, 0)),
        margin_(arguments.number("min_delta", 1e-4)),
        cooldown_(arguments.integer("cooldown", 0, 0)),
        least_(arguments.number("min_lr", 0.0)) {
    if (factor_ >= 1.0)
      arguments.problem(*arguments.value("factor"), "factor",
                        "ReduceLROnPlateau does not support a factor >= 1.0");
  }
  void set_directions(const Directions& directions) override { monitor_.resolve(directions); }

  void on_epoch_end(FitContext& context, std::int64_t epoch, Logs& logs) override {
    const double rate = context.session.learning_rate();
    logs.emplace_back("learning_rate", rate);
    const double* current = monitor_.value(context, logs);
    if (current == nullptr) return;
    if (pause_ > 0) {
      --pause_;
      wait_ = 0;
    }
    if (monitor_.better(*current, best_, margin_)) {
      best_ = *current;
      wait_ = 0;
      return;
    }
    if (pause_ > 0 || ++wait_ < patience_ || !(rate > static_cast<float>(least_))) return;
    const double reduced = std::max(rate * factor_, least_);
    context.session.set_learning_rate(reduced);
    if (verbose_ > 0)
      context.print(fmt::format("\nEpoch {}: ReduceLROnPlateau reducing learning rate to {}.",
                                epoch + 1, reduced));
    pause_ = cooldown_;
    wait_ = 0;
  }

  json::Value state() const override {
    return json::make_object({{"wait", json::make(wait_)},
                              {"cooldown", json::make(pause_)},
                              {"best", optional_json(best_)}});
  }
  void restore(const json::Value& state) override {
    wait_ = integer_from(state, "wait");
    pause_ = integer_from(state, "cooldown");
    best_ = optional_from(state, "best");
  }

 private:
  Monitor monitor_;
  double factor_;
  std::int64_t patience_;
  std::int64_t verbose_;
  double margin_;
  std::int64_t cooldown_;
  double least_;
  std::int64_t wait_ = 0;
  std::int64_t pause_ = 0;
  std::optional<double> best_;
};

/// Writes weights after epochs or batches, all of them or only the best.
class ModelCheckpoint : public MonitorCallback {
 public:
  explicit ModelCheckpoint(json::Arguments& arguments) : monitor_("ModelCheckpoint", arguments) {
    if (const json::Value* path = arguments.required("filepath"); path != nullptr) {
      path_ = arguments.text("filepath", "");
      if (!path_.ends_with(".safetensors")) {
        arguments.problem(
            *path, "filepath",
            fmt::format("\"{}\": weights are written as .safetensors; let the path end so", path_));
      }
    }
    verbose_ = arguments.integer("verbose", 0, 0);
    best_only_ = arguments.boolean("save_best_only", false);
    arguments.boolean("save_weights_only", true);
    const json::Value* freq = arguments.value("save_freq");
    if (freq != nullptr && freq->is_string()) arguments.choice("save_freq", "epoch", {"epoch"});
    if (freq != nullptr && !freq->is_string()) every_ = arguments.integer("save_freq", 0, 1);
    best_ = arguments.optional_number("initial_value_threshold");
  }
  void set_directions(const Directions& directions) override {
    if (best_only_) monitor_.resolve(directions);
  }

  void on_batch_end(FitContext& context, const BatchEvent& event) override {
    if (every_ == 0 || ++seen_ < every_) return;
    seen_ = 0;
    save(context, event.epoch, event.batch + 1,
         best_only_ ? context.session.read_metrics() : Logs{});
  }
  void on_epoch_end(FitContext& context, std::int64_t epoch, Logs& logs) override {
    if (every_ == 0) save(context, epoch, 0, logs);
  }

  json::Value state() const override {
    return json::make_object({{"seen", json::make(seen_)}, {"best", optional_json(best_)}});
  }
  void restore(const json::Value& state) override {
    seen_ = integer_from(state, "seen");
    best_ = optional_from(state, "best");
  }

 private:
  void save(FitContext& context, std::int64_t epoch, std::int64_t batch, const Logs& logs) {
    const std::string path = fill_path(path_, epoch + 1, batch, logs);
    if (best_only_) {
      const double* current = monitor_.value(context, logs);
      if (current == nullptr) return;
      const std::string former = best_                            ? fmt::format("{:.5f}", *best_)
                                 : monitor_.better(1.0, 0.0, 0.0) ? "-inf"
                                                                  : "inf";
      if (!monitor_.better(*current, best_, 0.0)) {
        if (verbose_ > 0)
          context.print(fmt::format("\nEpoch {}: {} did not improve from {}", epoch + 1,
                                    monitor_.name(), former));
        return;
      }
      if (verbose_ > 0) {
        context.print(fmt::format("\nEpoch {}: {} improved from {} to {:.5f}, saving model to {}",
                                  epoch + 1, monitor_.name(), former, *current, path));
      }
      best_ = *current;
    } else if (verbose_ > 0) {
      context.print(fmt::format("\nEpoch {}: saving model to {}", epoch + 1, path));
    }
    const fs::path folder = fs::path(path).parent_path();
    std::error_code ignored;  // writing the file gives the reason where this fails
    if (context.session.is_first_rank() && !folder.empty()) fs::create_directories(folder, ignored);
    save_weights(context.session.storage(), context.session.world(), path);
    if (verbose_ > 0)
      context.print(fmt::format("\nEpoch {}: finished saving model to {}", epoch + 1, path));
  }

  Monitor monitor_;
  std::string path_;
  std::int64_t verbose_ = 0;
  bool best_only_ = false;
  std::int64_t every_ = 0;  // batches; 0: after epochs
  std::int64_t seen_ = 0;
  std::optional<double> best_;
};

/// Ends training when a batch's loss is not finite.
class TerminateOnNaN : public Callback {
 public:
  explicit TerminateOnNaN(json::Arguments& arguments)
      : raises_(arguments.boolean("raise_error", false)) {}
  bool needs_batch_loss() const override { return true; }
  void on_batch_end(FitContext& context, const BatchEvent& event) override {
    if (std::isfinite(event.loss)) return;
    const std::string text =
        fmt::format("Batch {}: Invalid loss, terminating training", event.batch);
    if (raises_)
      throw Error(Error::Kind::numbers, fmt::format("{} (epoch {}, step {}: loss is {})", text,
                                                    event.epoch + 1, event.step, event.loss));
    context.print(text);
    context.stop = true;
  }

 private:
  bool raises_;
};

/// A row of values per epoch.
class CSVLogger : public Callback {
 public:
  explicit CSVLogger(json::Arguments& arguments)
      : separator_(arguments.text("separator", ",")), append_(arguments.boolean("append", false)) {
    arguments.required("filename");
    path_ = arguments.text("filename", "");
  }

  void on_train_begin(FitContext& context) override {
    if (!context.session.is_first_rank()) return;
    std::error_code ignored;
    const auto size = fs::file_size(path_, ignored);
    headed_ = append_ && !ignored && size > 0;
    file_.reset(std::fopen(path_.c_str(), append_ ? "ae" : "we"));
    if (file_ == nullptr)
      throw Error(Error::Kind::internal, fmt::format("{}: cannot be created", path_));
  }

  void on_epoch_end(FitContext& /*context*/, std::int64_t epoch, Logs& logs) override {
    if (file_ == nullptr) return;
    if (keys_.empty()) choose_keys(logs);
    std::string line;
    if (!headed_) line = fmt::format("epoch{}{}\n", separator_, fmt::join(keys_, separator_));
    headed_ = true;
    line += std::to_string(epoch);
    for (const std::string& key : keys_) {
      const double* value = find_log(logs, key);
      line += separator_ + (value == nullptr ? "NA" : fmt::format("{}", *value));
    }
    fmt::print(file_.get(), "{}\n", line);
    std::fflush(file_.get());
  }

 private:
  /// Fixed at the first epoch: sorted, with empty columns for a validation that may come later.
  void choose_keys(const Logs& logs) {
    bool validated = false;
    for (const auto& [name, value] : logs) {
      keys_.push_back(name);
      validated = validated || name.starts_with("val_");
    }
    std::sort(keys_.begin(), keys_.end());
    const std::size_t count = keys_.size();
    for (std::size_t i = 0; i < count && !validated; ++i) keys_.push_back("val_" + keys_[i]);
  }

  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::string separator_;
  bool append_;
  bool headed_ = false;
  std::unique_ptr<std::FILE, Closer> file_;
  std::vector<std::string> keys_;
};

/// Keeps the state of a run while it goes on, and takes an interrupted one up where it stopped.
class BackupAndRestore : public Callback {
 public:
  explicit BackupAndRestore(json::Arguments& arguments) {
    arguments.required("backup_dir");
    folder_ = arguments.text("backup_dir", "");
    Checkpoints::Options options{.every_epochs = 1, .every_steps = 0, .keep = 1, .resume = "auto"};
    const json::Value* freq = arguments.value("save_freq");
    if (freq != nullptr && freq->is_string()) arguments.choice("save_freq", "epoch", {"epoch"});
    if (freq != nullptr && !freq->is_string())
      options = {0, arguments.integer("save_freq", 0, 1), 1, "auto"};
    if (arguments.boolean("double_checkpoint", false)) options.keep = 2;
    deletes_ = arguments.boolean("delete_checkpoint", true);
    checkpoints_ = std::make_unique<Checkpoints>(folder_, options);
  }
  bool saves_state() const override { return true; }
  void on_train_begin(FitContext& context) override { checkpoints_->on_train_begin(context); }
  void on_batch_end(FitContext& context, const BatchEvent& event) override {
    checkpoints_->on_batch_end(context, event);
  }
  void on_epoch_end(FitContext& context, std::int64_t epoch, Logs& logs) override {
    checkpoints_->on_epoch_end(context, epoch, logs);
  }
  void on_train_end(FitContext& context, const Logs& /*logs*/) override {
    context.session.world().all().barrier();
    if (!deletes_ || !context.session.is_first_rank()) return;
    for (const std::string& checkpoint : list_checkpoints(folder_)) fs::remove_all(checkpoint);
    std::error_code not_empty;
    fs::remove(folder_, not_empty);
  }

 private:
  std::string folder_;
  bool deletes_ = true;
  std::unique_ptr<Checkpoints> checkpoints_;
};

template <typename T>
Made make(json::Arguments& arguments) {
  return std::make_unique<T>(arguments);
}

struct Entry {
  std::string_view name;
  Made (*make)(json::Arguments& arguments);
};

constexpr std::array<Entry, 6> kCallbacks{{
    {"BackupAndRestore", make<BackupAndRestore>},
    {"CSVLogger", make<CSVLogger>},
    {"EarlyStopping", make<EarlyStopping>},
    {"ModelCheckpoint", make<ModelCheckpoint>},
    {"ReduceLROnPlateau", make<ReduceLROnPlateau>},
    {"TerminateOnNaN", make<TerminateOnNaN>},
}};

}  // namespace

std::unique_ptr<Callback> make_callback(const json::Value& value, const std::string& path,
                                        json::Problems& problems) {
  const json::Identifier identifier = json::read_identifier(value, path, problems);
  if (identifier.class_name.empty()) return nullptr;
  std::vector<std::string> names;
  for (const Entry& entry : kCallbacks) {
    names.emplace_back(entry.name);
    if (entry.name != identifier.class_name) continue;
    const std::size_t before = problems.list().size();
    json::Arguments arguments(*identifier.config, path + ".config", problems);
    Made callback = entry.make(arguments);
    arguments.finish();
    return problems.list().size() == before ? std::move(callback) : nullptr;
  }
  problems.add(
      {identifier.at->file ? *identifier.at->file : "", identifier.at->position, path,
       fmt::format("unknown callback \"{}\"{}; there are {}", identifier.class_name,
                   json::did_you_mean(identifier.class_name, names), fmt::join(names, ", "))});
  return nullptr;
}

}  // namespace tessera::train
