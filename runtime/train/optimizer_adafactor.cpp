// Adafactor: second moments of a matrix as a column and a row (of the last two dimensions).
#include "runtime/ops/ops.h"
#include "runtime/train/optimizer_families.h"

namespace tessera::train {
namespace {

using ops::operator+;
using ops::operator-;
using ops::operator*;
using ops::operator/;

SymbolicTensor root_mean_square(SymbolicTensor x) { return ops::sqrt(ops::mean(ops::square(x))); }

class Adafactor final : public OptimizerBase {
 public:
  explicit Adafactor(json::Arguments& arguments)
      : OptimizerBase(arguments, {.name = "adafactor", .learning_rate = 0.001, .weight_decay = {}}),
        beta_2_decay_(arguments.number("beta_2_decay", -0.8)),
        epsilon_1_(arguments.number("epsilon_1", 1e-30)),
        epsilon_2_(arguments.number("epsilon_2", 1e-3)),
        clip_threshold_(arguments.number("clip_threshold", 1.0)) {
    // Keras limits the rate to 1/sqrt(t) for `relative_step`, then takes the same minimum in any
    // case: without effect.
    arguments.boolean("relative_step", true);
  }

 protected:
  void declare_slots(graph::VariableTable& table, std::span<const VariableId> trainable) override {
    for (const VariableId variable : trainable) {
      const int rank = static_cast<int>(table[variable].shape.rank());
      if (rank >= 2) {
        std::vector<int> without_last;
        for (int dim = 0; dim < rank - 1; ++dim) without_last.push_back(dim);
        std::vector<int> without_second_last = without_last;
        without_second_last.back() = rank - 1;
        // Keras names both after the variable alone; a table of paths needs them apart.
        rows_.set(variable, add_slot(table, variable, "r", std::move(without_last)));
        columns_.set(variable, add_slot(table, variable, "c", std::move(without_second_last)));
      }
      velocities_.set(variable, add_slot(table, variable, "velocity"));
    }
  }

  void update_variable(Updates& updates, const StepScalars& step, VariableId variable,
                       SymbolicTensor gradient) const override {
    const SymbolicTensor value = updates.read(variable);
    const SymbolicTensor number = step.number(value.dtype());
    const SymbolicTensor rate =
        ops::minimum(step.learning_rate(value.dtype()), 1.0 / ops::sqrt(number));
    const SymbolicTensor scaled_rate = ops::maximum(root_mean_square(value), epsilon_2_) * rate;
    const SymbolicTensor squares = ops::square(gradient) + epsilon_1_;
    const SymbolicTensor rest = ops::pow(number, beta_2_decay_);
    const SymbolicTensor keep = 1.0 - rest;
    SymbolicTensor velocity;
    if (rows_.has(variable)) {
      const SymbolicTensor r =
          keep * updates.read(rows_[variable]) + rest * ops::mean(squares, {-1});
      const SymbolicTensor c =
          keep * updates.read(columns_[variable]) + rest * ops::mean(squares, {-2});
      updates.write(rows_[variable], r);
      updates.write(columns_[variable], c);
      velocity = ops::expand_dims(r / ops::mean(r, {-1}, true), -1) * ops::expand_dims(c, -2);
    } else {
      velocity = keep * updates.read(velocities_[variable]) + rest * squares;
    }
    updates.write(velocities_[variable], velocity);
    const SymbolicTensor move = gradient / ops::sqrt(velocity);
    const SymbolicTensor excess = ops::maximum(root_mean_square(move) / clip_threshold_, 1.0);
    updates.write(variable, value - scaled_rate * (move / excess));
  }

 private:
  double beta_2_decay_;
  double epsilon_1_;
  double epsilon_2_;
  double clip_threshold_;
  Slots rows_;
  Slots columns_;
  Slots velocities_;
};

}  // namespace

std::unique_ptr<OptimizerBase> make_adafactor(json::Arguments& config) {
  return std::make_unique<Adafactor>(config);
}

}  // namespace tessera::train
