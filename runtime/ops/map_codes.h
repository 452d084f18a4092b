// The element-wise operations there are. Adding one: a line here, a line in kernels/map_cpu.cpp, a gradient in runtime/ops/map.cpp.
#pragma once

#include "kernels/map.h"

namespace tessera::ops {
using kernels::MapCode;
}
