// Part of the first pass: what depends on constants alone becomes a constant.
#pragma once

#include "runtime/graph/graph.h"

namespace tessera::compile {

/// Replaces element-wise nodes whose operands are all filled with one value, and moved constants,
/// by such constants, in place. Computed by the nodes' own kernels.
void fold_constants(graph::Graph& graph);

}  // namespace tessera::compile
