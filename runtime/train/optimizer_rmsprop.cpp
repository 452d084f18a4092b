// RMSprop, plain or centered, with or without momentum.
#include "runtime/ops/ops.h"
#include "runtime/train/optimizer_families.h"

namespace tessera::train {
namespace {

using ops::operator+;
using ops::operator-;
using ops::operator*;
using ops::operator/;

class RmsProp final : public OptimizerBase {
 public:
  explicit RmsProp(json::Arguments& arguments)
      : OptimizerBase(arguments, {.name = "rm_sprop", .learning_rate = 0.001, .weight_decay = {}}),
        rho_(arguments.number("rho", 0.9)),
        momentum_(arguments.number("momentum", 0.0)),
        epsilon_(arguments.number("epsilon", 1e-7)),
        centered_(arguments.boolean("centered", false)) {}

 protected:
  void declare_slots(graph::VariableTable& table, std::span<const VariableId> trainable) override {
    velocities_ = add_slots(table, trainable, "velocity");
    if (momentum_ > 0.0) momentums_ = add_slots(table, trainable, "momentum");
    if (centered_) averages_ = add_slots(table, trainable, "average_gradient");
  }

  void update_variable(Updates& updates, const StepScalars& step, VariableId variable,
                       SymbolicTensor gradient) const override {
    const SymbolicTensor value = updates.read(variable);
    const SymbolicTensor velocity =
        rho_ * updates.read(velocities_[variable]) + (1.0 - rho_) * ops::square(gradient);
    updates.write(velocities_[variable], velocity);
    SymbolicTensor denominator = velocity + epsilon_;
    if (centered_) {
      const SymbolicTensor average =
          rho_ * updates.read(averages_[variable]) + (1.0 - rho_) * gradient;
      updates.write(averages_[variable], average);
      denominator = velocity - ops::square(average) + epsilon_;
    }
    SymbolicTensor move = step.learning_rate(value.dtype()) * gradient / ops::sqrt(denominator);
    if (momentum_ > 0.0) {
      move = momentum_ * updates.read(momentums_[variable]) + move;
      updates.write(momentums_[variable], move);
    }
    updates.write(variable, value - move);
  }

 private:
  double rho_;
  double momentum_;
  double epsilon_;
  bool centered_;
  Slots velocities_;
  Slots momentums_;
  Slots averages_;
};

}  // namespace

std::unique_ptr<OptimizerBase> make_rmsprop(json::Arguments& config) {
  return std::make_unique<RmsProp>(config);
}

}  // namespace tessera::train
