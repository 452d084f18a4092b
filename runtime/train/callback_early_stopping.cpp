// EarlyStopping: ends training when a watched value no longer gets better.
#include <fmt/format.h>

#include <cmath>

#include "runtime/train/callback_families.h"
#include "runtime/train/callback_monitor.h"

namespace tessera::train {
namespace {

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
                              {"best_epoch", json::make(best_epoch_)},
                              {"stopped_epoch", json::make(stopped_epoch_)}});
  }
  void restore(const json::Value& state) override {
    wait_ = integer_from(state, "wait");
    best_ = optional_from(state, "best");
    best_epoch_ = integer_from(state, "best_epoch");
    stopped_epoch_ = integer_from(state, "stopped_epoch");
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

}  // namespace

std::unique_ptr<Callback> make_early_stopping(json::Arguments& arguments) {
  return std::make_unique<EarlyStopping>(arguments);
}

}  // namespace tessera::train
