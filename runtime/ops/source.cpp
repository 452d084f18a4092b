// Operations without operands: constants, indices, random numbers.
#include "runtime/ops/source.h"

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/source.h"
#include "runtime/ops/dims.h"
#include "runtime/ops/ops.h"

namespace tessera::ops {
namespace {

using graph::Kernel;
using graph::LocalCall;
using graph::Rule;
using graph::ValueId;
using graph::ValueType;

Rule source_rule(const Shape& shape) {
  return graph::parse_rule("->" + factor_letters(shape.rank()));
}

/// The kernel of a source as that of an op.
Kernel wrap(kernels::SourceKernel kernel) {
  return [kernel = std::move(kernel)](const void* const* /*inputs*/, void* const* outputs,
                                      void* /*workspace*/, const graph::StepState& step) {
    kernel(outputs[0], step.step);
  };
}

class IotaOp final : public graph::Op {
 public:
  IotaOp(Shape shape, std::size_t dim, DType dtype) : shape_(shape), dim_(dim), dtype_(dtype) {}

  std::string_view name() const override { return "iota"; }
  std::string attributes() const override {
    return fmt::format("{} dim {} {}", to_string(shape_), dim_, tessera::name_of(dtype_));
  }
  std::vector<ValueType> infer(std::span<const ValueType> /*inputs*/) const override {
    return {{shape_, dtype_}};
  }
  Rule rule(std::span<const ValueType> /*inputs*/,
            std::span<const ValueType> /*outputs*/) const override {
    return source_rule(shape_);
  }
  std::vector<ValueId> gradient(const graph::GradientCall& /*call*/) const override { return {}; }
  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    return std::visit(
        [&](const auto& which) {
          return wrap(kernels::prepare_iota(call.outputs[0].box, dim_, dtype_, which));
        },
        device);
  }

 private:
  Shape shape_;
  std::size_t dim_;
  DType dtype_;
};

class RandomOp final : public graph::Op {
 public:
  RandomOp(kernels::Distribution distribution, Shape shape, std::uint64_t key, DType dtype)
      : distribution_(distribution), shape_(shape), key_(key), dtype_(dtype) {}

  std::string_view name() const override {
    return distribution_ == kernels::Distribution::uniform ? "random_uniform" : "random_normal";
  }
  std::string attributes() const override {
    return fmt::format("{} key {:016x} {}", to_string(shape_), key_, tessera::name_of(dtype_));
  }
  std::vector<ValueType> infer(std::span<const ValueType> /*inputs*/) const override {
    return {{shape_, dtype_}};
  }
  Rule rule(std::span<const ValueType> /*inputs*/,
            std::span<const ValueType> /*outputs*/) const override {
    return source_rule(shape_);
  }
  std::vector<ValueId> gradient(const graph::GradientCall& /*call*/) const override { return {}; }
  /// Ten rounds of four multiplications and some, and what the distribution takes.
  double flops(const LocalCall& call) const override {
    return 20.0 * static_cast<double>(call.outputs[0].box.elements());
  }
  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    const graph::LocalTensor& output = call.outputs[0];
    return std::visit(
        [&](const auto& which) {
          return wrap(kernels::prepare_random(distribution_, key_, output.global, output.box,
                                              dtype_, which));
        },
        device);
  }

 private:
  kernels::Distribution distribution_;
  Shape shape_;
  std::uint64_t key_;
  DType dtype_;
};

SymbolicTensor add_random(graph::Builder& builder, kernels::Distribution distribution, Shape shape,
                          std::uint64_t key, DType dtype) {
  if (!is_floating(dtype)) {
    throw Error(
        Error::Kind::config,
        fmt::format("random numbers are drawn in floating types, not {}", tessera::name_of(dtype)));
  }
  return builder.add_one(std::make_shared<const RandomOp>(distribution, shape, key, dtype), {});
}

}  // namespace

std::string FullOp::attributes() const {
  return fmt::format("{} {} {}", to_string(shape_), value_, tessera::name_of(dtype_));
}

std::vector<ValueType> FullOp::infer(std::span<const ValueType> /*inputs*/) const {
  return {{shape_, dtype_}};
}

Rule FullOp::rule(std::span<const ValueType> /*inputs*/,
                  std::span<const ValueType> /*outputs*/) const {
  return source_rule(shape_);
}

std::vector<ValueId> FullOp::gradient(const graph::GradientCall& /*call*/) const { return {}; }

Kernel FullOp::prepare(const LocalCall& call, const kernels::Device& device) const {
  return std::visit(
      [&](const auto& which) {
        return wrap(kernels::prepare_full(call.outputs[0].box.elements(), value_, dtype_, which));
      },
      device);
}

std::optional<double> constant_of(SymbolicTensor x) {
  const graph::Graph& graph = x.builder->graph();
  const graph::Value& value = graph.value(x.id);
  if (value.source != graph::Value::Source::node || value.pin) return std::nullopt;
  const auto* full =
      dynamic_cast<const FullOp*>(graph.nodes[static_cast<std::size_t>(value.producer)].op.get());
  return full == nullptr ? std::nullopt : std::optional<double>(full->value());
}

SymbolicTensor full(graph::Builder& builder, Shape shape, double value, DType dtype) {
  return builder.add_one(std::make_shared<const FullOp>(shape, value, dtype), {});
}

SymbolicTensor iota(graph::Builder& builder, Shape shape, int dim, DType dtype) {
  const std::size_t which = dim_of(dim, shape, "iota");
  return builder.add_one(std::make_shared<const IotaOp>(shape, which, dtype), {});
}

SymbolicTensor random_uniform(graph::Builder& builder, Shape shape, std::uint64_t key,
                              DType dtype) {
  return add_random(builder, kernels::Distribution::uniform, shape, key, dtype);
}

SymbolicTensor random_normal(graph::Builder& builder, Shape shape, std::uint64_t key, DType dtype) {
  return add_random(builder, kernels::Distribution::normal, shape, key, dtype);
}

}  // namespace tessera::ops
