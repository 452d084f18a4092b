// What all optimizers share: keywords, slots, clipping, decay, averages, accumulation. A family
// adds its slots and its formula.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/arguments.h"
#include "runtime/train/optimizers.h"

namespace tessera::train {

using graph::VariableId;

/// `x` as `dtype`; no node where it is that already.
SymbolicTensor as(SymbolicTensor x, DType dtype);

/// Values of variables while an update is built: a read sees the writes before it, nothing is
/// assigned before `commit`. 16-bit variables are computed with in float32 and rounded when
/// written.
class Updates {
 public:
  explicit Updates(graph::Builder& builder) : builder_(&builder) {}

  graph::Builder& builder() const { return *builder_; }
  const graph::Variable& info(VariableId id) const { return (*builder_->graph().variables)[id]; }
  /// The dtype in which a variable is computed with: float64, float32, or the integer type it has.
  DType compute_dtype(VariableId id) const;
  SymbolicTensor read(VariableId id) const;
  void write(VariableId id, SymbolicTensor value);
  /// Takes back, where `condition` (a boolean scalar) is false, what was written since `before` was
  /// copied.
  void keep_where(SymbolicTensor condition, const Updates& before);
  void commit() const;

 private:
  SymbolicTensor stored(VariableId id) const;

  graph::Builder* builder_;
  std::map<VariableId, SymbolicTensor> values_;
};

/// The scalars of one update. Nothing is added to the graph before it is asked for; asking twice
/// adds nothing.
class StepScalars {
 public:
  StepScalars(SymbolicTensor learning_rate, SymbolicTensor iteration)
      : learning_rate_(learning_rate), iteration_(iteration) {}

  SymbolicTensor learning_rate(DType dtype) const { return as(learning_rate_, dtype); }
  /// Number of this update, counted from 1 + `ahead`.
  SymbolicTensor number(DType dtype, int ahead = 0) const;
  /// base to the power of `number`.
  SymbolicTensor power(double base, DType dtype) const;
  /// True before the first update.
  SymbolicTensor is_first() const;
  SymbolicTensor iteration() const { return iteration_; }

 private:
  SymbolicTensor learning_rate_;  // scalar, float32
  SymbolicTensor iteration_;      // updates done so far: scalar, int32
};

/// Slots of one kind, one per trainable variable where the family has it.
class Slots {
 public:
  void set(VariableId variable, VariableId slot) { slots_[variable] = slot; }
  bool has(VariableId variable) const { return slots_.count(variable) != 0; }
  VariableId operator[](VariableId variable) const { return slots_.at(variable); }

 private:
  std::map<VariableId, VariableId> slots_;
};

/// A constructor's defaults that differ from family to family.
struct OptimizerDefaults {
  std::string name;
  double learning_rate = 0.001;
  std::optional<double> weight_decay;
};

class OptimizerBase : public Optimizer {
 public:
  const std::string& name() const override { return name_; }
  void declare(graph::VariableTable& table, std::span<const VariableId> trainable) override;
  SymbolicTensor scale_loss(graph::Builder& builder, SymbolicTensor loss) const override;
  /// Throws config when no variable has a gradient ("No gradients provided for any variable").
  void apply(graph::Builder& builder, std::span<const Gradient> gradients) const override;
  bool finish(graph::Builder& builder) const override;
  std::optional<VariableId> learning_rate() const override { return learning_rate_variable_; }
  VariableId iteration() const override { return iteration_; }
  const Schedule* schedule() const override { return schedule_.get(); }

  /// `apply` without the assignments.
  void update(Updates& updates, std::span<const Gradient> gradients) const;
  /// For a wrapper that scales by itself.
  void disable_loss_scale() { loss_scale_factor_.reset(); }

 protected:
  /// Reads the shared keywords out of `arguments`.
  OptimizerBase(json::Arguments& arguments, OptimizerDefaults defaults);

  /// Declares the family's slots in Keras's order of creation.
  virtual void declare_slots(graph::VariableTable& table,
                             std::span<const VariableId> trainable) = 0;
  /// Before the variables of one update.
  virtual void begin_update(Updates& /*updates*/, const StepScalars& /*step*/) const {}
  /// One variable: reads and writes it and its slots. `gradient` is clipped, in the variable's
  /// compute dtype.
  virtual void update_variable(Updates& updates, const StepScalars& step, VariableId variable,
                               SymbolicTensor gradient) const = 0;
  virtual std::optional<double> weight_decay_of(const graph::Variable& /*variable*/) const {
    return weight_decay_;
  }

  /// Adds "<name>/<path of the variable, / as _>_<slot>", shaped like the variable.
  VariableId add_slot(graph::VariableTable& table, VariableId variable, std::string_view slot,
                      graph::Initializer initializer = {}) const;
  /// The same with another shape: slot dimension i is dimension dims[i] of the variable.
  VariableId add_slot(graph::VariableTable& table, VariableId variable, std::string_view slot,
                      std::vector<int> dims) const;
  /// One slot of this name for each variable.
  Slots add_slots(graph::VariableTable& table, std::span<const VariableId> trainable,
                  std::string_view slot, graph::Initializer initializer = {}) const;

 private:
  SymbolicTensor current_learning_rate(const Updates& updates) const;
  void clip(Updates& updates, std::vector<Gradient>& gradients) const;
  void decay_and_step(Updates& updates, std::vector<Gradient>& gradients,
                      SymbolicTensor iteration) const;
  void accumulate_and_step(Updates& updates, std::vector<Gradient>& gradients,
                           SymbolicTensor iteration) const;
  void average(Updates& updates, SymbolicTensor iteration) const;

  std::string name_;
  double initial_learning_rate_ = 0.0;
  std::unique_ptr<Schedule> schedule_;
  std::optional<double> weight_decay_;
  std::optional<double> clipnorm_;
  std::optional<double> clipvalue_;
  std::optional<double> global_clipnorm_;
  bool use_ema_ = false;
  double ema_momentum_ = 0.99;
  std::optional<std::int64_t> ema_overwrite_frequency_;
  std::optional<double> loss_scale_factor_;
  std::optional<std::int64_t> accumulation_steps_;

  VariableId iteration_ = -1;
  std::optional<VariableId> learning_rate_variable_;
  std::vector<VariableId> trainable_;
  Slots averages_;
  Slots accumulators_;
};

}  // namespace tessera::train
