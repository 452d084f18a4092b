#include "models/layer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/philox.h"
#include "runtime/ops/ops.h"

namespace tessera::models {

using ops::operator/;

namespace {

Argument cast_floats(const Argument& argument, DType dtype) {
  Argument result = argument;
  SymbolicTensor& value = result.tensor.value;
  if (value && is_floating(value.dtype()) && value.dtype() != dtype) {
    value = ops::cast(value, dtype);
  }
  for (Argument& item : result.items) item = cast_floats(item, dtype);
  return result;
}

CallArguments cast_floats(const CallArguments& arguments, DType dtype) {
  CallArguments result;
  for (const Argument& argument : arguments.positional) {
    result.positional.push_back(cast_floats(argument, dtype));
  }
  for (const auto& [name, argument] : arguments.named) {
    result.named.emplace_back(name, cast_floats(argument, dtype));
  }
  return result;
}

}  // namespace

const Argument* CallArguments::find(std::string_view name) const {
  for (const auto& [known, argument] : named) {
    if (known == name) return &argument;
  }
  return nullptr;
}

void for_each_tensor(const Argument& argument,
                     const std::function<void(const MaskedTensor&)>& visit) {
  if (argument.tensor.value) visit(argument.tensor);
  for (const Argument& item : argument.items) for_each_tensor(item, visit);
}

std::vector<MaskedTensor> CallArguments::tensors() const {
  std::vector<MaskedTensor> result;
  if (!positional.empty()) {
    for_each_tensor(positional.front(), [&](const MaskedTensor& x) { result.push_back(x); });
  }
  if (result.empty()) throw Error(Error::Kind::config, "called without an input");
  return result;
}

graph::VariableId Pass::id_of(Weight weight) const {
  const auto& ids = options_.store != nullptr ? options_.store->ids() : *options_.ids;
  return ids[static_cast<std::size_t>(weight.index)];
}

SymbolicTensor Pass::weight(Weight weight, DType dtype) {
  const auto updated = updates_.find(weight.index);
  const SymbolicTensor value =
      updated == updates_.end() ? builder_.variable(id_of(weight)) : updated->second;
  return value.dtype() == dtype ? value : ops::cast(value, dtype);
}

void Pass::update(Weight weight, SymbolicTensor value) { updates_[weight.index] = value; }

std::uint64_t Pass::stream(const Layer& layer, std::optional<std::uint64_t> seed) {
  const int call = random_calls_[&layer]++;
  const std::string& path = layer.info().call_path;
  return stream_key(seed.value_or(options_.seed), "dropout",
                    call == 0 ? path : fmt::format("{}#{}", path, call));
}

void Pass::limit_ids(SymbolicTensor ids, std::int64_t limit) {
  const auto [known, added] = limits_.emplace(ids.id, limit);
  if (!added) known->second = std::min(known->second, limit);
}

std::int64_t Pass::limit_of(SymbolicTensor ids) const {
  const auto found = limits_.find(ids.id);
  return found == limits_.end() ? 0 : found->second;
}

void Pass::finish() {
  for (const auto& [index, value] : updates_) {
    const graph::VariableId id = id_of(Weight{index});
    const DType dtype = (*builder_.graph().variables)[id].dtype;
    builder_.assign(id, value.dtype() == dtype ? value : ops::cast(value, dtype));
  }
  updates_.clear();
}

std::vector<MaskedTensor> Layer::operator()(Pass& pass, const CallArguments& arguments) {
  const graph::Builder::Scope scope(pass.builder(), graph::Builder::AbsolutePath{info_.call_path});
  const CallArguments inputs = casts_inputs() ? cast_floats(arguments, compute_dtype()) : arguments;
  if (pass.store() != nullptr && !built_) {
    build(inputs, *pass.store());
    built_ = true;
  }
  std::vector<MaskedTensor> outputs = call(pass, inputs);
  for (MaskedTensor& output : outputs) {
    if (output.value) checked_elements(output.value.shape().sizes());
    if (activity_regularizer_ && output.value) {
      // Keras takes the penalty of a batch's activities per sample.
      const auto batch = static_cast<double>(std::max<std::int64_t>(1, output.value.shape()[0]));
      pass.add_loss(activity_regularizer_(output.value) / batch);
    }
  }
  // Layouts name outputs of layers with one output only, as in Keras.
  if (names_outputs() && outputs.size() == 1) finish_output(pass, outputs.front(), arguments);
  if (pass.store() != nullptr && output_types_.empty()) {
    for (const MaskedTensor& output : outputs) {
      if (output.value) output_types_.push_back({output.value.shape(), output.value.dtype()});
    }
  }
  return outputs;
}

void Layer::finish_output(Pass& pass, MaskedTensor& output, const CallArguments& arguments) {
  if (!output.value) return;
  bool passed_through = !pass.builder().graph().value(output.value.id).path.empty();
  const auto compare = [&](const MaskedTensor& x) {
    passed_through = passed_through || x.value.id == output.value.id;
  };
  for (const Argument& argument : arguments.positional) for_each_tensor(argument, compare);
  const std::string path = info_.call_path + "/output";
  std::optional<layouts::Placement> placement;
  if (pass.place() != nullptr && *pass.place()) {
    placement = (*pass.place())(path, output.value.shape());
  }
  if (passed_through) {
    // The value is another layer's output too and keeps that name; a layout of this layer's output
    // needs a value of its own.
    if (!placement) return;
    const graph::Value& value = pass.builder().graph().value(output.value.id);
    if (value.pin && *value.pin == *placement) return;
    output.value = ops::map_unary(ops::MapCode::copy, output.value);
  }
  pass.builder().name(output.value, path);
  if (placement) pass.builder().pin(output.value, std::move(*placement));
}

void Layer::build(const CallArguments& /*arguments*/, WeightStore& /*store*/) {}

Weight Layer::add_weight(WeightStore& store, std::string_view name, const Shape& shape,
                         const WeightConfig& config, const WeightOptions& options) {
  checked_elements(shape.sizes());
  graph::Variable variable;
  variable.path = fmt::format("{}/{}", info_.path, name);
  variable.shape = shape;
  variable.dtype = options.dtype.value_or(info_.policy.variable);
  variable.trainable = info_.trainable && options.trainable;
  const Weight weight = store.add(std::move(variable), config,
                                  {info_.call_path, info_.json, info_.json_path}, options.axes);
  weights_.push_back(weight);
  return weight;
}

void Layer::fail(const std::string& message) const { throw Error(Error::Kind::config, message); }

void TensorLayer::build(const CallArguments& arguments, WeightStore& store) {
  build(arguments.tensors().front().value.shape(), store);
}

std::vector<MaskedTensor> TensorLayer::call(Pass& pass, const CallArguments& arguments) {
  const std::vector<MaskedTensor> inputs = arguments.tensors();
  if (inputs.size() != 1) fail(fmt::format("takes one input, got {}", inputs.size()));
  SymbolicTensor mask = inputs.front().mask;
  if (const Argument* given = arguments.find("mask"); given != nullptr && given->tensor.value) {
    mask = given->tensor.value;
  }
  const SymbolicTensor result = call(pass, inputs.front().value, mask);
  return {{result, rule_ == MaskRule::keep ? inputs.front().mask : SymbolicTensor{}}};
}

std::size_t positive_dim(std::int64_t dim, std::size_t rank, std::string_view what) {
  const auto size = static_cast<std::int64_t>(rank);
  if (dim < -size || dim >= size) {
    throw Error(
        Error::Kind::config,
        fmt::format("{} {} is out of range for an input of {} dimensions", what, dim, rank));
  }
  return static_cast<std::size_t>(dim < 0 ? dim + size : dim);
}

std::vector<int> positive_dims(const std::vector<std::int64_t>& dims, std::size_t rank,
                               std::string_view what) {
  std::vector<int> result;
  for (const std::int64_t dim : dims) {
    result.push_back(static_cast<int>(positive_dim(dim, rank, what)));
    if (std::count(result.begin(), result.end(), result.back()) > 1) {
      throw Error(Error::Kind::config, fmt::format("{}: dimension {} twice", what, result.back()));
    }
  }
  if (result.empty()) {
    throw Error(Error::Kind::config, fmt::format("{}: expected at least one dimension", what));
  }
  return result;
}

}  // namespace tessera::models
