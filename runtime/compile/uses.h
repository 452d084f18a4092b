// What the passes must know about the readers of a graph's values before they walk it forwards.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/compile/choices.h"
#include "runtime/graph/graph.h"

namespace tessera::compile {

/// A gradient of a variable: made in the backward phase under the variable's path, or named
/// "gradient of ...".
bool is_gradient(const graph::Graph& graph, graph::ValueId id);

/// The rule of every node, evaluated once.
std::vector<CallRule> rules_of(const graph::Graph& graph);

/// True when a pending sum in the operands `group` may pass: no result is larger than a pending
/// operand or has a narrower type.
bool is_worth_passing(const CallRule& call, std::uint32_t group);

/// One operand of a node.
struct Reader {
  graph::NodeId node = -1;
  std::size_t operand = 0;
};

struct Uses {
  /// Per value: every operand that it is.
  std::vector<std::vector<Reader>> readers;
  /// Per value: it is an output of the step.
  std::vector<bool> output;
  /// Per value: variables that it is assigned to.
  std::vector<std::vector<graph::VariableId>> assigned;
  /// Per value: nodes that read it, assignments and outputs together.
  std::vector<int> count;
  /// Per value: a pending sum can reach all its ends (unpinned outputs, totals of metrics) without
  /// being reduced, so that any number of readers may take it as it is.
  std::vector<bool> pending_is_free;
  /// Per value: it depends on no input and no variable and is not pinned: placed where it is
  /// needed.
  std::vector<bool> floating;
};
Uses uses_of(const graph::Graph& graph, const std::vector<CallRule>& rules);

}  // namespace tessera::compile
