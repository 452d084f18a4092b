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

std::vector<const VectorLoops*> supported_vector_loops() {
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi2");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  std::vector<const VectorLoops*> levels = {&baseline::loops};
  if (has_avx2) levels.insert(levels.begin(), &avx2::loops);
  if (has_avx2 && has_avx512) levels.insert(levels.begin(), &avx512::loops);
  return levels;
}

const VectorLoops& vector_loops() {
  static const VectorLoops& chosen = *supported_vector_loops().front();
  return chosen;
}

}  // namespace tessera::kernels
