// Combines the terms of several ranks element by element, always in the same order.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "comm/communicator.h"

namespace tessera::comm {

/// out[i] = terms[0][i] o terms[1][i] o ... o terms[n-1][i], evaluated from left to right; n >= 1.
/// `out` may be one of the terms or lie apart from all of them. float16 and bfloat16 are combined
/// in float32 and rounded once. Integers wrap around. A NaN in any term gives NaN, for max and min
/// too. For booleans sum and max are "any", min is "all".
using Summation = void (*)(void* out, const void* const* terms, int n, std::int64_t count);

Summation summation_of(DType dtype, ReduceKind kind);

}  // namespace tessera::comm
