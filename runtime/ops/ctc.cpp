// CTC loss and its gradient, as two ops.
#include "runtime/ops/ctc.h"

#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "kernels/ctc.h"
#include "runtime/ops/dims.h"

namespace tessera::ops {
namespace {

using graph::GradientCall;
using graph::Kernel;
using graph::kNoValue;
using graph::LocalCall;
using graph::Rule;
using graph::StepState;
using graph::SymbolicTensor;
using graph::ValueId;
using graph::ValueType;

kernels::CtcArgs arguments(const LocalCall& call, int blank) {
  const Shape& labels = call.inputs[0].shape();
  const Shape& logits = call.inputs[1].shape();
  return {call.inputs[0].dtype,
          call.inputs[1].dtype,
          labels[0],
          labels[1],
          logits[1],
          logits[2],
          blank};
}

double ctc_flops(const LocalCall& call) {
  const Shape& labels = call.inputs[0].shape();
  const Shape& logits = call.inputs[1].shape();
  // Per frame an exponential a class, and about four a label.
  return 20.0 * static_cast<double>(logits[0] * logits[1] * (logits[2] + 4 * labels[1]));
}

/// labels [b, n], logits [b, t, c], dloss [b] -> dlogits [b, t, c]
class CtcGradient final : public graph::Op {
 public:
  explicit CtcGradient(int blank) : blank_(blank) {}

  std::string_view name() const override { return "ctc_loss_gradient"; }
  std::string attributes() const override { return std::to_string(blank_); }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    return {inputs[1]};
  }

  Rule rule(std::span<const ValueType> /*inputs*/,
            std::span<const ValueType> /*outputs*/) const override {
    return graph::parse_rule("bN,bTC,b->bTC", {0b100});
  }

  std::vector<ValueId> gradient(const GradientCall& /*call*/) const override {
    no_second_gradient(name());
  }

  double flops(const LocalCall& call) const override { return 2.0 * ctc_flops(call); }

  std::int64_t workspace_bytes(const LocalCall& call) const override {
    return kernels::ctc_workspace(arguments(call, blank_));
  }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    return std::visit(
        [args = arguments(call, blank_)](const auto& chosen) -> Kernel {
          return [args, chosen](const void* const* inputs, void* const* outputs, void* workspace,
                                const StepState& /*step*/) {
            kernels::ctc_gradient(args, inputs[0], inputs[1], inputs[2], outputs[0], workspace,
                                  chosen);
          };
        },
        device);
  }

 private:
  int blank_;
};

/// labels [b, n], logits [b, t, c] -> loss [b]
class CtcLoss final : public graph::Op {
 public:
  explicit CtcLoss(int blank) : blank_(blank) {}

  std::string_view name() const override { return "ctc_loss"; }
  std::string attributes() const override { return std::to_string(blank_); }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    const Shape& labels = inputs[0].shape;
    const Shape& logits = inputs[1].shape;
    require_floating(inputs[1].dtype, name());
    if (labels.rank() != 2 || logits.rank() != 3 || labels[0] != logits[0]) {
      throw Error(Error::Kind::config,
                  fmt::format("ctc_loss: labels [batch, max_labels] and logits [batch, frames, "
                              "classes] are expected, found {} and {}",
                              to_string(labels), to_string(logits)));
    }
    if (blank_ < 0 || blank_ >= logits[2]) {
      throw Error(Error::Kind::config,
                  fmt::format("ctc_loss: the blank {} is none of {} classes", blank_, logits[2]));
    }
    const DType dtype = inputs[1].dtype == DType::float64 ? DType::float64 : DType::float32;
    return {{{logits[0]}, dtype}};
  }

  Rule rule(std::span<const ValueType> /*inputs*/,
            std::span<const ValueType> /*outputs*/) const override {
    return graph::parse_rule("bN,bTC->b");
  }

  std::vector<ValueId> gradient(const GradientCall& call) const override {
    if (!call.wanted[1]) return {kNoValue, kNoValue};
    const std::array<SymbolicTensor, 3> inputs{call.builder.wrap(call.inputs[0]),
                                               call.builder.wrap(call.inputs[1]),
                                               call.builder.wrap(call.output_gradients[0])};
    return {kNoValue, call.builder.add_one(std::make_shared<CtcGradient>(blank_), inputs).id};
  }

  double flops(const LocalCall& call) const override { return ctc_flops(call); }

  std::int64_t workspace_bytes(const LocalCall& call) const override {
    return kernels::ctc_workspace(arguments(call, blank_));
  }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    return std::visit(
        [args = arguments(call, blank_)](const auto& chosen) -> Kernel {
          return [args, chosen](const void* const* inputs, void* const* outputs, void* workspace,
                                const StepState& /*step*/) {
            kernels::ctc_loss(args, inputs[0], inputs[1], outputs[0], workspace, chosen);
          };
        },
        device);
  }

 private:
  int blank_;
};

}  // namespace

SymbolicTensor ctc_loss(SymbolicTensor labels, SymbolicTensor logits, int mask_index) {
  const std::array<SymbolicTensor, 2> inputs{labels, logits};
  return logits.builder->add_one(std::make_shared<CtcLoss>(mask_index), inputs);
}

}  // namespace tessera::ops
