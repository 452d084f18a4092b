// The table of variables; checking and printing of graphs.
#include "runtime/graph/graph.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tessera::graph {

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::update:
      return "update";
    case Phase::metrics:
      return "metrics";
  }
  return "";
}

VariableId VariableTable::declare(Variable variable) {
  if (const auto known = find(variable.path)) {
    const Variable& other = (*this)[*known];
    if (!(other.shape == variable.shape) || other.dtype != variable.dtype) {
      throw Error(Error::Kind::config,
                  fmt::format("two variables share the path \"{}\": {} {} and {} {}", variable.path,
                              name_of(other.dtype), to_string(other.shape), name_of(variable.dtype),
                              to_string(variable.shape)));
    }
    return *known;
  }
  const auto id = static_cast<VariableId>(variables_.size());
  by_path_.emplace(variable.path, id);
  variables_.push_back(std::move(variable));
  return id;
}

std::optional<VariableId> VariableTable::find(std::string_view path) const {
  const auto found = by_path_.find(path);
  if (found == by_path_.end()) return std::nullopt;
  return found->second;
}

void verify(const Graph& graph) {
  const auto known = [&graph](ValueId id) {
    return id >= 0 && id < static_cast<ValueId>(graph.values.size());
  };
  std::vector<bool> defined(graph.values.size(), false);
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    defined[i] = graph.values[i].source != Value::Source::node;
  }
  for (const Node& node : graph.nodes) {
    std::vector<ValueType> types;
    for (const ValueId input : node.inputs) {
      check(known(input) && defined[static_cast<std::size_t>(input)],
            "graph: a node reads a value before it is made");
      types.push_back(graph.type(input));
    }
    const std::vector<ValueType> results = node.op->infer(types);
    check(results.size() == node.outputs.size(), "graph: a node has a wrong number of results");
    for (std::size_t i = 0; i < results.size(); ++i) {
      check(known(node.outputs[i]) && graph.type(node.outputs[i]) == results[i],
            "graph: a result's type is not what its op infers");
      defined[static_cast<std::size_t>(node.outputs[i])] = true;
    }
  }
  for (const Assignment& assignment : graph.assignments) {
    const Variable& variable = (*graph.variables)[assignment.variable];
    check(known(assignment.value) && graph.type(assignment.value).shape == variable.shape &&
              graph.type(assignment.value).dtype == variable.dtype,
          "graph: an assignment does not fit its variable");
  }
  for (const Output& output : graph.outputs) check(known(output.value), "graph: unknown output");
}

std::string to_string(const Graph& graph) {
  std::string text;
  const auto show = [&graph](ValueId id) {
    const Value& value = graph.value(id);
    const std::string label = value.path.empty() ? "" : fmt::format(" \"{}\"", value.path);
    return fmt::format("%{}{} {}{}", id, label, name_of(value.type.dtype),
                       to_string(value.type.shape));
  };
  for (const Node& node : graph.nodes) {
    std::string outputs;
    for (const ValueId id : node.outputs) outputs += (outputs.empty() ? "" : ", ") + show(id);
    std::string inputs;
    for (const ValueId id : node.inputs) inputs += (inputs.empty() ? "" : ", ") + show(id);
    text += fmt::format("{} = {}{{{}}}({})  # {} {}\n", outputs, node.op->name(),
                        node.op->attributes(), inputs, name_of(node.phase), node.path);
  }
  for (const Assignment& assignment : graph.assignments) {
    text +=
        fmt::format("{} := %{}\n", (*graph.variables)[assignment.variable].path, assignment.value);
  }
  for (const Output& output : graph.outputs) {
    text += fmt::format("output {} = %{}\n", output.name, output.value);
  }
  return text;
}

}  // namespace tessera::graph
