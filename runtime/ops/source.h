// Values that no operand decides: constants, indices, random numbers.
#pragma once

#include <optional>
#include <string>

#include "runtime/graph/builder.h"

namespace tessera::ops {

/// A tensor whose elements are all `value`.
class FullOp final : public graph::Op {
 public:
  FullOp(Shape shape, double value, DType dtype) : shape_(shape), value_(value), dtype_(dtype) {}

  double value() const { return value_; }

  std::string_view name() const override { return "full"; }
  std::string attributes() const override;
  std::vector<graph::ValueType> infer(std::span<const graph::ValueType> inputs) const override;
  graph::Rule rule(std::span<const graph::ValueType> inputs,
                   std::span<const graph::ValueType> outputs) const override;
  std::vector<graph::ValueId> gradient(const graph::GradientCall& call) const override;
  graph::Kernel prepare(const graph::LocalCall& call, const kernels::Device& device) const override;

 private:
  Shape shape_;
  double value_;
  DType dtype_;
};

/// The value of all elements, where `x` is made by a FullOp.
std::optional<double> constant_of(graph::SymbolicTensor x);

}  // namespace tessera::ops
