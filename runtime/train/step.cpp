// The graphs of a run: forward, losses, gradients, update, totals.
#include "runtime/train/step.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "runtime/ops/gradients.h"
#include "runtime/ops/ops.h"

namespace tessera::train {
namespace {

using graph::Builder;
using graph::Phase;
using graph::VariableId;
using graph::VariableTable;
using layouts::Placement;
using ops::operator+;
using ops::operator*;

std::vector<VariableId> trainable_weights(const VariableTable& table) {
  std::vector<VariableId> ids;
  for (VariableId id = 0; id < static_cast<VariableId>(table.size()); ++id) {
    if (table[id].role == graph::Role::weight && table[id].trainable) ids.push_back(id);
  }
  return ids;
}

/// Placement in which a weight is used.
Placement compute_placement(const graph::Variable& variable) {
  if (variable.compute) return *variable.compute;
  return variable.storage.value_or(Placement::replicated(variable.shape.rank()));
}

/// Where a reduced gradient and slots of the weight's shape lie: as the weight, cut further by
/// every stage of ZeRO.
Placement state_placement(const graph::Variable& variable,
                          const layouts::Distribution& distribution) {
  return distribution.slot_storage(variable.shape, compute_placement(variable));
}

/// Storage of the optimizer's variables `first`.. of the table.
void place_slots(VariableTable& table, VariableId first,
                 const layouts::Distribution& distribution) {
  for (VariableId id = first; id < static_cast<VariableId>(table.size()); ++id) {
    graph::Variable& slot = table[id];
    if (slot.slot_of < 0) {
      slot.storage = Placement::replicated(slot.shape.rank());
      continue;
    }
    const Placement owner = state_placement(table[slot.slot_of], distribution);
    if (slot.slot_dims.empty()) {
      slot.storage = owner;
      continue;
    }
    Placement placement = Placement::replicated(slot.shape.rank());
    for (std::size_t i = 0; i < slot.slot_dims.size(); ++i) {
      if (slot.slot_dims[i] >= 0) {
        placement.dims[i] = owner.dims[static_cast<std::size_t>(slot.slot_dims[i])];
      }
    }
    slot.storage = std::move(placement);
  }
}

Shape with_batch(std::int64_t batch, const Shape& sample_shape) {
  Shape shape{batch};
  for (const std::int64_t size : sample_shape) shape.push_back(size);
  return shape;
}

/// A second value equal to `x`: what is pinned for the host must not pin what the step computes
/// with.
SymbolicTensor copy_of(SymbolicTensor x) { return ops::map_unary(ops::MapCode::copy, x); }

SymbolicTensor data_input(Builder& builder, const layouts::Distribution& distribution,
                          std::string name, const Shape& shape, DType dtype) {
  const SymbolicTensor input = builder.input(std::move(name), shape, dtype);
  builder.pin(input, distribution.data_placement(shape));
  return input;
}

std::vector<SymbolicTensor> model_inputs(Builder& builder, const ModelInterface& model,
                                         const layouts::Distribution& distribution,
                                         std::int64_t batch) {
  std::vector<SymbolicTensor> inputs;
  for (const TensorSpec& spec : model.inputs) {
    inputs.push_back(data_input(builder, distribution, spec.name,
                                with_batch(batch, spec.sample_shape), spec.dtype));
  }
  return inputs;
}

/// Penalties of trainable weights; Keras counts none of a frozen layer.
std::vector<SymbolicTensor> weight_penalties(Builder& builder) {
  std::vector<SymbolicTensor> penalties;
  const VariableTable& table = *builder.graph().variables;
  for (const VariableId id : trainable_weights(table)) {
    if (!table[id].regularizer) continue;
    const Builder::Scope path(builder, Builder::AbsolutePath{table[id].path});
    penalties.push_back(table[id].regularizer(builder.variable(id)));
  }
  return penalties;
}

SymbolicTensor in_float32(SymbolicTensor x) {
  return x.dtype() == DType::float32 ? x : ops::cast(x, DType::float32);
}

SymbolicTensor sum_of(const std::vector<SymbolicTensor>& terms) {
  SymbolicTensor total;
  for (const SymbolicTensor term : terms) {
    total = total ? total + in_float32(term) : in_float32(term);
  }
  return total;
}

/// Gradients of the trainable weights, each pinned where its weight's optimizer state lies and
/// named after the weight.
std::vector<Gradient> placed_gradients(Builder& builder, SymbolicTensor loss,
                                       const layouts::Distribution& distribution) {
  const VariableTable& table = *builder.graph().variables;
  const std::vector<VariableId> ids = trainable_weights(table);
  std::vector<SymbolicTensor> weights;
  for (const VariableId id : ids) weights.push_back(builder.variable(id));
  const std::vector<SymbolicTensor> values = ops::gradients(builder, loss, weights);
  std::vector<Gradient> gradients;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    gradients.push_back({ids[i], values[i]});
    if (!values[i]) continue;
    const graph::Value& known = builder.graph().value(values[i].id);
    // Two weights may share one gradient (a sum of two biases); an input or weight is pinned by its
    // own rule.
    if (known.pin || known.source != graph::Value::Source::node) continue;
    builder.pin(values[i], state_placement(table[ids[i]], distribution));
    builder.name(values[i], table[ids[i]].path);
  }
  return gradients;
}

}  // namespace

/// What forward and losses left: everything that totals and the update read.
struct StepBuilder::Losses {
  ForwardResult forward;
  std::vector<SymbolicTensor> targets;  // per output; invalid: none
  std::vector<SymbolicTensor> weights;  // per output; invalid: none
  std::vector<SymbolicTensor> losses;   // per output, unweighted; invalid: none
  SymbolicTensor total;                 // invalid: nothing to minimise
};

StepBuilder::StepBuilder(const ModelInterface& model, CompiledTraining& training,
                         VariableTable& table, const layouts::Distribution& distribution)
    : model_(model), training_(training), table_(table), distribution_(distribution) {
  if (training_.optimizer) {
    const auto first = static_cast<VariableId>(table.size());
    training_.optimizer->declare(table, trainable_weights(table));
    place_slots(table, first, distribution);
  }
  training_.losses.losses.resize(model.outputs.size());
  training_.losses.weights.resize(model.outputs.size(), 1.0);
  total_loss_.declare(table, "loss");
  reported_.push_back({"loss", &total_loss_});
  std::vector<std::size_t> with_loss;
  for (std::size_t i = 0; i < model.outputs.size(); ++i) {
    if (training_.losses.losses[i]) with_loss.push_back(i);
  }
  if (with_loss.size() > 1) {
    output_losses_.reserve(with_loss.size());  // `reported_` points into it
    for (const std::size_t i : with_loss) {
      const std::string name = model.outputs[i].name + "_loss";
      output_losses_.emplace_back(name).declare(table, name);
      reported_.push_back({name, &output_losses_.back()});
    }
  }
  for (CompiledMetric& metric : training_.metrics) {
    metric.metric->declare(table, metric.shown_name);
    reported_.push_back({metric.shown_name, metric.metric.get()});
  }
}

StepBuilder::Losses StepBuilder::add_losses(Builder& builder, const StepOptions& options,
                                            bool training) const {
  const std::vector<SymbolicTensor> inputs =
      model_inputs(builder, model_, distribution_, options.batch);
  Losses result;
  add_data(builder, options, result);
  result.forward = model_.forward(builder, inputs, training);
  check(result.forward.outputs.size() == model_.outputs.size(),
        "a model gives another number of outputs than it declares");
  result.forward.masks.resize(model_.outputs.size());
  result.losses.resize(model_.outputs.size());
  std::vector<SymbolicTensor> terms;
  for (std::size_t i = 0; i < model_.outputs.size(); ++i) {
    const Loss* loss = training_.losses.losses[i].get();
    if (loss == nullptr || !result.targets[i]) continue;
    const Builder::Scope path(
        builder, Builder::AbsolutePath{model_.outputs.size() > 1 ? model_.outputs[i].name + "_loss"
                                                                 : std::string("loss")});
    result.losses[i] = (*loss)(result.targets[i], result.forward.outputs[i], result.weights[i],
                               result.forward.masks[i]);
    const double weight = training_.losses.weights[i];
    terms.push_back(weight == 1.0 ? result.losses[i] : result.losses[i] * weight);
  }
  const Builder::Scope path(builder, Builder::AbsolutePath{"loss"});
  terms.insert(terms.end(), result.forward.added_losses.begin(), result.forward.added_losses.end());
  const std::vector<SymbolicTensor> penalties = weight_penalties(builder);
  terms.insert(terms.end(), penalties.begin(), penalties.end());
  result.total = sum_of(terms);
  return result;
}

void StepBuilder::add_data(Builder& builder, const StepOptions& options, Losses& result) const {
  const std::size_t outputs = model_.outputs.size();
  result.targets.resize(outputs);
  result.weights.resize(outputs);
  std::vector<std::size_t> with_target;
  for (std::size_t k = 0; k < options.targets.size(); ++k) {
    const TensorSpec& spec = options.targets[k];
    std::size_t output = k;
    for (std::size_t i = 0; i < outputs; ++i) {
      if (model_.outputs[i].name == spec.name) output = i;
    }
    check(output < outputs, "a step has more targets than the model has outputs");
    with_target.push_back(output);
    result.targets[output] =
        data_input(builder, distribution_, "target/" + model_.outputs[output].name,
                   with_batch(options.batch, spec.sample_shape), spec.dtype);
  }
  if (!options.sample_weights) return;
  const bool shared = options.sample_weight_shapes.size() == 1;
  check(shared || options.sample_weight_shapes.size() == with_target.size(),
        "a step has neither one sample weight nor one for each target");
  for (std::size_t k = 0; k < options.sample_weight_shapes.size(); ++k) {
    const Shape shape = with_batch(options.batch, options.sample_weight_shapes[k]);
    const std::string& name = model_.outputs[with_target.empty() ? 0 : with_target[k]].name;
    const SymbolicTensor weight =
        data_input(builder, distribution_, "sample_weight/" + name, shape, DType::float32);
    if (shared) {
      std::fill(result.weights.begin(), result.weights.end(), weight);
    } else {
      result.weights[with_target[k]] = weight;
    }
  }
}

void StepBuilder::add_totals(Builder& builder, const StepOptions& options,
                             const Losses& losses) const {
  const Builder::Scope phase(builder, Phase::metrics);
  const auto batch = static_cast<double>(options.batch);
  {
    const Builder::Scope path(builder, Builder::AbsolutePath{"loss"});
    const SymbolicTensor total = losses.total ? losses.total : ops::full(builder, {}, 0.0);
    total_loss_.update_mean(builder, total, batch);
    if (options.loss_output) {
      const SymbolicTensor shown = copy_of(total);
      builder.pin(shown, Placement::replicated(0));
      builder.output("loss", shown);
    }
  }
  std::size_t tracker = 0;
  for (std::size_t i = 0; i < losses.losses.size() && !output_losses_.empty(); ++i) {
    if (!training_.losses.losses[i]) continue;
    const MeanMetric& metric = output_losses_[tracker++];
    const Builder::Scope path(builder, Builder::AbsolutePath{metric.name()});
    if (losses.losses[i]) metric.update_mean(builder, in_float32(losses.losses[i]), batch);
  }
  for (const CompiledMetric& metric : training_.metrics) {
    const std::size_t i = metric.output;
    if (!losses.targets[i]) continue;
    const Builder::Scope path(builder, Builder::AbsolutePath{metric.shown_name});
    metric.metric->update(builder, losses.targets[i], losses.forward.outputs[i],
                          metric.weighted ? losses.weights[i] : SymbolicTensor{},
                          losses.forward.masks[i]);
  }
}

graph::Graph StepBuilder::training_step(const StepOptions& options) const {
  check(training_.optimizer != nullptr, "a training step needs an optimizer");
  graph::Graph graph(table_);
  Builder builder(graph);
  const Losses losses = add_losses(builder, options, true);
  if (!losses.total) {
    throw Error(Error::Kind::config,
                "No loss to compute. Provide a `loss` argument in `compile()`");
  }
  add_totals(builder, options, losses);
  const SymbolicTensor scaled = training_.optimizer->scale_loss(builder, losses.total);
  training_.optimizer->apply(builder, placed_gradients(builder, scaled, distribution_));
  return graph;
}

graph::Graph StepBuilder::evaluation_step(const StepOptions& options) const {
  graph::Graph graph(table_);
  Builder builder(graph);
  add_totals(builder, options, add_losses(builder, options, false));
  return graph;
}

graph::Graph prediction_step(const ModelInterface& model, VariableTable& table,
                             const layouts::Distribution& distribution, std::int64_t batch) {
  graph::Graph graph(table);
  Builder builder(graph);
  const ForwardResult result =
      model.forward(builder, model_inputs(builder, model, distribution, batch), false);
  for (std::size_t i = 0; i < result.outputs.size(); ++i) {
    const SymbolicTensor shown = result.outputs[i].dtype() == DType::float32
                                     ? copy_of(result.outputs[i])
                                     : ops::cast(result.outputs[i], DType::float32);
    builder.pin(shown, Placement::replicated(shown.rank()));
    builder.output(fmt::format("predictions/{}", i), shown);
  }
  return graph;
}

graph::Graph StepBuilder::prediction_step(std::int64_t batch) const {
  return train::prediction_step(model_, table_, distribution_, batch);
}

std::optional<graph::Graph> StepBuilder::finishing_step() const {
  if (!training_.optimizer) return std::nullopt;
  graph::Graph graph(table_);
  Builder builder(graph);
  if (!training_.optimizer->finish(builder)) return std::nullopt;
  return graph;
}

}  // namespace tessera::train
