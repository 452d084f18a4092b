// Elements of any dtype as doubles and back.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace tessera::exec {

void load_elements(DType dtype, const void* from, double* to, std::int64_t count);
/// Rounds to the dtype; integers are cut towards zero and saturate, booleans are "not 0".
void store_elements(DType dtype, const double* from, void* to, std::int64_t count);

}  // namespace tessera::exec
