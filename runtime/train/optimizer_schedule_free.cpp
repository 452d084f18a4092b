// ScheduleFreeAdamW: the weights are a point between an unaveraged sequence (slot "momentum") and
// its average.
#include "runtime/ops/ops.h"
#include "runtime/train/optimizer_families.h"

namespace tessera::train {
namespace {

using ops::operator+;
using ops::operator-;
using ops::operator*;
using ops::operator/;

class ScheduleFreeAdamW final : public OptimizerBase {
 public:
  explicit ScheduleFreeAdamW(json::Arguments& arguments)
      : OptimizerBase(arguments,
                      {.name = "schedule_free_adamw", .learning_rate = 0.0025, .weight_decay = {}}),
        beta_1_(arguments.number("beta_1", 0.9)),
        beta_2_(arguments.number("beta_2", 0.999)),
        epsilon_(arguments.number("epsilon", 1e-8)),
        warmup_steps_(arguments.integer("warmup_steps", 0, 0)) {}

 protected:
  void declare_slots(graph::VariableTable& table, std::span<const VariableId> trainable) override {
    for (const VariableId variable : trainable) {
      sequences_.set(variable, add_slot(table, variable, "momentum"));
      velocities_.set(variable, add_slot(table, variable, "velocity"));
    }
  }

  void update_variable(Updates& updates, const StepScalars& step, VariableId variable,
                       SymbolicTensor gradient) const override {
    const SymbolicTensor value = updates.read(variable);
    const DType dtype = value.dtype();
    const SymbolicTensor number = step.number(dtype);
    SymbolicTensor rate = step.learning_rate(dtype);
    if (warmup_steps_ > 0) {
      rate = rate * ops::minimum(number / static_cast<double>(warmup_steps_), 1.0);
    }
    const SymbolicTensor old_velocity = updates.read(velocities_[variable]);
    const SymbolicTensor velocity =
        old_velocity + (ops::square(gradient) - old_velocity) * (1.0 - beta_2_);
    updates.write(velocities_[variable], velocity);
    // The sequence starts at the weights as they were before any decay of this update.
    const SymbolicTensor start = as(updates.builder().variable(variable), dtype);
    const SymbolicTensor old_sequence =
        ops::where(step.is_first(), start, updates.read(sequences_[variable]));
    const SymbolicTensor corrected = velocity / (1.0 - step.power(beta_2_, dtype));
    const SymbolicTensor sequence =
        old_sequence - rate * gradient / (ops::sqrt(corrected) + epsilon_);
    updates.write(sequences_[variable], sequence);
    const SymbolicTensor old_average = (value - (1.0 - beta_1_) * old_sequence) / beta_1_;
    const SymbolicTensor share = 1.0 / number;
    const SymbolicTensor average = (1.0 - share) * old_average + share * sequence;
    updates.write(variable, (1.0 - beta_1_) * sequence + beta_1_ * average);
  }

 private:
  double beta_1_;
  double beta_2_;
  double epsilon_;
  std::int64_t warmup_steps_;
  Slots sequences_;
  Slots velocities_;
};

}  // namespace

std::unique_ptr<OptimizerBase> make_schedule_free_adamw(json::Arguments& config) {
  return std::make_unique<ScheduleFreeAdamW>(config);
}

}  // namespace tessera::train
