// The part of an update that does not depend on the optimizer: keras.md 5.1, "Order inside one
// apply".
#include "runtime/train/optimizer_base.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "runtime/ops/ops.h"

namespace tessera::train {

using ops::operator+;
using ops::operator-;
using ops::operator*;
using ops::operator/;

SymbolicTensor as(SymbolicTensor x, DType dtype) {
  return x.dtype() == dtype ? x : ops::cast(x, dtype);
}

DType Updates::compute_dtype(VariableId id) const {
  const DType dtype = info(id).dtype;
  return dtype == DType::bfloat16 || dtype == DType::float16 ? DType::float32 : dtype;
}

SymbolicTensor Updates::stored(VariableId id) const {
  const auto found = values_.find(id);
  return found == values_.end() ? builder_->variable(id) : found->second;
}

SymbolicTensor Updates::read(VariableId id) const { return as(stored(id), compute_dtype(id)); }

void Updates::write(VariableId id, SymbolicTensor value) {
  values_[id] = as(value, info(id).dtype);
}

void Updates::keep_where(SymbolicTensor condition, const Updates& before) {
  for (auto& [id, value] : values_) {
    const SymbolicTensor old = before.stored(id);
    if (old.id != value.id) value = ops::where(condition, value, old);
  }
}

void Updates::commit() const {
  for (const auto& [id, value] : values_) builder_->assign(id, value);
}

SymbolicTensor StepScalars::number(DType dtype, int ahead) const {
  return as(iteration_, dtype) + static_cast<double>(1 + ahead);
}

SymbolicTensor StepScalars::power(double base, DType dtype) const {
  return ops::pow(base, number(dtype));
}

SymbolicTensor StepScalars::is_first() const { return ops::equal(iteration_, 0.0); }

OptimizerBase::OptimizerBase(json::Arguments& arguments, OptimizerDefaults defaults)
    : name_(arguments.text("name", std::move(defaults.name))) {
  const json::Value* rate = arguments.value("learning_rate");
  initial_learning_rate_ = defaults.learning_rate;
  if (rate != nullptr && rate->is_object()) {
    schedule_ = make_schedule(*rate, arguments.path_of("learning_rate"), arguments.problems());
  } else {
    initial_learning_rate_ = arguments.number("learning_rate", defaults.learning_rate);
  }
  const json::Value* decay = arguments.value("weight_decay");
  weight_decay_ = arguments.optional_number("weight_decay");
  if (decay == nullptr) weight_decay_ = defaults.weight_decay;
  clipnorm_ = arguments.optional_number("clipnorm", 0.0);
  clipvalue_ = arguments.optional_number("clipvalue", 0.0);
  global_clipnorm_ = arguments.optional_number("global_clipnorm", 0.0);
  if (static_cast<int>(clipnorm_.has_value()) + static_cast<int>(clipvalue_.has_value()) +
          static_cast<int>(global_clipnorm_.has_value()) >
      1) {
    const char* second = clipvalue_ ? "clipvalue" : "global_clipnorm";
    arguments.problem(*arguments.object().find(second), second,
                      "Only one of `clipnorm`, `clipvalue` and `global_clipnorm` can be set");
  }
  use_ema_ = arguments.boolean("use_ema", false);
  ema_momentum_ = arguments.number("ema_momentum", 0.99, 0.0, 1.0);
  ema_overwrite_frequency_ = arguments.optional_integer("ema_overwrite_frequency", 1);
  loss_scale_factor_ = arguments.optional_number("loss_scale_factor");
  accumulation_steps_ = arguments.optional_integer("gradient_accumulation_steps", 2);
}

VariableId OptimizerBase::add_slot(graph::VariableTable& table, VariableId variable,
                                   std::string_view slot, std::vector<int> dims) const {
  const graph::Variable& owner = table[variable];
  std::string flat = owner.path;
  std::replace(flat.begin(), flat.end(), '/', '_');
  graph::Variable added;
  added.path = fmt::format("{}/{}_{}", name_, flat, slot);
  // "a/b" and "a_b" would get one slot between them.
  for (auto known = table.find(added.path); known && table[*known].slot_of != variable;
       known = table.find(added.path)) {
    added.path += "_1";
  }
  for (const int dim : dims) added.shape.push_back(owner.shape[static_cast<std::size_t>(dim)]);
  added.dtype = owner.dtype;
  added.trainable = false;
  added.role = graph::Role::optimizer;
  added.slot_of = variable;
  added.slot_dims = std::move(dims);
  return table.declare(std::move(added));
}

VariableId OptimizerBase::add_slot(graph::VariableTable& table, VariableId variable,
                                   std::string_view slot, graph::Initializer initializer) const {
  std::vector<int> dims;
  for (std::size_t i = 0; i < table[variable].shape.rank(); ++i) {
    dims.push_back(static_cast<int>(i));
  }
  const VariableId added = add_slot(table, variable, slot, std::move(dims));
  table[added].slot_dims.clear();
  table[added].initializer = std::move(initializer);
  return added;
}

Slots OptimizerBase::add_slots(graph::VariableTable& table, std::span<const VariableId> trainable,
                               std::string_view slot, graph::Initializer initializer) const {
  Slots slots;
  for (const VariableId variable : trainable) {
    slots.set(variable, add_slot(table, variable, slot, initializer));
  }
  return slots;
}

void OptimizerBase::declare(graph::VariableTable& table, std::span<const VariableId> trainable) {
  graph::Variable iteration;
  iteration.path = name_ + "/iteration";
  iteration.dtype = DType::int32;
  iteration.trainable = false;
  iteration.role = graph::Role::optimizer;
  iteration_ = table.declare(std::move(iteration));
  if (!schedule_) {
    graph::Variable rate;
    rate.path = name_ + "/learning_rate";
    rate.trainable = false;
    rate.role = graph::Role::optimizer;
    rate.initializer.kind = graph::Initializer::Kind::constant;
    rate.initializer.a = initial_learning_rate_;
    learning_rate_variable_ = table.declare(std::move(rate));
  }
  trainable_.assign(trainable.begin(), trainable.end());
  for (const VariableId variable : trainable) {
    if (use_ema_) averages_.set(variable, add_slot(table, variable, "average"));
    if (accumulation_steps_) {
      accumulators_.set(variable, add_slot(table, variable, "gradient_accumulator"));
    }
  }
  declare_slots(table, trainable);
}

SymbolicTensor OptimizerBase::scale_loss(graph::Builder& /*builder*/, SymbolicTensor loss) const {
  return loss_scale_factor_ ? loss * *loss_scale_factor_ : loss;
}

SymbolicTensor OptimizerBase::current_learning_rate(const Updates& updates) const {
  // A schedule counts micro-steps too: it gets the raw counter.
  if (schedule_) return schedule_->at(as(updates.read(iteration_), DType::float32));
  return updates.read(*learning_rate_variable_);
}

void OptimizerBase::clip(Updates& updates, std::vector<Gradient>& gradients) const {
  if (clipnorm_ && *clipnorm_ > 0.0) {
    for (Gradient& gradient : gradients) {
      const SymbolicTensor squares = ops::sum(ops::square(gradient.value));
      const SymbolicTensor norm =
          ops::where(ops::greater(squares, 0.0), ops::sqrt(squares), squares);
      gradient.value = gradient.value * *clipnorm_ / ops::maximum(norm, *clipnorm_);
    }
  } else if (global_clipnorm_ && *global_clipnorm_ > 0.0) {
    SymbolicTensor total;
    for (const Gradient& gradient : gradients) {
      const SymbolicTensor squares = as(ops::sum(ops::square(gradient.value)), DType::float32);
      total = total ? total + squares : squares;
    }
    const SymbolicTensor norm = ops::sqrt(total);
    // The last term is 0 for a finite norm and NaN otherwise.
    const SymbolicTensor scale =
        *global_clipnorm_ * ops::minimum(1.0 / norm, 1.0 / *global_clipnorm_) + (norm - norm);
    for (Gradient& gradient : gradients) {
      gradient.value = gradient.value * as(scale, updates.compute_dtype(gradient.variable));
    }
  } else if (clipvalue_ && *clipvalue_ > 0.0) {
    for (Gradient& gradient : gradients) {
      gradient.value = ops::clip(gradient.value, -*clipvalue_, *clipvalue_);
    }
  }
}

void OptimizerBase::decay_and_step(Updates& updates, std::vector<Gradient>& gradients,
                                   SymbolicTensor iteration) const {
  clip(updates, gradients);
  const StepScalars step(current_learning_rate(updates), iteration);
  for (const Gradient& gradient : gradients) {
    const std::optional<double> decay = weight_decay_of(updates.info(gradient.variable));
    if (!decay || *decay == 0.0) continue;
    const SymbolicTensor value = updates.read(gradient.variable);
    updates.write(gradient.variable, value - value * *decay * step.learning_rate(value.dtype()));
  }
  begin_update(updates, step);
  for (const Gradient& gradient : gradients) {
    update_variable(updates, step, gradient.variable, gradient.value);
  }
}

void OptimizerBase::accumulate_and_step(Updates& updates, std::vector<Gradient>& gradients,
                                        SymbolicTensor iteration) const {
  const double steps = static_cast<double>(*accumulation_steps_);
  const SymbolicTensor next = updates.read(iteration_) + 1.0;
  const SymbolicTensor is_update = ops::equal(next - ops::floor(next / steps) * steps, 0.0);
  std::vector<SymbolicTensor> sums;
  for (Gradient& gradient : gradients) {
    sums.push_back(gradient.value + updates.read(accumulators_[gradient.variable]));
    gradient.value = sums.back() / steps;
  }
  const Updates before = updates;
  decay_and_step(updates, gradients, iteration);
  updates.keep_where(is_update, before);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    updates.write(accumulators_[gradients[i].variable], ops::where(is_update, 0.0, sums[i]));
  }
}

void OptimizerBase::average(Updates& updates, SymbolicTensor iteration) const {
  // The first average is the weight itself: momentum 0.
  const SymbolicTensor momentum =
      ops::where(ops::equal(iteration, 0.0), 0.0, ops::full(updates.builder(), {}, ema_momentum_));
  for (const VariableId variable : trainable_) {
    const SymbolicTensor value = updates.read(variable);
    const SymbolicTensor keep = as(momentum, value.dtype());
    const VariableId slot = averages_[variable];
    updates.write(slot, keep * updates.read(slot) + (1.0 - keep) * value);
    if (!ema_overwrite_frequency_) continue;
    const double every = static_cast<double>(*ema_overwrite_frequency_);
    const SymbolicTensor next = iteration + 1.0;
    const SymbolicTensor due = ops::equal(next - ops::floor(next / every) * every, 0.0);
    updates.write(variable, ops::where(due, updates.read(slot), value));
  }
}

void OptimizerBase::update(Updates& updates, std::span<const Gradient> gradients) const {
  std::vector<Gradient> present;
  for (const Gradient& gradient : gradients) {
    if (!gradient.value) continue;
    SymbolicTensor value = as(gradient.value, updates.compute_dtype(gradient.variable));
    if (loss_scale_factor_) value = value / *loss_scale_factor_;
    present.push_back({gradient.variable, value});
  }
  if (present.empty()) {
    throw Error(Error::Kind::config,
                "No gradients provided for any variable: the loss depends on no trainable weight");
  }
  const SymbolicTensor raw = updates.read(iteration_);
  if (accumulation_steps_) {
    const SymbolicTensor iteration = ops::floor(raw / static_cast<double>(*accumulation_steps_));
    accumulate_and_step(updates, present, iteration);
    if (use_ema_) average(updates, iteration);
  } else {
    decay_and_step(updates, present, raw);
    if (use_ema_) average(updates, raw);
  }
  for (const Gradient& gradient : present) {
    const auto& constraint = updates.info(gradient.variable).constraint;
    if (constraint) updates.write(gradient.variable, constraint(updates.read(gradient.variable)));
  }
  updates.write(iteration_, raw + 1.0);
}

void OptimizerBase::apply(graph::Builder& builder, std::span<const Gradient> gradients) const {
  const graph::Builder::Scope phase(builder, graph::Phase::update);
  const graph::Builder::Scope path(builder, graph::Builder::AbsolutePath{name_});
  Updates updates(builder);
  update(updates, gradients);
  updates.commit();
}

bool OptimizerBase::finish(graph::Builder& builder) const {
  if (!use_ema_) return false;
  const graph::Builder::Scope phase(builder, graph::Phase::update);
  const graph::Builder::Scope path(builder, graph::Builder::AbsolutePath{name_});
  Updates updates(builder);
  // Before the first step there are no averages yet.
  const SymbolicTensor none = ops::equal(updates.read(iteration_), 0.0);
  for (const VariableId variable : trainable_) {
    updates.write(variable,
                  ops::where(none, updates.read(variable), updates.read(averages_[variable])));
  }
  updates.commit();
  return true;
}

}  // namespace tessera::train
