// SGD, with momentum and Nesterov's form of it.
#include "runtime/ops/ops.h"
#include "runtime/train/optimizer_families.h"

namespace tessera::train {
namespace {

using ops::operator+;
using ops::operator-;
using ops::operator*;

class Sgd final : public OptimizerBase {
 public:
  explicit Sgd(json::Arguments& arguments)
      : OptimizerBase(arguments, {.name = "sgd", .learning_rate = 0.01, .weight_decay = {}}),
        momentum_(arguments.number("momentum", 0.0, 0.0, 1.0)),
        nesterov_(arguments.boolean("nesterov", false)) {}

 protected:
  void declare_slots(graph::VariableTable& table, std::span<const VariableId> trainable) override {
    if (momentum_ != 0.0) momentums_ = add_slots(table, trainable, "momentum");
  }

  void update_variable(Updates& updates, const StepScalars& step, VariableId variable,
                       SymbolicTensor gradient) const override {
    const SymbolicTensor value = updates.read(variable);
    const SymbolicTensor move = gradient * step.learning_rate(value.dtype());
    if (momentum_ == 0.0) {
      updates.write(variable, value - move);
      return;
    }
    const SymbolicTensor m = updates.read(momentums_[variable]) * momentum_ - move;
    updates.write(momentums_[variable], m);
    updates.write(variable, value + (nesterov_ ? m * momentum_ - move : m));
  }

 private:
  double momentum_;
  bool nesterov_;
  Slots momentums_;
};

}  // namespace

std::unique_ptr<OptimizerBase> make_sgd(json::Arguments& config) {
  return std::make_unique<Sgd>(config);
}

}  // namespace tessera::train
