// ReduceLROnPlateau: lowers the learning rate when a watched value no longer gets better.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/train/callback_families.h"
#include "runtime/train/callback_monitor.h"
#include "runtime/train/progress.h"

namespace tessera::train {
namespace {

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
                                epoch + 1, python_float(reduced)));
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

}  // namespace

std::unique_ptr<Callback> make_reduce_lr_on_plateau(json::Arguments& arguments) {
  return std::make_unique<ReduceLROnPlateau>(arguments);
}

}  // namespace tessera::train
