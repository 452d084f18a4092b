// Element-wise operations: one step, or many after fusion.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/map.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/map_codes.h"

namespace tessera::ops {

/// A program of element-wise steps on operands that broadcast as in NumPy. All results have the
/// broadcast shape of all operands. Steps compute in float32 or float64 and only results are
/// rounded to their dtypes: what depends on a dtype in between (a cast to an integer) ends a
/// program.
class MapOp final : public graph::Op {
 public:
  /// `results`: dtype of every result of the program.
  MapOp(kernels::MapProgram program, std::vector<DType> results, bool stops_gradient = false);

  const kernels::MapProgram& program() const { return program_; }
  const std::vector<DType>& results() const { return results_; }
  bool stops_gradient() const { return stops_gradient_; }

  /// The code of a program of one step, "map" for longer ones.
  std::string_view name() const override;
  std::string attributes() const override;
  std::vector<graph::ValueType> infer(std::span<const graph::ValueType> inputs) const override;
  graph::Rule rule(std::span<const graph::ValueType> inputs,
                   std::span<const graph::ValueType> outputs) const override;
  /// Programs of one step only: gradients are taken before fusion.
  std::vector<graph::ValueId> gradient(const graph::GradientCall& call) const override;
  double flops(const graph::LocalCall& call) const override;
  bool may_overwrite(std::size_t output, std::size_t input) const override;
  graph::Kernel prepare(const graph::LocalCall& call, const kernels::Device& device) const override;

 private:
  kernels::MapProgram program_;
  std::vector<DType> results_;
  bool stops_gradient_;
};

/// Makes an op; `program.wide` is set from the dtypes.
std::shared_ptr<const MapOp> make_map(kernels::MapProgram program, std::span<const DType> operands,
                                      std::vector<DType> results);
/// An op of the one step that casts.
std::shared_ptr<const MapOp> make_cast(DType from, DType to);
/// Does a program with these operands and results compute in float64?
bool computes_wide(std::span<const DType> operands, std::span<const DType> results);

/// Shape that all operands broadcast to. Throws config with the shapes when they do not fit.
Shape broadcast_shape(std::span<const Shape> shapes);

/// Sums a gradient over the dimensions along which an operand of `shape` was broadcast.
graph::SymbolicTensor sum_to_shape(graph::SymbolicTensor gradient, Shape shape);

}  // namespace tessera::ops
