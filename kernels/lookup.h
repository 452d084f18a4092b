// Rows and elements by id: embedding, pick, and the way back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/device.h"

namespace tessera::kernels {

/// out[n, d] = table[id[n] - first, d]; zero rows for ids outside first..first+rows-1.
struct EmbeddingArgs {
  DType ids_dtype = DType::int32;
  std::int64_t ids = 0;       // n
  std::int64_t first = 0;     // id of the first row that lies here
  std::int64_t rows = 0;      // v: rows that lie here
  std::size_t row_bytes = 0;  // d times the size of an element
};
void embedding(const EmbeddingArgs& args, const void* ids, const void* table, void* out,
               const CpuDevice& device);

/// out[v, d] = sum of dy[n, d] over the n with id[n] - first = v, in the order of n: float32 sums,
/// float64 for float64.
struct EmbeddingGradientArgs {
  DType ids_dtype = DType::int32;
  DType dtype = DType::float32;  // of dy and out
  std::int64_t ids = 0;          // n
  std::int64_t first = 0;
  std::int64_t rows = 0;     // v
  std::int64_t columns = 0;  // d
};
/// Scratch bytes that `embedding_gradient` needs.
std::int64_t embedding_gradient_workspace(const EmbeddingGradientArgs& args);
void embedding_gradient(const EmbeddingGradientArgs& args, const void* ids, const void* dy,
                        void* out, void* workspace, const CpuDevice& device);

/// One element a row, along the last dimension.
struct PickArgs {
  DType ids_dtype = DType::int32;
  std::size_t element_size = 4;
  std::int64_t rows = 0;
  std::int64_t first = 0;    // index of the first column that lies here
  std::int64_t columns = 0;  // columns that lie here
};
/// out[rows] = x[row, id[row] - first]; 0 for ids outside.
void pick(const PickArgs& args, const void* x, const void* ids, void* out, const CpuDevice& device);
/// out[rows, columns] = 0, but dy[row] at id[row] - first.
void pick_gradient(const PickArgs& args, const void* ids, const void* dy, void* out,
                   const CpuDevice& device);

}  // namespace tessera::kernels
