// Keras's optimizers: slots, and one update as element-wise formulas.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "runtime/graph/builder.h"
#include "runtime/train/schedules.h"

namespace tessera::train {

/// A gradient and the variable it belongs to.
struct Gradient {
  graph::VariableId variable = -1;
  SymbolicTensor value;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual const std::string& name() const = 0;  // "adam"
  /// Declares "adam/iteration" (int32), "adam/learning_rate" (float32 scalar; absent with a
  /// schedule) and the slots (role optimizer, slot_of their variable) in Keras's order of creation.
  /// Once.
  virtual void declare(graph::VariableTable& table,
                       std::span<const graph::VariableId> trainable) = 0;
  /// The loss that gradients are taken of: times loss_scale_factor or the dynamic scale.
  virtual SymbolicTensor scale_loss(graph::Builder& builder, SymbolicTensor loss) const = 0;
  /// One apply as keras.md 5.1 orders it: unscale, accumulate, clip, decay, update, EMA,
  /// constraints, iteration; adds assignments.
  virtual void apply(graph::Builder& builder, std::span<const Gradient> gradients) const = 0;
  /// What fit does when it ends: EMA averages into the weights. False when there is nothing to do
  /// (and no nodes were added).
  virtual bool finish(graph::Builder& builder) const = 0;
  /// The scalar that ReduceLROnPlateau and LearningRateScheduler write; absent with a schedule.
  virtual std::optional<graph::VariableId> learning_rate() const = 0;
  virtual graph::VariableId iteration() const = 0;
  virtual const Schedule* schedule() const = 0;
};

/// From "adam" or {"class_name", "config"}. `mixed_float16` wraps it into LossScaleOptimizer as
/// compile does.
std::unique_ptr<Optimizer> make_optimizer(const json::Value& value, const std::string& path,
                                          bool mixed_float16, json::Problems& problems);
/// Names of the classes, as Keras spells them.
std::vector<std::string> optimizer_classes();

}  // namespace tessera::train
