// Third pass: conversions become collectives and copies of this rank.
#pragma once

#include "runtime/compile/draft.h"

namespace tessera::compile {

/// Replaces every conversion of the draft by what `rank` does for it: slices, zeros, packing, one
/// collective, unpacking. Packing and unpacking are left out where the parts lie one after another
/// in memory anyway; whether they do is decided by the largest parts, so that all ranks have the
/// same nodes.
void lower_conversions(Draft& draft, int rank);

}  // namespace tessera::compile
