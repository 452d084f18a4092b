// Readers, free pending sums and floating values.
#include "runtime/compile/uses.h"

#include <algorithm>

#include "runtime/compile/draft.h"

namespace tessera::compile {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;
using graph::ValueId;
using graph::Variable;

std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }

/// Can `input` stay pending through this node, whose results may all stay pending for nothing?
bool passes_freely(const Graph& graph, const Node& node, const CallRule& call, ValueId input,
                   const std::vector<bool>& free) {
  for (const ValueId output : node.outputs) {
    if (!free[at(output)] || graph.value(output).pin) return false;
  }
  std::uint32_t mine = 0;
  for (std::size_t i = 0; i < node.inputs.size() && i < 32; ++i) {
    if (node.inputs[i] == input) mine |= std::uint32_t{1} << i;
  }
  return std::any_of(call.rule.linear.begin(), call.rule.linear.end(), [&](std::uint32_t group) {
    return (group & mine) == mine && is_worth_passing(call, mine);
  });
}

std::vector<bool> free_values(const Graph& graph, const std::vector<CallRule>& rules) {
  std::vector<bool> free(graph.values.size(), true);
  for (const graph::Assignment& assignment : graph.assignments) {
    const Variable& variable = (*graph.variables)[assignment.variable];
    const bool takes_sums = variable.role == graph::Role::metric &&
                            (!variable.storage || variable.storage->pending != 0);
    if (!takes_sums) free[at(assignment.value)] = false;
  }
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    for (const ValueId input : graph.nodes[i].inputs) {
      if (!passes_freely(graph, graph.nodes[i], rules[i], input, free)) free[at(input)] = false;
    }
  }
  return free;
}

std::vector<bool> floating_values(const Graph& graph) {
  std::vector<bool> floating(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    const bool depends = std::any_of(node.inputs.begin(), node.inputs.end(),
                                     [&](ValueId input) { return !floating[at(input)]; });
    const bool pinned = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) {
      return graph.value(output).pin.has_value();
    });
    if (depends || pinned) continue;
    for (const ValueId output : node.outputs) floating[at(output)] = true;
  }
  return floating;
}

}  // namespace

bool is_gradient(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  if (value.path.starts_with(kGradientPrefix)) return true;
  return value.source == Value::Source::node && !value.path.empty() &&
         graph.nodes[at(value.producer)].phase == graph::Phase::backward &&
         graph.variables->find(value.path).has_value();
}

std::vector<CallRule> rules_of(const Graph& graph) {
  std::vector<CallRule> rules;
  rules.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    CallRule call;
    for (const ValueId input : node.inputs) call.inputs.push_back(graph.type(input));
    for (const ValueId output : node.outputs) call.outputs.push_back(graph.type(output));
    call.rule = node.op->rule(call.inputs, call.outputs);
    rules.push_back(std::move(call));
  }
  return rules;
}

bool is_worth_passing(const CallRule& call, std::uint32_t group) {
  std::int64_t elements = 0;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < call.inputs.size() && i < 32; ++i) {
    if (((group >> i) & 1U) == 0) continue;
    elements = std::max(elements, call.inputs[i].shape.elements());
    bytes = std::max(bytes, size_of(call.inputs[i].dtype));
  }
  return std::all_of(call.outputs.begin(), call.outputs.end(), [&](const graph::ValueType& type) {
    return type.shape.elements() <= elements && size_of(type.dtype) >= bytes &&
           type.dtype != DType::boolean;
  });
}

Uses uses_of(const Graph& graph, const std::vector<CallRule>& rules) {
  Uses uses;
  uses.count.assign(graph.values.size(), 0);
  uses.readers.resize(graph.values.size());
  uses.output.assign(graph.values.size(), false);
  uses.assigned.resize(graph.values.size());
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      uses.readers[at(node.inputs[i])].push_back({static_cast<graph::NodeId>(id), i});
    }
    std::vector<ValueId> inputs = node.inputs;
    std::sort(inputs.begin(), inputs.end());
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    for (const ValueId input : inputs) ++uses.count[at(input)];
  }
  for (const graph::Assignment& assignment : graph.assignments) {
    ++uses.count[at(assignment.value)];
    uses.assigned[at(assignment.value)].push_back(assignment.variable);
  }
  for (const graph::Output& output : graph.outputs) {
    ++uses.count[at(output.value)];
    uses.output[at(output.value)] = true;
  }
  uses.pending_is_free = free_values(graph, rules);
  uses.floating = floating_values(graph);
  return uses;
}

}  // namespace tessera::compile
