// Formulas that several normalisation layers share.
#pragma once

#include <vector>

#include "runtime/graph/builder.h"

namespace tessera::models::layers {

using graph::SymbolicTensor;

/// keras.config.epsilon().
inline constexpr double kKerasEpsilon = 1e-7;

/// x divided by its Euclidean norm over `dims`, which counts as at least `epsilon`.
SymbolicTensor unit_norm(SymbolicTensor x, std::vector<int> dims, double epsilon);

struct Moments {
  SymbolicTensor centered;  // x - mean
  SymbolicTensor mean;      // dimensions kept
  SymbolicTensor variance;  // dimensions kept; not corrected for the sample
};
/// Mean and variance over `dims` in two passes, which stays exact where the mean is large.
Moments moments(SymbolicTensor x, const std::vector<int>& dims);

/// `x` of rank 1 or more with its dimensions at `dims` of a tensor of `rank` dimensions; all others
/// have size 1.
SymbolicTensor spread(SymbolicTensor x, const std::vector<std::size_t>& dims, std::size_t rank);

}  // namespace tessera::models::layers
