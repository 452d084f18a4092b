// Adam and the optimizers that keep its two moments: AdamW, Adamax, Nadam, Lamb.
#include <fmt/format.h>

#include "runtime/ops/ops.h"
#include "runtime/train/optimizer_families.h"

namespace tessera::train {
namespace {

using ops::operator+;
using ops::operator-;
using ops::operator*;
using ops::operator/;

/// Keywords and slots of the family. The moments are declared in turn, variable by variable.
class MomentOptimizer : public OptimizerBase {
 protected:
  MomentOptimizer(json::Arguments& arguments, OptimizerDefaults defaults)
      : OptimizerBase(arguments, std::move(defaults)),
        beta_1_(arguments.number("beta_1", 0.9)),
        beta_2_(arguments.number("beta_2", 0.999)),
        epsilon_(arguments.number("epsilon", 1e-7)) {}

  void declare_slots(graph::VariableTable& table, std::span<const VariableId> trainable) override {
    for (const VariableId variable : trainable) {
      firsts_.set(variable, add_slot(table, variable, "momentum"));
      seconds_.set(variable, add_slot(table, variable, second_name()));
    }
  }
  virtual const char* second_name() const { return "velocity"; }

  /// Moves the first moment towards the gradient.
  SymbolicTensor first(Updates& updates, VariableId variable, SymbolicTensor gradient) const {
    const SymbolicTensor old = updates.read(firsts_[variable]);
    const SymbolicTensor moment = old + (gradient - old) * (1.0 - beta_1_);
    updates.write(firsts_[variable], moment);
    return moment;
  }
  /// Moves the second moment towards the gradient's square.
  SymbolicTensor second(Updates& updates, VariableId variable, SymbolicTensor gradient) const {
    const SymbolicTensor old = updates.read(seconds_[variable]);
    const SymbolicTensor moment = old + (ops::square(gradient) - old) * (1.0 - beta_2_);
    updates.write(seconds_[variable], moment);
    return moment;
  }

  double beta_1_;
  double beta_2_;
  double epsilon_;
  Slots firsts_;
  Slots seconds_;
};

class Adam final : public MomentOptimizer {
 public:
  Adam(json::Arguments& arguments, OptimizerDefaults defaults)
      : MomentOptimizer(arguments, std::move(defaults)),
        amsgrad_(arguments.boolean("amsgrad", false)) {}

 protected:
  void declare_slots(graph::VariableTable& table, std::span<const VariableId> trainable) override {
    MomentOptimizer::declare_slots(table, trainable);
    if (amsgrad_) largest_ = add_slots(table, trainable, "velocity_hat");
  }

  void update_variable(Updates& updates, const StepScalars& step, VariableId variable,
                       SymbolicTensor gradient) const override {
    const SymbolicTensor value = updates.read(variable);
    const DType dtype = value.dtype();
    const SymbolicTensor rate = step.learning_rate(dtype) *
                                ops::sqrt(1.0 - step.power(beta_2_, dtype)) /
                                (1.0 - step.power(beta_1_, dtype));
    const SymbolicTensor m = first(updates, variable, gradient);
    SymbolicTensor v = second(updates, variable, gradient);
    if (amsgrad_) {
      v = ops::maximum(updates.read(largest_[variable]), v);
      updates.write(largest_[variable], v);
    }
    updates.write(variable, value - m * rate / (ops::sqrt(v) + epsilon_));
  }

 private:
  bool amsgrad_;
  Slots largest_;
};

class Adamax final : public MomentOptimizer {
 public:
  explicit Adamax(json::Arguments& arguments)
      : MomentOptimizer(arguments, {.name = "adamax", .learning_rate = 0.001, .weight_decay = {}}) {
  }

 protected:
  const char* second_name() const override { return "norm"; }

  void update_variable(Updates& updates, const StepScalars& step, VariableId variable,
                       SymbolicTensor gradient) const override {
    const SymbolicTensor value = updates.read(variable);
    const DType dtype = value.dtype();
    const SymbolicTensor m = first(updates, variable, gradient);
    const SymbolicTensor norm =
        ops::maximum(beta_2_ * updates.read(seconds_[variable]), ops::abs(gradient));
    updates.write(seconds_[variable], norm);
    const SymbolicTensor rate = step.learning_rate(dtype) / (1.0 - step.power(beta_1_, dtype));
    updates.write(variable, value - m * rate / (norm + epsilon_));
  }
};

class Nadam final : public MomentOptimizer {
 public:
  explicit Nadam(json::Arguments& arguments)
      : MomentOptimizer(arguments, {.name = "nadam", .learning_rate = 0.001, .weight_decay = {}}) {}

 protected:
  void declare_slots(graph::VariableTable& table, std::span<const VariableId> trainable) override {
    MomentOptimizer::declare_slots(table, trainable);
    graph::Variable product;
    // Keras calls it just "variable", without the optimizer's name.
    product.path = name() + "/variable";
    product.trainable = false;
    product.role = graph::Role::optimizer;
    product.initializer.kind = graph::Initializer::Kind::ones;
    product_ = table.declare(std::move(product));
  }

  void begin_update(Updates& updates, const StepScalars& step) const override {
    updates.write(product_, updates.read(product_) * momentum(step, DType::float32, 0));
  }

  void update_variable(Updates& updates, const StepScalars& step, VariableId variable,
                       SymbolicTensor gradient) const override {
    const SymbolicTensor value = updates.read(variable);
    const DType dtype = value.dtype();
    const SymbolicTensor now = momentum(step, dtype, 0);
    const SymbolicTensor next = momentum(step, dtype, 1);
    const SymbolicTensor product = as(updates.read(product_), dtype);
    const SymbolicTensor of_moment = next / (1.0 - product * next);
    const SymbolicTensor of_gradient = (1.0 - now) / (1.0 - product);
    const SymbolicTensor m_hat =
        of_moment * first(updates, variable, gradient) + of_gradient * gradient;
    const SymbolicTensor v_hat =
        second(updates, variable, gradient) / (1.0 - step.power(beta_2_, dtype));
    updates.write(variable,
                  value - m_hat * step.learning_rate(dtype) / (ops::sqrt(v_hat) + epsilon_));
  }

 private:
  /// beta_1 (1 - 0.96^t / 2) at this update or one `ahead`.
  SymbolicTensor momentum(const StepScalars& step, DType dtype, int ahead) const {
    return beta_1_ * (1.0 - 0.5 * ops::pow(0.96, step.number(dtype, ahead)));
  }

  VariableId product_ = -1;
};

class Lamb final : public MomentOptimizer {
 public:
  explicit Lamb(json::Arguments& arguments)
      : MomentOptimizer(arguments, {.name = "lamb", .learning_rate = 0.001, .weight_decay = {}}) {}

 protected:
  void update_variable(Updates& updates, const StepScalars& step, VariableId variable,
                       SymbolicTensor gradient) const override {
    const SymbolicTensor value = updates.read(variable);
    const DType dtype = value.dtype();
    const SymbolicTensor m_hat =
        first(updates, variable, gradient) / (1.0 - step.power(beta_1_, dtype));
    const SymbolicTensor v_hat =
        second(updates, variable, gradient) / (1.0 - step.power(beta_2_, dtype));
    const SymbolicTensor move = m_hat / (ops::sqrt(v_hat) + epsilon_);
    const SymbolicTensor weight_norm = ops::sqrt(ops::sum(ops::square(value)));
    const SymbolicTensor move_norm = ops::sqrt(ops::sum(ops::square(move)));
    const SymbolicTensor both =
        ops::logical_and(ops::greater(weight_norm, 0.0), ops::greater(move_norm, 0.0));
    const SymbolicTensor trust = ops::where(both, weight_norm / move_norm, 1.0);
    updates.write(variable, value - trust * step.learning_rate(dtype) * move);
  }
};

}  // namespace

std::unique_ptr<OptimizerBase> make_adam(json::Arguments& config) {
  return std::make_unique<Adam>(
      config, OptimizerDefaults{.name = "adam", .learning_rate = 0.001, .weight_decay = {}});
}

std::unique_ptr<OptimizerBase> make_adamw(json::Arguments& config) {
  const json::Value* decay = config.value("weight_decay");
  if (decay != nullptr && decay->is_null()) {
    config.problem(*decay, "weight_decay",
                   "Argument `weight_decay` must be a float. Received: weight_decay=null");
  }
  return std::make_unique<Adam>(
      config, OptimizerDefaults{.name = "adam_w", .learning_rate = 0.001, .weight_decay = 0.004});
}

std::unique_ptr<OptimizerBase> make_adamax(json::Arguments& config) {
  return std::make_unique<Adamax>(config);
}

std::unique_ptr<OptimizerBase> make_nadam(json::Arguments& config) {
  return std::make_unique<Nadam>(config);
}

std::unique_ptr<OptimizerBase> make_lamb(json::Arguments& config) {
  return std::make_unique<Lamb>(config);
}

}  // namespace tessera::train
