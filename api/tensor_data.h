// What a library tensor holds.
#pragma once

#include <cstddef>
#include <vector>

#include "api/tensor.h"
#include "layouts/placement.h"

namespace tessera {

struct Tensor::Data {
  std::vector<std::int64_t> shape;
  DType dtype = DType::float32;
  distribution::TensorLayout layout;
  Box box;                       // this rank's part
  std::vector<std::byte> bytes;  // of that part, row-major
};

/// A tensor from this rank's part of it.
Tensor make_tensor(std::vector<std::int64_t> shape, DType dtype, distribution::TensorLayout layout,
                   std::vector<std::byte> local);
/// The layout that is whole on every rank of the job.
distribution::TensorLayout whole_layout(std::size_t rank);

}  // namespace tessera
