// Part of the first pass: sums are kept in float32 until they are whole.
#pragma once

#include "runtime/graph/graph.h"

namespace tessera::compile {

/// Lets ops that add up and round to bfloat16 or float16 give float32 instead, followed by a cast,
/// in place. Where placement makes their results pending sums, the terms then meet unrounded, as a
/// cast to fewer bits ends a pending sum; elsewhere fusion undoes it. A cast back to float32 that
/// alone read the rounded sum goes: gradients of float32 variables are not rounded on their way.
void widen_sums(graph::Graph& graph);

}  // namespace tessera::compile
