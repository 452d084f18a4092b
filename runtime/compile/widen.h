// Part of the first pass: sums are kept in float32 until they are whole.
#pragma once

#include "runtime/graph/graph.h"

namespace tessera::compile {

/// Lets ops that add up and round to bfloat16 or float16 give float32 instead, followed by a cast,
/// in place. Where placement makes their results pending sums, the terms then meet unrounded, as a
/// cast to fewer bits ends a pending sum; elsewhere fusion undoes it. Gradients of 16-bit variables
/// are cast where the update first reads them, so that their reductions can travel together. A cast
/// back to float32 that alone read the rounded sum goes, on one rank too: gradients of float32
/// variables are not rounded on their way. `sums_may_pend`: there are several ranks.
void widen_sums(graph::Graph& graph, bool sums_may_pend);

}  // namespace tessera::compile
