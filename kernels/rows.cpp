// Chooses the row loops that this processor can run.
#include "kernels/rows.h"

#include "kernels/vector.h"

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
    switch (vector_level()) {
      case VectorLevel::avx512:
        return avx512::row_loops;
      case VectorLevel::avx2:
        return avx2::row_loops;
      case VectorLevel::baseline:
        break;
    }
    return baseline::row_loops;
  }();
  return chosen;
}

}  // namespace tessera::kernels
