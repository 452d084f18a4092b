// Before element-wise fusion: bias and activation move into the matrix product that they follow.
#pragma once

#include "runtime/compile/draft.h"

namespace tessera::compile {

/// A product whose only reader casts it, adds a bias along its trailing dimensions, or applies an
/// activation that the kernel can apply while the result is in registers, takes that over. All of
/// it is local to a rank: conversions in between end the chain.
void fuse_epilogues(Draft& draft);

}  // namespace tessera::compile
