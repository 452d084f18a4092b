// Runs a graph unsharded on one rank.
#include "tests/support/interpreter.h"

#include <cstring>
#include <string>

#include "base/error.h"

namespace tessera::testing {
namespace {

using graph::Initializer;
using graph::Value;
using graph::ValueId;

graph::LocalTensor whole(const graph::ValueType& type) {
  Box box{type.shape, type.shape};
  for (std::size_t dim = 0; dim < type.shape.rank(); ++dim) box.begin[dim] = 0;
  return {type.shape, box, type.dtype};
}

[[noreturn]] void fail(const std::string& message) {
  throw Error(Error::Kind::internal, "interpreter: " + message);
}

/// Empty where the initializer draws random numbers.
std::vector<double> initial_values(const graph::Variable& variable) {
  const Initializer& initializer = variable.initializer;
  const auto elements = static_cast<std::size_t>(variable.shape.elements());
  switch (initializer.kind) {
    case Initializer::Kind::zeros:
      return std::vector<double>(elements, 0.0);
    case Initializer::Kind::ones:
      return std::vector<double>(elements, 1.0);
    case Initializer::Kind::constant:
      return std::vector<double>(elements, initializer.a);
    case Initializer::Kind::values:
      return {initializer.values->begin(), initializer.values->end()};
    case Initializer::Kind::identity: {
      std::vector<double> values(elements, 0.0);
      const auto columns = static_cast<std::size_t>(variable.shape.back());
      for (std::size_t i = 0; i < elements; i += columns + 1) {
        values[i] = initializer.a == 0.0 ? 1.0 : initializer.a;
        if (i / columns + 1 >= columns) break;
      }
      return values;
    }
    case Initializer::Kind::random_normal:
    case Initializer::Kind::random_uniform:
    case Initializer::Kind::truncated_normal:
    case Initializer::Kind::orthogonal:
      break;
  }
  return {};
}

}  // namespace

Interpreter::Interpreter(const graph::Graph& graph, int threads)
    : graph_(graph), set_(graph.values.size(), false) {
  graph::verify(graph);
  values_.reserve(graph.values.size());
  for (const Value& value : graph.values) {
    values_.emplace_back(value.type.dtype, value.type.shape.elements());
  }
  for (const graph::Node& node : graph.nodes) prepare(node, threads);
}

void Interpreter::prepare(const graph::Node& node, int threads) {
  graph::LocalCall local;
  Call call;
  for (const ValueId id : node.inputs) {
    local.inputs.push_back(whole(graph_.type(id)));
    call.inputs.push_back(values_[static_cast<std::size_t>(id)].data());
  }
  for (const ValueId id : node.outputs) {
    local.outputs.push_back(whole(graph_.type(id)));
    call.outputs.push_back(values_[static_cast<std::size_t>(id)].data());
  }
  const std::int64_t bytes = node.op->workspace_bytes(local);
  if (bytes > workspace_.elements()) workspace_ = Buffer(DType::uint8, bytes);
  call.kernel = node.op->prepare(local, kernels::CpuDevice{threads});
  calls_.push_back(std::move(call));
}

Interpreter::Storage& Interpreter::storage(graph::VariableId id) {
  const auto found = variables_.find(id);
  if (found != variables_.end()) return found->second;
  if (id < 0 || static_cast<std::size_t>(id) >= graph_.variables->size()) {
    fail("there is no variable " + std::to_string(id));
  }
  const graph::Variable& variable = (*graph_.variables)[id];
  Storage added{Buffer(variable.dtype, variable.shape.elements()), false};
  if (const std::vector<double> values = initial_values(variable); !values.empty()) {
    added.buffer.set(values);
    added.known = true;
  }
  added.known = added.known || added.buffer.elements() == 0;
  return variables_.emplace(id, std::move(added)).first->second;
}

void Interpreter::set_input(std::string_view name, const std::vector<double>& values) {
  for (const ValueId id : graph_.inputs) {
    if (graph_.value(id).path != name) continue;
    values_[static_cast<std::size_t>(id)].set(values);
    set_[static_cast<std::size_t>(id)] = true;
    return;
  }
  fail("there is no input \"" + std::string(name) + "\"");
}

void Interpreter::set_variable(graph::VariableId id, const std::vector<double>& values) {
  Storage& stored = storage(id);
  stored.buffer.set(values);
  stored.known = true;
}

void Interpreter::run(std::uint64_t step) {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const Value& value = graph_.values[i];
    if (value.source == Value::Source::input && !set_[i]) {
      fail("input \"" + value.path + "\" has no value");
    }
    if (value.source != Value::Source::variable) continue;
    const Storage& stored = storage(value.variable);
    if (!stored.known) fail("variable \"" + value.path + "\" has no value");
    std::memcpy(values_[i].data(), stored.buffer.data(), stored.buffer.bytes());
  }
  for (const Call& call : calls_) {
    call.kernel(call.inputs.data(), call.outputs.data(), workspace_.data(), {step});
  }
  for (const graph::Assignment& assignment : graph_.assignments) {
    Storage& stored = storage(assignment.variable);
    stored.buffer = values_[static_cast<std::size_t>(assignment.value)];
    stored.known = true;
  }
}

std::vector<double> Interpreter::value(ValueId id) const {
  return values_.at(static_cast<std::size_t>(id)).get();
}

std::vector<double> Interpreter::output(std::string_view name) const {
  for (const graph::Output& output : graph_.outputs) {
    if (output.name == name) return value(output.value);
  }
  fail("there is no output \"" + std::string(name) + "\"");
}

std::vector<double> Interpreter::variable(graph::VariableId id) const {
  const auto found = variables_.find(id);
  if (found == variables_.end() || !found->second.known) {
    fail("variable \"" + (*graph_.variables)[id].path + "\" has no value yet");
  }
  return found->second.buffer.get();
}

}  // namespace tessera::testing
