// Lion: steps of one size, by the sign of an interpolated momentum.
#include "runtime/ops/ops.h"
#include "runtime/train/optimizer_families.h"

namespace tessera::train {
namespace {

using ops::operator+;
using ops::operator-;
using ops::operator*;

class Lion final : public OptimizerBase {
 public:
  explicit Lion(json::Arguments& arguments)
      : OptimizerBase(arguments, {.name = "lion", .learning_rate = 0.001, .weight_decay = {}}),
        beta_1_(arguments.number("beta_1", 0.9, 0.0, 1.0)),
        beta_2_(arguments.number("beta_2", 0.99)) {}

 protected:
  void declare_slots(graph::VariableTable& table, std::span<const VariableId> trainable) override {
    momentums_ = add_slots(table, trainable, "momentum");
  }

  void update_variable(Updates& updates, const StepScalars& step, VariableId variable,
                       SymbolicTensor gradient) const override {
    const SymbolicTensor value = updates.read(variable);
    const SymbolicTensor m = updates.read(momentums_[variable]);
    const SymbolicTensor direction = ops::sign(m * beta_1_ + gradient * (1.0 - beta_1_));
    updates.write(variable, value - step.learning_rate(value.dtype()) * direction);
    updates.write(momentums_[variable], m * beta_2_ + gradient * (1.0 - beta_2_));
  }

 private:
  double beta_1_;
  double beta_2_;
  Slots momentums_;
};

}  // namespace

std::unique_ptr<OptimizerBase> make_lion(json::Arguments& config) {
  return std::make_unique<Lion>(config);
}

}  // namespace tessera::train
