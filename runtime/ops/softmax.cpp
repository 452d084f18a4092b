// Softmax and log_softmax along one dimension, with fused backward passes.
#include "kernels/softmax.h"

#include <fmt/format.h>

#include <array>
#include <numeric>

#include "base/error.h"
#include "runtime/ops/dims.h"
#include "runtime/ops/ops.h"

namespace tessera::ops {
namespace {

using graph::GradientCall;
using graph::Kernel;
using graph::LocalCall;
using graph::Rule;
using graph::StepState;
using graph::ValueId;
using graph::ValueType;

kernels::SoftmaxArgs arguments(const graph::LocalTensor& x, bool logarithm) {
  const Shape& shape = x.shape();
  return {x.dtype, logarithm, leading(shape).elements(), shape.back()};
}

/// y, dy -> dx, all [..., C]
class SoftmaxGradient final : public graph::Op {
 public:
  explicit SoftmaxGradient(bool logarithm) : logarithm_(logarithm) {}

  std::string_view name() const override {
    return logarithm_ ? "log_softmax_gradient" : "softmax_gradient";
  }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    check(inputs[0] == inputs[1], "softmax: the gradient's type is not the result's");
    return {inputs[0]};
  }

  Rule rule(std::span<const ValueType> inputs,
            std::span<const ValueType> /*outputs*/) const override {
    const std::string term = row_term(inputs[0].shape);
    return {{term, term}, {term}, {0b10}};
  }

  std::vector<ValueId> gradient(const GradientCall& /*call*/) const override {
    no_second_gradient(name());
  }

  double flops(const LocalCall& call) const override {
    return (logarithm_ ? 20.0 : 4.0) * static_cast<double>(call.inputs[0].box.elements());
  }

  bool may_overwrite(std::size_t /*output*/, std::size_t /*input*/) const override { return true; }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    return std::visit(
        [args = arguments(call.inputs[0], logarithm_)](const auto& chosen) -> Kernel {
          return [args, chosen](const void* const* inputs, void* const* outputs,
                                void* /*workspace*/, const StepState& /*step*/) {
            kernels::softmax_gradient(args, inputs[0], inputs[1], outputs[0], chosen);
          };
        },
        device);
  }

 private:
  bool logarithm_;
};

/// x -> y, both [..., C]
class Softmax final : public graph::Op {
 public:
  explicit Softmax(bool logarithm) : logarithm_(logarithm) {}

  std::string_view name() const override { return logarithm_ ? "log_softmax" : "softmax"; }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    require_floating(inputs[0].dtype, name());
    return {inputs[0]};
  }

  Rule rule(std::span<const ValueType> inputs,
            std::span<const ValueType> /*outputs*/) const override {
    const std::string term = row_term(inputs[0].shape);
    return {{term}, {term}, {}};
  }

  std::vector<ValueId> gradient(const GradientCall& call) const override {
    const std::array<SymbolicTensor, 2> inputs{call.builder.wrap(call.outputs[0]),
                                               call.builder.wrap(call.output_gradients[0])};
    return {call.builder.add_one(std::make_shared<SoftmaxGradient>(logarithm_), inputs).id};
  }

  // An exponential counts as 16.
  double flops(const LocalCall& call) const override {
    return 20.0 * static_cast<double>(call.inputs[0].box.elements());
  }

  bool may_overwrite(std::size_t /*output*/, std::size_t /*input*/) const override { return true; }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    return std::visit(
        [args = arguments(call.inputs[0], logarithm_)](const auto& chosen) -> Kernel {
          return [args, chosen](const void* const* inputs, void* const* outputs,
                                void* /*workspace*/, const StepState& /*step*/) {
            kernels::softmax(args, inputs[0], outputs[0], chosen);
          };
        },
        device);
  }

 private:
  bool logarithm_;
};

/// The kernels work along the last dimension: any other changes places with it before and after.
SymbolicTensor along(SymbolicTensor x, int dim, bool logarithm) {
  const std::size_t at = dim_of(dim, x.shape(), logarithm ? "log_softmax" : "softmax");
  std::vector<int> swap(x.rank());
  std::iota(swap.begin(), swap.end(), 0);
  std::swap(swap[at], swap.back());
  const std::array<SymbolicTensor, 1> inputs{transpose(x, swap)};
  return transpose(x.builder->add_one(std::make_shared<Softmax>(logarithm), inputs), swap);
}

}  // namespace

SymbolicTensor softmax(SymbolicTensor x, int dim) { return along(x, dim, false); }

SymbolicTensor log_softmax(SymbolicTensor x, int dim) { return along(x, dim, true); }

}  // namespace tessera::ops
