// Embedding: rows of a table by id, and its gradient, which adds rows up by id.
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
using graph::Rule;
using graph::StepState;
using graph::ValueId;
using graph::ValueType;

/// ids [t...], dy [t..., d...] -> dtable [v, d...]
class EmbeddingGradient final : public graph::Op {
 public:
  explicit EmbeddingGradient(std::int64_t rows) : rows_(rows) {}

  std::string_view name() const override { return "embedding_gradient"; }
  std::string attributes() const override { return std::to_string(rows_); }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    Shape shape{rows_};
    const Shape& dy = inputs[1].shape;
    for (std::size_t i = inputs[0].shape.rank(); i < dy.rank(); ++i) shape.push_back(dy[i]);
    return {{shape, inputs[1].dtype}};
  }

  Rule rule(std::span<const ValueType> inputs,
            std::span<const ValueType> /*outputs*/) const override {
    const std::string ids = factor_letters(inputs[0].shape.rank());
    const std::string dy = factor_letters(inputs[1].shape.rank());
    return {{ids, dy}, {fmt::format("v{}", dy.substr(ids.size()))}, {0b10}};
  }

  std::vector<ValueId> gradient(const GradientCall& call) const override {
    const SymbolicTensor rows =
        embedding(call.builder.wrap(call.inputs[0]), call.builder.wrap(call.output_gradients[0]));
    return {kNoValue, rows.id};
  }

  double flops(const LocalCall& call) const override {
    return static_cast<double>(call.inputs[1].box.elements());
  }

  std::int64_t workspace_bytes(const LocalCall& call) const override {
    return kernels::embedding_gradient_workspace(arguments(call));
  }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    return std::visit(
        [args = arguments(call)](const auto& chosen) -> Kernel {
          return [args, chosen](const void* const* inputs, void* const* outputs, void* workspace,
                                const StepState& /*step*/) {
            kernels::embedding_gradient(args, inputs[0], inputs[1], outputs[0], workspace, chosen);
          };
        },
        device);
  }

 private:
  static kernels::EmbeddingGradientArgs arguments(const LocalCall& call) {
    const Shape& out = call.outputs[0].shape();
    std::int64_t columns = 1;
    for (std::size_t i = 1; i < out.rank(); ++i) columns *= out[i];
    return {call.inputs[0].dtype,
            call.inputs[1].dtype,
            call.inputs[0].box.elements(),
            call.outputs[0].box.begin[0],
            out[0],
            columns};
  }

  std::int64_t rows_;
};

/// ids [t...], table [v, d...] -> rows [t..., d...]
class Embedding final : public graph::Op {
 public:
  std::string_view name() const override { return "embedding"; }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    if (inputs[1].shape.rank() == 0) {
      throw Error(Error::Kind::config, "embedding: the table is a scalar");
    }
    Shape shape = inputs[0].shape;
    for (std::size_t i = 1; i < inputs[1].shape.rank(); ++i) shape.push_back(inputs[1].shape[i]);
    return {{shape, inputs[1].dtype}};
  }

  Rule rule(std::span<const ValueType> inputs, std::span<const ValueType> outputs) const override {
    const std::string ids = factor_letters(inputs[0].shape.rank());
    const std::string out = factor_letters(outputs[0].shape.rank());
    return {{ids, fmt::format("v{}", out.substr(ids.size()))}, {out}, {0b10}};
  }

  std::vector<ValueId> gradient(const GradientCall& call) const override {
    if (!call.wanted[1]) return {kNoValue, kNoValue};
    const std::int64_t rows = call.builder.graph().type(call.inputs[1]).shape[0];
    const std::array<SymbolicTensor, 2> inputs{call.builder.wrap(call.inputs[0]),
                                               call.builder.wrap(call.output_gradients[0])};
    return {kNoValue, call.builder.add_one(std::make_shared<EmbeddingGradient>(rows), inputs).id};
  }

  double flops(const LocalCall& /*call*/) const override { return 0.0; }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    const Shape& table = call.inputs[1].shape();
    kernels::EmbeddingArgs args;
    args.ids_dtype = call.inputs[0].dtype;
    args.ids = call.inputs[0].box.elements();
    args.first = call.inputs[1].box.begin[0];
    args.rows = table[0];
    args.row_bytes = size_of(call.inputs[1].dtype);
    for (std::size_t i = 1; i < table.rank(); ++i) {
      args.row_bytes *= static_cast<std::size_t>(table[i]);
    }
    return std::visit(
        [args](const auto& chosen) -> Kernel {
          return [args, chosen](const void* const* inputs, void* const* outputs,
                                void* /*workspace*/, const StepState& /*step*/) {
            kernels::embedding(args, inputs[0], inputs[1], outputs[0], chosen);
          };
        },
        device);
  }
};

}  // namespace

SymbolicTensor embedding(SymbolicTensor ids, SymbolicTensor table) {
  const std::array<SymbolicTensor, 2> inputs{ids, table};
  return ids.builder->add_one(std::make_shared<Embedding>(), inputs);
}

}  // namespace tessera::ops
