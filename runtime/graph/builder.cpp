// Nodes are added once: equal ones are found by a key.
#include "runtime/graph/builder.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tessera::graph {

const Shape& SymbolicTensor::shape() const { return builder->graph().type(id).shape; }
DType SymbolicTensor::dtype() const { return builder->graph().type(id).dtype; }

SymbolicTensor Builder::input(std::string name, Shape shape, DType dtype) {
  Value value;
  value.source = Value::Source::input;
  value.type = {shape, dtype};
  value.path = std::move(name);
  graph_.values.push_back(std::move(value));
  const auto id = static_cast<ValueId>(graph_.values.size() - 1);
  graph_.inputs.push_back(id);
  return wrap(id);
}

SymbolicTensor Builder::variable(VariableId id) {
  if (const auto found = variables_.find(id); found != variables_.end()) return wrap(found->second);
  const Variable& variable = (*graph_.variables)[id];
  Value value;
  value.source = Value::Source::variable;
  value.type = {variable.shape, variable.dtype};
  value.variable = id;
  value.path = variable.path;
  graph_.values.push_back(std::move(value));
  const auto added = static_cast<ValueId>(graph_.values.size() - 1);
  variables_.emplace(id, added);
  return wrap(added);
}

std::vector<SymbolicTensor> Builder::add(std::shared_ptr<const Op> op,
                                         std::span<const SymbolicTensor> inputs) {
  std::vector<ValueType> types;
  Node node;
  std::string key = fmt::format("{}|{}|{}|{}", op->name(), op->attributes(),
                                static_cast<int>(phase_), phase_ == Phase::forward ? path_ : "");
  for (const SymbolicTensor input : inputs) {
    check(input.builder == this, "an operand belongs to another graph");
    types.push_back(graph_.type(input.id));
    node.inputs.push_back(input.id);
    key += fmt::format(",{}", input.id);
  }
  std::vector<SymbolicTensor> results;
  if (const auto found = known_.find(key); found != known_.end()) {
    for (const ValueId id : graph_.nodes[static_cast<std::size_t>(found->second)].outputs) {
      results.push_back(wrap(id));
    }
    return results;
  }
  std::vector<ValueType> outputs;
  try {
    outputs = op->infer(types);
  } catch (const Error& error) {
    if (path_.empty()) throw;
    throw Error(error.kind, fmt::format("{}: {}", path_, error.what()));
  }
  const auto node_id = static_cast<NodeId>(graph_.nodes.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    Value value;
    value.type = outputs[i];
    value.producer = node_id;
    value.output = static_cast<int>(i);
    graph_.values.push_back(std::move(value));
    node.outputs.push_back(static_cast<ValueId>(graph_.values.size() - 1));
    results.push_back(wrap(node.outputs.back()));
  }
  known_.emplace(std::move(key), node_id);
  node.op = std::move(op);
  node.path = path_;
  node.phase = phase_;
  graph_.nodes.push_back(std::move(node));
  return results;
}

SymbolicTensor Builder::add_one(std::shared_ptr<const Op> op,
                                std::span<const SymbolicTensor> inputs) {
  return add(std::move(op), inputs).front();
}

void Builder::assign(VariableId variable, SymbolicTensor value) {
  const auto [known, is_new] = assigned_.emplace(variable, graph_.assignments.size());
  if (is_new) {
    graph_.assignments.push_back({variable, value.id});
  } else {
    graph_.assignments[known->second].value = value.id;
  }
}

void Builder::output(std::string name, SymbolicTensor value) {
  graph_.outputs.push_back({std::move(name), value.id});
}

void Builder::name(SymbolicTensor value, std::string path) {
  graph_.value(value.id).path = std::move(path);
}

void Builder::pin(SymbolicTensor value, layouts::Placement placement) {
  graph_.value(value.id).pin = std::move(placement);
}

Builder::Scope::Scope(Builder& builder, std::string_view name)
    : builder_(builder), path_(builder.path_), phase_(builder.phase_) {
  builder.path_ = path_.empty() ? std::string(name) : path_ + "/" + std::string(name);
}

Builder::Scope::Scope(Builder& builder, AbsolutePath path)
    : builder_(builder), path_(builder.path_), phase_(builder.phase_) {
  builder.path_ = std::string(path.path);
}

Builder::Scope::Scope(Builder& builder, Phase phase)
    : builder_(builder), path_(builder.path_), phase_(builder.phase_) {
  builder.phase_ = phase;
}

Builder::Scope::~Scope() {
  builder_.path_ = std::move(path_);
  builder_.phase_ = phase_;
}

}  // namespace tessera::graph
