// LossScaleOptimizer: scales the loss up, skips steps whose gradients are not finite, adapts the
// scale.
#include "base/error.h"
#include "runtime/ops/ops.h"
#include "runtime/train/optimizer_families.h"

namespace tessera::train {
namespace {

using ops::operator+;
using ops::operator*;
using ops::operator/;

class LossScaleOptimizer final : public Optimizer {
 public:
  LossScaleOptimizer(std::unique_ptr<OptimizerBase> inner, LossScaleArguments arguments)
      : inner_(std::move(inner)), arguments_(std::move(arguments)) {
    inner_->disable_loss_scale();
  }

  const std::string& name() const override { return arguments_.name; }

  void declare(graph::VariableTable& table, std::span<const VariableId> trainable) override {
    graph::Variable counter;
    counter.path = arguments_.name + "/step_counter";
    counter.dtype = DType::int32;
    counter.trainable = false;
    counter.role = graph::Role::optimizer;
    counter_ = table.declare(std::move(counter));
    graph::Variable scale;
    scale.path = arguments_.name + "/dynamic_scale";
    scale.trainable = false;
    scale.role = graph::Role::optimizer;
    scale.initializer.kind = graph::Initializer::Kind::constant;
    scale.initializer.a = arguments_.initial_scale;
    scale_ = table.declare(std::move(scale));
    inner_->declare(table, trainable);
  }

  SymbolicTensor scale_loss(graph::Builder& builder, SymbolicTensor loss) const override {
    return loss * as(builder.variable(scale_), loss.dtype());
  }

  void apply(graph::Builder& builder, std::span<const Gradient> gradients) const override {
    const graph::Builder::Scope phase(builder, graph::Phase::update);
    const graph::Builder::Scope path(builder, graph::Builder::AbsolutePath{arguments_.name});
    Updates updates(builder);
    const Updates before = updates;
    const SymbolicTensor scale = updates.read(scale_);
    std::vector<Gradient> unscaled;
    for (const Gradient& gradient : gradients) {
      if (!gradient.value) continue;
      const SymbolicTensor value = as(gradient.value, updates.compute_dtype(gradient.variable));
      unscaled.push_back({gradient.variable, value / as(scale, value.dtype())});
    }
    const SymbolicTensor finite = ops::equal(not_finite(gradients), 0.0);
    inner_->update(updates, unscaled);
    updates.keep_where(finite, before);
    adapt(updates, finite, scale);
    updates.commit();
  }

  bool finish(graph::Builder& builder) const override { return inner_->finish(builder); }
  std::optional<VariableId> learning_rate() const override { return inner_->learning_rate(); }
  VariableId iteration() const override { return inner_->iteration(); }
  const Schedule* schedule() const override { return inner_->schedule(); }

 private:
  /// Number of elements of all gradients that are infinite or NaN: one sum over the whole mesh, so
  /// that all ranks decide alike.
  static SymbolicTensor not_finite(std::span<const Gradient> gradients) {
    SymbolicTensor count;
    for (const Gradient& gradient : gradients) {
      if (!gradient.value) continue;
      const SymbolicTensor bad =
          ops::sum(ops::cast(ops::logical_not(ops::is_finite(gradient.value)), DType::float32));
      count = count ? count + bad : bad;
    }
    if (!count) {
      throw Error(
          Error::Kind::config,
          "No gradients provided for any variable: the loss depends on no trainable weight");
    }
    return count;
  }

  /// Doubles the scale after `growth_steps` good steps in a row, halves it after a bad one.
  void adapt(Updates& updates, SymbolicTensor finite, SymbolicTensor scale) const {
    const SymbolicTensor counter = updates.read(counter_);
    const SymbolicTensor grows = ops::logical_and(
        finite, ops::equal(counter, static_cast<double>(arguments_.growth_steps - 1)));
    const SymbolicTensor counts = ops::logical_and(finite, ops::logical_not(grows));
    updates.write(counter_, ops::where(counts, counter + 1.0, 0.0));
    updates.write(scale_, ops::where(finite, ops::where(grows, scale * 2.0, scale), scale * 0.5));
  }

  std::unique_ptr<OptimizerBase> inner_;
  LossScaleArguments arguments_;
  VariableId counter_ = -1;
  VariableId scale_ = -1;
};

}  // namespace

std::unique_ptr<Optimizer> make_loss_scale(std::unique_ptr<OptimizerBase> inner,
                                           LossScaleArguments arguments) {
  return std::make_unique<LossScaleOptimizer>(std::move(inner), std::move(arguments));
}

}  // namespace tessera::train
