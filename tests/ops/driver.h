// Tests one op family from a few lines: shapes against reality, gradients against central
// differences, and every legal way to cut every node over a mesh against the uncut node.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/graph/builder.h"
#include "runtime/ops/ops.h"

namespace tessera::testing {

using graph::Builder;
using graph::SymbolicTensor;

/// One input of a case.
struct Operand {
  graph::ValueType type;
  /// Values that it may take in the sharding sweep; its range (smallest to largest) is where
  /// floating values for the gradient are drawn. Empty: -3..3 for floating types, 0..3 for
  /// integers, 0 and 1 for booleans.
  std::vector<double> domain;
};

/// A floating tensor. `domain` as above: {1, 2, 4} for a divisor, so that quotients of integers
/// stay exact.
Operand real(Shape shape, std::vector<double> domain = {}, DType dtype = DType::float32);
/// Whole numbers low..high (both included), e.g. ids that are partly out of range.
Operand whole(Shape shape, int low, int high, DType dtype = DType::int32);

using Operands = std::vector<Operand>;
using Tensors = std::vector<SymbolicTensor>;
/// Adds the op (or a formula) under test and returns its results. `builder` matters only for ops
/// without operands.
using Build = std::function<Tensors(Builder& builder, const Tensors& inputs)>;

struct Options {
  /// False where the formula is not differentiable on purpose (stop_gradient).
  bool gradient = true;
  /// False where backward nodes should not be swept (ops without a gradient need not say so).
  bool backward = true;
  /// Largest |analytic - numeric| / max(1, |numeric|) in float64. The step of the central
  /// difference is 1e-5 of the value's size, so its own error is about 1e-10 (truncation) plus
  /// 1e-11 (rounding): 1e-6 leaves room for sums of a few hundred terms.
  double gradient_tolerance = 1e-6;
  /// Largest difference, relative to max(1, |uncut|), between cut and uncut results. 0: equal.
  /// Anything else needs a reason.
  double tolerance = 0.0;
  std::string reason;
};

/// Tests `build` on each instance (a list of operands: take sizes that divide evenly, that do not,
/// and that leave parts empty; the meshes have axes of 2, 3 and 4). For every instance:
///  1. infer: results have the inferred types; every element of every result is written and nothing
///  beside it is (guard bytes,
///     two runs over memory filled differently are bit-equal); ops that say so may write over their
///     input.
///  2. gradient: with all floating operands in float64, the gradient of sum(results * fixed random
///  weights) equals central
///     differences.
///  3. sweep: for every node that `build` and its gradient add, every mesh of {2, 3, 4, 2x2, 2x3}
///  and every combination of
///     per-axis choices that its rule allows (nothing; a factor; a set of linear operands as
///     pending sums; both axes may cut one factor, in either order): the parts that the ranks
///     compute, put together, equal the uncut result.
/// Inputs of the sweep are whole numbers, so that sums in any order are exact; intermediate
/// floating values are drawn from
/// +-{1, 2, 4}, so that quotients are exact too; intermediate integers are the values that the
/// formula computes. Fails the running Catch test with the node, its rule, the mesh and the
/// placements.
void check_op(const std::vector<Operands>& instances, const Build& build,
              const Options& options = {});

/// The same without failing: the first problem as text, "" when there is none.
std::string problem_of(const std::vector<Operands>& instances, const Build& build,
                       const Options& options = {});

/// Kernels of the other floating types against float64: results and gradients of the formula on the
/// same operands in float32, bfloat16 and float16. Differences are relative to the largest element
/// of a tensor (at least 1): at most 1e-5, 3e-2 and 4e-3, a few units in the last place, as
/// gradients arrive rounded.
void check_dtypes(const Operands& operands, const Build& build);

/// Results must not depend on the number of threads: runs the formula and its gradient with 1 and
/// with 2 threads and wants the same bits. For sizes above the kernels' thresholds.
void check_threads(const Operands& operands, const Build& build);

}  // namespace tessera::testing
