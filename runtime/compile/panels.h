// After element-wise fusion: large products that one element-wise node reads are never stored.
#pragma once

#include <cstdint>

#include "runtime/compile/draft.h"

namespace tessera::compile {

/// A product of at least two panels of `panel_bytes` whose only reader is an element-wise node
/// joins it at the reader's place, and is made panel by panel. That is the way of the gradient of a
/// kernel to its update, where nothing is to be reduced between ranks.
void join_products(Draft& draft, std::int64_t panel_bytes);

}  // namespace tessera::compile
