// Chooses the row loops that this processor can run.
#include "kernels/rows.h"

namespace tessera::kernels {

namespace baseline {
extern const RowLoops row_loops;
}
namespace avx2 {
extern const RowLoops row_loops;
}
namespace avx512 {
extern const RowLoops row_loops;
}

const RowLoops& row_loops() {
  static const RowLoops& chosen = []() -> const RowLoops& {
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("bmi2");
    const bool has_avx512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (has_avx2 && has_avx512) return avx512::row_loops;
    return has_avx2 ? avx2::row_loops : baseline::row_loops;
  }();
  return chosen;
}

}  // namespace tessera::kernels
