// Second pass: a placement for every value, and the conversions that they need.
#pragma once

#include "layouts/mesh.h"
#include "runtime/compile/draft.h"
#include "runtime/graph/graph.h"

namespace tessera::compile {

/// Walks the nodes in order and takes for each the legal choice per axis that needs the fewest
/// bytes to convert its operands.
///
/// Candidates of an axis are: copies; cutting a factor that an operand is already cut by (or a
/// result pinned by); letting pending sums through where the op is linear. Of equal price: less to
/// convert to the pinned results, fewer pending sums, more parts, lower dimension. Pinned values
/// never move. Pending sums stay pending as long as linearity allows, but are reduced before a
/// second use that cannot take them, before narrowing, and before the result grows. Values that
/// depend on nothing placed (constants, random draws) are made where they are first needed, in the
/// placement that is asked for.
///
/// The result holds conversions as single steps of plan_reshard. It is the same on all ranks.
/// Placements of metric variables that have none are written into the variable table. `graph` is
/// simplified and outlives the draft.
Draft propagate(const graph::Graph& graph, const layouts::Mesh& mesh, bool with_reports);

}  // namespace tessera::compile
