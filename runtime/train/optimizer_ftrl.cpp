// Ftrl: "follow the regularized leader".
#include "runtime/ops/ops.h"
#include "runtime/train/optimizer_families.h"

namespace tessera::train {
namespace {

using ops::operator+;
using ops::operator-;
using ops::operator*;
using ops::operator/;

class Ftrl final : public OptimizerBase {
 public:
  explicit Ftrl(json::Arguments& arguments)
      : OptimizerBase(arguments, {.name = "ftrl", .learning_rate = 0.001, .weight_decay = {}}),
        power_(arguments.number("learning_rate_power", -0.5,
                                -std::numeric_limits<double>::infinity(), 0.0)),
        initial_(arguments.number("initial_accumulator_value", 0.1, 0.0)),
        l1_(arguments.number("l1_regularization_strength", 0.0, 0.0)),
        l2_(arguments.number("l2_regularization_strength", 0.0, 0.0)),
        shrinkage_(arguments.number("l2_shrinkage_regularization_strength", 0.0, 0.0)),
        beta_(arguments.number("beta", 0.0)) {}

 protected:
  void declare_slots(graph::VariableTable& table, std::span<const VariableId> trainable) override {
    graph::Initializer start;
    start.kind = graph::Initializer::Kind::constant;
    start.a = initial_;
    for (const VariableId variable : trainable) {
      accumulators_.set(variable, add_slot(table, variable, "accumulator", start));
      linears_.set(variable, add_slot(table, variable, "linear"));
    }
  }

  void update_variable(Updates& updates, const StepScalars& step, VariableId variable,
                       SymbolicTensor gradient) const override {
    const SymbolicTensor value = updates.read(variable);
    const SymbolicTensor rate = step.learning_rate(value.dtype());
    const SymbolicTensor old_sum = updates.read(accumulators_[variable]);
    const SymbolicTensor sum = old_sum + ops::square(gradient);
    const SymbolicTensor scale = ops::pow(sum, -power_);
    const SymbolicTensor shrunk =
        shrinkage_ == 0.0 ? gradient : gradient + 2.0 * shrinkage_ * value;
    const SymbolicTensor linear = updates.read(linears_[variable]) + shrunk -
                                  (scale - ops::pow(old_sum, -power_)) / rate * value;
    SymbolicTensor quadratic = scale / rate + 2.0 * l2_;
    if (beta_ != 0.0) quadratic = quadratic + beta_ / rate;
    updates.write(accumulators_[variable], sum);
    updates.write(linears_[variable], linear);
    updates.write(variable, (ops::clip(linear, -l1_, l1_) - linear) / quadratic);
  }

 private:
  double power_;
  double initial_;
  double l1_;
  double l2_;
  double shrinkage_;
  double beta_;
  Slots accumulators_;
  Slots linears_;
};

}  // namespace

std::unique_ptr<OptimizerBase> make_ftrl(json::Arguments& config) {
  return std::make_unique<Ftrl>(config);
}

}  // namespace tessera::train
