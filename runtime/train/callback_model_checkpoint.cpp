// ModelCheckpoint: weights as files while training goes on.
#include <fmt/format.h>

#include <filesystem>

#include "runtime/train/callback_families.h"
#include "runtime/train/callback_monitor.h"
#include "runtime/train/weights_file.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

std::unique_ptr<Callback> make_model_checkpoint(json::Arguments& arguments) {
  return std::make_unique<ModelCheckpoint>(arguments);
}

}  // namespace tessera::train
