// What `plan` shows: a program and its variables as JSON (interface "tessera-plan", version 1) and
// as text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "runtime/compile/program.h"
#include "runtime/graph/graph.h"

namespace tessera::compile {

/// What the caller knows beside the program.
struct PlanContext {
  /// By VariableId: the layout rule that placed it; absent, or beyond the end: none.
  std::vector<std::optional<std::string>> rules;
  /// Shown after the plan's own (dimensions that are cut unevenly).
  std::vector<std::string> warnings;
};

/// Weights and optimizer variables in order of creation, named outputs, collectives in the order in
/// which they start, memory in bytes of the program's rank.
json::Value plan_json(const Program& program, const graph::VariableTable& table,
                      const PlanContext& context);

/// The same for people. `with_decisions`: also why each node with a choice was placed as it is, and
/// the runner-up.
std::string plan_text(const Program& program, const graph::VariableTable& table,
                      const PlanContext& context, bool with_decisions);

/// One line per dimension of a variable that does not divide by the axes that cut it.
std::vector<std::string> uneven_cuts(const graph::VariableTable& table, const layouts::Mesh& mesh);

}  // namespace tessera::compile
