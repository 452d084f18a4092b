// Between placement and conversion: element-wise nodes that can run as one do.
#pragma once

#include "runtime/compile/draft.h"

namespace tessera::compile {

/// Merges element-wise nodes of one phase whose results have one shape and one cut into single
/// nodes with many steps and several results: chains and trees through their edges, then neighbours
/// of few elements side by side. A merged node runs where one of its parts ran, so that nothing is
/// read before it is made. What must be rounded to its dtype in between ends a node. The same on
/// all ranks.
void fuse(Draft& draft);

}  // namespace tessera::compile
