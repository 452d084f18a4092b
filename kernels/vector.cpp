// Chooses the vector loops that this processor can run.
#include "kernels/vector.h"

namespace tessera::kernels {

namespace baseline {
extern const VectorLoops loops;
}
namespace avx2 {
extern const VectorLoops loops;
}
namespace avx512 {
extern const VectorLoops loops;
}

VectorLevel vector_level() {
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi2");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!has_avx2) return VectorLevel::baseline;
  return has_avx512 ? VectorLevel::avx512 : VectorLevel::avx2;
}

std::vector<const VectorLoops*> supported_vector_loops() {
  const std::vector<const VectorLoops*> all = {&avx512::loops, &avx2::loops, &baseline::loops};
  const auto better = static_cast<int>(VectorLevel::avx512) - static_cast<int>(vector_level());
  return {all.begin() + better, all.end()};
}

const VectorLoops& vector_loops() {
  static const VectorLoops& chosen = *supported_vector_loops().front();
  return chosen;
}

}  // namespace tessera::kernels
