// The element-wise operations there are. Adding one: its code in kernels/map.h and name in
// kernels/map.cpp, the loop in kernels/vector_map.h, the gradient in runtime/ops/map_gradients.cpp,
// the function in ops.h.
#pragma once

#include "kernels/map.h"

namespace tessera::ops {
using kernels::MapCode;
}
