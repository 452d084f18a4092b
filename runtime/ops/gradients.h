// The gradient walk: from a scalar loss back to the values it depends on.
#pragma once

#include <span>
#include <vector>

#include "runtime/graph/builder.h"

namespace tessera::ops {

/// Gradients of the scalar `loss` with respect to `targets` (values; usually variables), in the
/// same order; an invalid tensor where the loss does not depend on a target. Only nodes on a path
/// from a target to the loss are visited: nothing is computed that nobody needs. Nodes are added in
/// Phase::backward under the path of the node they belong to; contributions to one value are added
/// in a fixed order (last use first). `seed`: the gradient of the loss itself (default 1).
std::vector<graph::SymbolicTensor> gradients(graph::Builder& builder, graph::SymbolicTensor loss,
                                             std::span<const graph::SymbolicTensor> targets,
                                             graph::SymbolicTensor seed = {});

}  // namespace tessera::ops
