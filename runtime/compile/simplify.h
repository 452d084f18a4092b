// First pass: what nobody needs goes, what is computed twice is computed once.
#pragma once

#include "runtime/graph/graph.h"

namespace tessera::compile {

/// A copy of `graph` with constants folded and 16-bit sums widened, without nodes that reach no
/// output or assignment, and with equal nodes of one phase merged. Ids of values stay, new
/// ones follow; values of removed nodes have no producer.
/// `sums_may_pend`: there are several ranks.
graph::Graph simplify(const graph::Graph& graph, bool sums_may_pend = true);

}  // namespace tessera::compile
