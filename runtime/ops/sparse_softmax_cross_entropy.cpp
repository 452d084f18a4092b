// Cross-entropy of logits with integer labels; probabilities are never stored.
#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "kernels/softmax.h"
#include "runtime/ops/dims.h"
#include "runtime/ops/ops.h"

namespace tessera::ops {
namespace {

using graph::GradientCall;
using graph::Kernel;
using graph::kNoValue;
using graph::LocalCall;
using graph::Rule;
using graph::StepState;
using graph::ValueId;
using graph::ValueType;

kernels::CrossEntropyArgs arguments(const LocalCall& call) {
  const Shape& logits = call.inputs[0].shape();
  return {call.inputs[0].dtype, call.inputs[1].dtype, call.inputs[1].box.elements(), logits.back()};
}

/// logits [..., C], labels, largest, log_sum, dloss [...] -> dlogits [..., C]
class CrossEntropyGradient final : public graph::Op {
 public:
  std::string_view name() const override { return "sparse_softmax_cross_entropy_gradient"; }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    return {inputs[0]};
  }

  Rule rule(std::span<const ValueType> inputs,
            std::span<const ValueType> /*outputs*/) const override {
    const std::string row = factor_letters(inputs[1].shape.rank());
    return {{row + "C", row, row, row, row}, {row + "C"}, {0b10000}};
  }

  std::vector<ValueId> gradient(const GradientCall& /*call*/) const override {
    no_second_gradient(name());
  }

  double flops(const LocalCall& call) const override {
    return 20.0 * static_cast<double>(call.inputs[0].box.elements());
  }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    return std::visit(
        [args = arguments(call)](const auto& chosen) -> Kernel {
          return [args, chosen](const void* const* inputs, void* const* outputs,
                                void* /*workspace*/, const StepState& /*step*/) {
            kernels::sparse_cross_entropy_gradient(args, inputs[0], inputs[1], inputs[2], inputs[3],
                                                   inputs[4], outputs[0], chosen);
          };
        },
        device);
  }
};

/// logits [..., C], labels [...] -> loss, largest, log_sum [...]
class CrossEntropy final : public graph::Op {
 public:
  std::string_view name() const override { return "sparse_softmax_cross_entropy"; }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    const ValueType& logits = inputs[0];
    require_floating(logits.dtype, name());
    if (logits.shape.rank() == 0 || !(leading(logits.shape) == inputs[1].shape) ||
        logits.shape.back() == 0) {
      throw Error(Error::Kind::config,
                  fmt::format("{}: labels {} do not go with logits {}: they need all but the last "
                              "dimension, which must not be empty",
                              name(), to_string(inputs[1].shape), to_string(logits.shape)));
    }
    const DType dtype = logits.dtype == DType::float64 ? DType::float64 : DType::float32;
    return std::vector<ValueType>(3, {inputs[1].shape, dtype});
  }

  Rule rule(std::span<const ValueType> inputs,
            std::span<const ValueType> /*outputs*/) const override {
    const std::string row = factor_letters(inputs[1].shape.rank());
    return {{row + "C", row}, {row, row, row}, {}};
  }

  std::vector<ValueId> gradient(const GradientCall& call) const override {
    check(call.output_gradients[0] != kNoValue,
          "cross-entropy: only the first result has a gradient");
    const auto wrap = [&](ValueId id) { return call.builder.wrap(id); };
    const std::array<SymbolicTensor, 5> inputs{wrap(call.inputs[0]), wrap(call.inputs[1]),
                                               wrap(call.outputs[1]), wrap(call.outputs[2]),
                                               wrap(call.output_gradients[0])};
    return {call.builder.add_one(std::make_shared<CrossEntropyGradient>(), inputs).id, kNoValue};
  }

  double flops(const LocalCall& call) const override {
    return 20.0 * static_cast<double>(call.inputs[0].box.elements());
  }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    return std::visit(
        [args = arguments(call)](const auto& chosen) -> Kernel {
          return [args, chosen](const void* const* inputs, void* const* outputs,
                                void* /*workspace*/, const StepState& /*step*/) {
            kernels::sparse_cross_entropy(args, inputs[0], inputs[1], outputs[0], outputs[1],
                                          outputs[2], chosen);
          };
        },
        device);
  }
};

}  // namespace

SymbolicTensor sparse_softmax_cross_entropy(SymbolicTensor logits, SymbolicTensor labels) {
  const std::array<SymbolicTensor, 2> inputs{logits, labels};
  return logits.builder->add_one(std::make_shared<CrossEntropy>(), inputs);
}

}  // namespace tessera::ops
