// Part of the first pass: constants are computed now, and what element-wise ops can broadcast is
// not broadcast before.
#pragma once

#include "runtime/graph/graph.h"

namespace tessera::compile {

/// Replaces element-wise nodes whose operands are all filled with one value, and moved constants,
/// by such constants, in place. Computed by the nodes' own kernels.
void fold_constants(graph::Graph& graph);

/// Lets element-wise nodes read the operand of a broadcast instead of its result, where their shape
/// stays the same.
void skip_broadcasts(graph::Graph& graph);

}  // namespace tessera::compile
