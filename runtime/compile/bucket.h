// Fourth pass on communication: gradient reductions travel together.
#pragma once

#include <cstdint>

#include "runtime/compile/draft.h"

namespace tessera::compile {

/// Joins the all-reduces of the backward phase whose results are first read after it: same axes and
/// dtype, in the order in which they become ready, up to `bucket_bytes` each (a larger one travels
/// alone). The memory plan lays the members of a bucket one after another, so that nothing is
/// packed. Sizes are those of rank 0: all ranks make the same buckets.
void join_gradient_reductions(Draft& draft, std::int64_t bucket_bytes);

}  // namespace tessera::compile
