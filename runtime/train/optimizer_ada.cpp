// Adagrad and Adadelta.
#include "runtime/ops/ops.h"
#include "runtime/train/optimizer_families.h"

namespace tessera::train {
namespace {

using ops::operator+;
using ops::operator-;
using ops::operator*;
using ops::operator/;

class Adagrad final : public OptimizerBase {
 public:
  explicit Adagrad(json::Arguments& arguments)
      : OptimizerBase(arguments, {.name = "adagrad", .learning_rate = 0.001, .weight_decay = {}}),
        initial_(arguments.number("initial_accumulator_value", 0.1, 0.0)),
        epsilon_(arguments.number("epsilon", 1e-7)) {}

 protected:
  void declare_slots(graph::VariableTable& table, std::span<const VariableId> trainable) override {
    graph::Initializer start;
    start.kind = graph::Initializer::Kind::constant;
    start.a = initial_;
    accumulators_ = add_slots(table, trainable, "accumulator", start);
  }

  void update_variable(Updates& updates, const StepScalars& step, VariableId variable,
                       SymbolicTensor gradient) const override {
    const SymbolicTensor value = updates.read(variable);
    const SymbolicTensor sum = updates.read(accumulators_[variable]) + ops::square(gradient);
    updates.write(accumulators_[variable], sum);
    updates.write(variable,
                  value - step.learning_rate(value.dtype()) * gradient / ops::sqrt(sum + epsilon_));
  }

 private:
  double initial_;
  double epsilon_;
  Slots accumulators_;
};

class Adadelta final : public OptimizerBase {
 public:
  explicit Adadelta(json::Arguments& arguments)
      : OptimizerBase(arguments, {.name = "adadelta", .learning_rate = 0.001, .weight_decay = {}}),
        rho_(arguments.number("rho", 0.95)),
        epsilon_(arguments.number("epsilon", 1e-7)) {}

 protected:
  void declare_slots(graph::VariableTable& table, std::span<const VariableId> trainable) override {
    gradients_ = add_slots(table, trainable, "accumulated_grad");
    moves_ = add_slots(table, trainable, "accumulated_delta_var");
  }

  void update_variable(Updates& updates, const StepScalars& step, VariableId variable,
                       SymbolicTensor gradient) const override {
    const SymbolicTensor value = updates.read(variable);
    const SymbolicTensor gradients =
        rho_ * updates.read(gradients_[variable]) + (1.0 - rho_) * ops::square(gradient);
    updates.write(gradients_[variable], gradients);
    const SymbolicTensor moves = updates.read(moves_[variable]);
    const SymbolicTensor move =
        ops::sqrt(moves + epsilon_) * gradient / ops::sqrt(gradients + epsilon_);
    updates.write(moves_[variable], rho_ * moves + (1.0 - rho_) * ops::square(move));
    updates.write(variable, value - step.learning_rate(value.dtype()) * move);
  }

 private:
  double rho_;
  double epsilon_;
  Slots gradients_;
  Slots moves_;
};

}  // namespace

std::unique_ptr<OptimizerBase> make_adagrad(json::Arguments& config) {
  return std::make_unique<Adagrad>(config);
}

std::unique_ptr<OptimizerBase> make_adadelta(json::Arguments& config) {
  return std::make_unique<Adadelta>(config);
}

}  // namespace tessera::train
