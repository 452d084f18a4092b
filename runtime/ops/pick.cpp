// Pick: one element of the last dimension by id, its gradient, and one_hot.
#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "kernels/lookup.h"
#include "runtime/ops/dims.h"
#include "runtime/ops/ops.h"

namespace tessera::ops {
namespace {

using graph::GradientCall;
using graph::Kernel;
using graph::kNoValue;
using graph::LocalCall;
using graph::LocalTensor;
using graph::Rule;
using graph::StepState;
using graph::ValueId;
using graph::ValueType;

/// `spread` is the tensor with the last dimension that the ids look into.
kernels::PickArgs arguments(const LocalTensor& ids, const LocalTensor& spread) {
  kernels::PickArgs args;
  args.ids_dtype = ids.dtype;
  args.element_size = size_of(spread.dtype);
  args.rows = ids.box.elements();
  args.first = spread.box.begin[spread.shape().rank() - 1];
  args.columns = spread.shape().back();
  return args;
}

/// ids [...], dy [...] -> dx [..., v]: dy at the ids, else 0.
class PickGradient final : public graph::Op {
 public:
  explicit PickGradient(std::int64_t columns) : columns_(columns) {}

  std::string_view name() const override { return "pick_gradient"; }
  std::string attributes() const override { return std::to_string(columns_); }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    ValueType result = inputs[1];
    result.shape.push_back(columns_);
    return {result};
  }

  Rule rule(std::span<const ValueType> inputs,
            std::span<const ValueType> /*outputs*/) const override {
    const std::string rows = factor_letters(inputs[0].shape.rank());
    return {{rows, rows}, {rows + "v"}, {0b10}};
  }

  std::vector<ValueId> gradient(const GradientCall& call) const override {
    return {
        kNoValue,
        pick(call.builder.wrap(call.output_gradients[0]), call.builder.wrap(call.inputs[0])).id};
  }

  double flops(const LocalCall& /*call*/) const override { return 0.0; }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    return std::visit(
        [args = arguments(call.inputs[0], call.outputs[0])](const auto& chosen) -> Kernel {
          return [args, chosen](const void* const* inputs, void* const* outputs,
                                void* /*workspace*/, const StepState& /*step*/) {
            kernels::pick_gradient(args, inputs[0], inputs[1], outputs[0], chosen);
          };
        },
        device);
  }

 private:
  std::int64_t columns_;
};

/// x [..., v], ids [...] -> [...]
class Pick final : public graph::Op {
 public:
  std::string_view name() const override { return "pick"; }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    if (inputs[0].shape.rank() == 0 || !(leading(inputs[0].shape) == inputs[1].shape)) {
      throw Error(
          Error::Kind::config,
          fmt::format("pick: ids {} do not go with {}: they need all but its last dimension",
                      to_string(inputs[1].shape), to_string(inputs[0].shape)));
    }
    return {{inputs[1].shape, inputs[0].dtype}};
  }

  Rule rule(std::span<const ValueType> inputs,
            std::span<const ValueType> /*outputs*/) const override {
    const std::string rows = factor_letters(inputs[1].shape.rank());
    return {{rows + "v", rows}, {rows}, {0b01}};
  }

  std::vector<ValueId> gradient(const GradientCall& call) const override {
    if (!call.wanted[0]) return {kNoValue, kNoValue};
    const std::int64_t columns = call.builder.graph().type(call.inputs[0]).shape.back();
    const std::array<SymbolicTensor, 2> inputs{call.builder.wrap(call.inputs[1]),
                                               call.builder.wrap(call.output_gradients[0])};
    return {call.builder.add_one(std::make_shared<PickGradient>(columns), inputs).id, kNoValue};
  }

  double flops(const LocalCall& /*call*/) const override { return 0.0; }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    return std::visit(
        [args = arguments(call.inputs[1], call.inputs[0])](const auto& chosen) -> Kernel {
          return [args, chosen](const void* const* inputs, void* const* outputs,
                                void* /*workspace*/, const StepState& /*step*/) {
            kernels::pick(args, inputs[0], inputs[1], outputs[0], chosen);
          };
        },
        device);
  }
};

}  // namespace

SymbolicTensor pick(SymbolicTensor x, SymbolicTensor ids) {
  const std::array<SymbolicTensor, 2> inputs{x, ids};
  return x.builder->add_one(std::make_shared<Pick>(), inputs);
}

SymbolicTensor one_hot(SymbolicTensor ids, std::int64_t depth, DType dtype) {
  // In a type that holds every index: a byte would wrap round.
  const DType index = ids.dtype() == DType::int64 ? DType::int64 : DType::int32;
  const SymbolicTensor column = expand_dims(cast(ids, index), -1);
  Shape last = column.shape();
  for (std::size_t i = 0; i < last.rank(); ++i) last[i] = 1;
  last[last.rank() - 1] = depth;
  const int dim = static_cast<int>(last.rank()) - 1;
  return cast(equal(column, iota(*ids.builder, last, dim, index)), dtype);
}

}  // namespace tessera::ops
