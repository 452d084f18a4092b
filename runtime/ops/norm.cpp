// layer_norm and rms_norm over the last dimension, with fused backward passes.
#include "kernels/norm.h"

#include <fmt/format.h>

#include "base/error.h"
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

/// Which of the two, and which parameters there are.
struct NormKind {
  bool centered = true;  // layer_norm; false: rms_norm
  bool gamma = false;
  bool beta = false;
  double epsilon = 0.0;

  std::size_t parameters() const { return (gamma ? 1U : 0U) + (beta ? 1U : 0U); }
  std::size_t statistics() const { return centered ? 2U : 1U; }
  std::string text() const {
    return fmt::format("{}{}{}", epsilon, gamma ? " gamma" : "", beta ? " beta" : "");
  }
};

DType statistics_dtype(DType dtype) {
  return dtype == DType::float64 ? DType::float64 : DType::float32;
}

kernels::NormArgs arguments(const NormKind& kind, const graph::LocalTensor& x,
                            DType parameter_dtype) {
  kernels::NormArgs args;
  args.dtype = x.dtype;
  args.parameter_dtype = parameter_dtype;
  args.centered = kind.centered;
  args.rows = leading(x.shape()).elements();
  args.columns = x.shape().back();
  args.epsilon = kind.epsilon;
  return args;
}

/// dy, x [..., C], mean (layer_norm only), rstd [...], gamma [C] (or none) -> dx [..., C], dgamma,
/// dbeta [C] (as there are)
class NormGradient final : public graph::Op {
 public:
  NormGradient(NormKind kind, DType parameter_dtype)
      : kind_(kind), parameter_dtype_(parameter_dtype) {}

  std::string_view name() const override {
    return kind_.centered ? "layer_norm_gradient" : "rms_norm_gradient";
  }
  std::string attributes() const override { return kind_.text(); }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    check(inputs[0] == inputs[1], "norm: the gradient's type is not the result's");
    std::vector<ValueType> results{inputs[1]};
    results.resize(1 + kind_.parameters(), {Shape{inputs[1].shape.back()}, parameter_dtype_});
    return results;
  }

  Rule rule(std::span<const ValueType> inputs,
            std::span<const ValueType> /*outputs*/) const override {
    const std::string row = row_term(inputs[1].shape);
    Rule rule{{row, row}, {row}, {0b1}};
    rule.operands.resize(2 + kind_.statistics(), row.substr(0, row.size() - 1));
    if (kind_.gamma) rule.operands.emplace_back("C");
    rule.results.resize(1 + kind_.parameters(), "C");
    return rule;
  }

  std::vector<ValueId> gradient(const GradientCall& /*call*/) const override {
    no_second_gradient(name());
  }

  double flops(const LocalCall& call) const override {
    return 16.0 * static_cast<double>(call.inputs[1].box.elements());
  }

  std::int64_t workspace_bytes(const LocalCall& call) const override {
    return kernels::norm_gradient_workspace(arguments(kind_, call.inputs[1], parameter_dtype_));
  }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    return std::visit(
        [args = arguments(kind_, call.inputs[1], parameter_dtype_),
         kind = kind_](const auto& chosen) -> Kernel {
          return [args, kind, chosen](const void* const* inputs, void* const* outputs,
                                      void* workspace, const StepState& /*step*/) {
            kernels::NormGradientPointers pointers;
            pointers.dy = inputs[0];
            pointers.x = inputs[1];
            if (kind.centered) pointers.mean = inputs[2];
            pointers.rstd = inputs[1 + kind.statistics()];
            if (kind.gamma) pointers.gamma = inputs[2 + kind.statistics()];
            pointers.dx = outputs[0];
            if (kind.gamma) pointers.dgamma = outputs[1];
            if (kind.beta) pointers.dbeta = outputs[kind.parameters()];
            kernels::norm_gradient(args, pointers, workspace, chosen);
          };
        },
        device);
  }

 private:
  NormKind kind_;
  DType parameter_dtype_;
};

/// x [..., C], gamma, beta [C] (as there are) -> y [..., C], mean (layer_norm only), rstd [...]
class Norm final : public graph::Op {
 public:
  explicit Norm(NormKind kind) : kind_(kind) {}

  std::string_view name() const override { return kind_.centered ? "layer_norm" : "rms_norm"; }
  std::string attributes() const override { return kind_.text(); }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    const ValueType& x = inputs[0];
    require_floating(x.dtype, name());
    if (x.shape.rank() == 0) {
      throw Error(Error::Kind::config, fmt::format("{}: a scalar has no last dimension", name()));
    }
    for (const ValueType& parameter : inputs.subspan(1)) {
      const bool fits = parameter.shape == Shape{x.shape.back()} && is_floating(parameter.dtype) &&
                        parameter.dtype == inputs[1].dtype;
      if (fits) continue;
      throw Error(Error::Kind::config,
                  fmt::format("{}: a parameter {} {} does not go with the last dimension of {} {}",
                              name(), name_of(parameter.dtype), to_string(parameter.shape),
                              name_of(x.dtype), to_string(x.shape)));
    }
    std::vector<ValueType> results{x};
    results.resize(1 + kind_.statistics(), {leading(x.shape), statistics_dtype(x.dtype)});
    return results;
  }

  Rule rule(std::span<const ValueType> inputs,
            std::span<const ValueType> /*outputs*/) const override {
    const std::string row = row_term(inputs[0].shape);
    Rule rule{{row}, {row}, {}};
    rule.operands.resize(inputs.size(), "C");
    rule.results.resize(1 + kind_.statistics(), row.substr(0, row.size() - 1));
    return rule;
  }

  std::vector<ValueId> gradient(const GradientCall& call) const override {
    check(call.output_gradients[0] != kNoValue, "norm: only the first result has a gradient");
    std::vector<SymbolicTensor> inputs{call.builder.wrap(call.output_gradients[0]),
                                       call.builder.wrap(call.inputs[0])};
    for (std::size_t i = 0; i < kind_.statistics(); ++i) {
      inputs.push_back(call.builder.wrap(call.outputs[1 + i]));
    }
    if (kind_.gamma) inputs.push_back(call.builder.wrap(call.inputs[1]));
    const DType dtype =
        call.inputs.size() > 1 ? call.builder.graph().type(call.inputs[1]).dtype : DType::float32;
    const std::vector<SymbolicTensor> results =
        call.builder.add(std::make_shared<NormGradient>(kind_, dtype), inputs);
    std::vector<ValueId> gradients;
    for (const SymbolicTensor result : results) gradients.push_back(result.id);
    return gradients;
  }

  double flops(const LocalCall& call) const override {
    return 8.0 * static_cast<double>(call.inputs[0].box.elements());
  }

  std::int64_t workspace_bytes(const LocalCall& call) const override {
    return kernels::norm_workspace(arguments_of(call));
  }

  bool may_overwrite(std::size_t output, std::size_t input) const override {
    return output == 0 && input == 0;
  }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    return std::visit(
        [args = arguments_of(call), kind = kind_](const auto& chosen) -> Kernel {
          return [args, kind, chosen](const void* const* inputs, void* const* outputs,
                                      void* workspace, const StepState& /*step*/) {
            kernels::norm(args, inputs[0], kind.gamma ? inputs[1] : nullptr,
                          kind.beta ? inputs[kind.parameters()] : nullptr, outputs[0],
                          kind.centered ? outputs[1] : nullptr, outputs[kind.statistics()],
                          workspace, chosen);
          };
        },
        device);
  }

 private:
  kernels::NormArgs arguments_of(const LocalCall& call) const {
    return arguments(kind_, call.inputs[0],
                     call.inputs.size() > 1 ? call.inputs[1].dtype : DType::float32);
  }

  NormKind kind_;
};

SymbolicTensor add_norm(NormKind kind, SymbolicTensor x, SymbolicTensor gamma,
                        SymbolicTensor beta) {
  kind.gamma = static_cast<bool>(gamma);
  kind.beta = static_cast<bool>(beta);
  std::vector<SymbolicTensor> inputs{x};
  if (gamma) inputs.push_back(gamma);
  if (beta) inputs.push_back(beta);
  return x.builder->add_one(std::make_shared<Norm>(kind), inputs);
}

}  // namespace

SymbolicTensor layer_norm(SymbolicTensor x, SymbolicTensor gamma, SymbolicTensor beta,
                          double epsilon) {
  return add_norm({true, false, false, epsilon}, x, gamma, beta);
}

SymbolicTensor rms_norm(SymbolicTensor x, SymbolicTensor scale, double epsilon) {
  return add_norm({false, false, false, epsilon}, x, scale, {});
}

}  // namespace tessera::ops
