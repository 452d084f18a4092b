// Orthogonal matrices for initial weights.
#pragma once

#include <cstdint>
#include <vector>

#include "base/shape.h"

namespace tessera::exec {

/// As Keras's Orthogonal: the shape is read as a matrix [product of all but the last, last]; a
/// matrix of standard normal draws of stream `key`, [the larger, the smaller], is made orthonormal
/// by columns (the Q of its QR decomposition with a positive diagonal of R), and transposed where
/// there are fewer rows than columns. Row-major, times `gain`. The same on every rank and for every
/// number of threads. Throws config for shapes of less than two dimensions.
std::vector<double> orthogonal_matrix(const Shape& shape, std::uint64_t key, double gain);

}  // namespace tessera::exec
