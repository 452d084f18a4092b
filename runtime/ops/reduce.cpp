// Sums, means, maxima and minima over dimensions.
#include "kernels/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "runtime/ops/dims.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/source.h"

namespace tessera::ops {
namespace {

using graph::kNoValue;
using graph::LocalCall;
using graph::ValueId;
using graph::ValueType;
using kernels::ReduceCode;

constexpr std::string_view kNames[] = {"sum", "max", "min"};

bool contains(const std::vector<int>& dims, std::size_t dim) {
  return std::find(dims.begin(), dims.end(), static_cast<int>(dim)) != dims.end();
}

class ReduceOp final : public graph::Op {
 public:
  /// `dims`: ascending, from 0. `result`: absent, that of the operand.
  ReduceOp(ReduceCode code, std::vector<int> dims, bool keepdims,
           std::optional<DType> result = std::nullopt)
      : code_(code), dims_(std::move(dims)), keepdims_(keepdims), result_(result) {}

  std::string_view name() const override { return kNames[static_cast<std::size_t>(code_)]; }
  std::string attributes() const override {
    return fmt::format("dims [{}]{}{}", fmt::join(dims_, ", "), keepdims_ ? " keepdims" : "",
                       result_ ? fmt::format(" {}", tessera::name_of(*result_)) : "");
  }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    const ValueType& x = inputs[0];
    for (std::size_t dim = 0; dim < x.shape.rank(); ++dim) {
      if (code_ != ReduceCode::sum && x.shape[dim] == 0 && contains(dims_, dim)) {
        throw Error(Error::Kind::config, fmt::format("{} over dimension {} of {}, which is empty",
                                                     name(), dim, to_string(x.shape)));
      }
    }
    // Counting truths needs more than a boolean.
    const bool counts = code_ == ReduceCode::sum && x.dtype == DType::boolean;
    const DType dtype = counts ? DType::int32 : x.dtype;
    return {{result_shape(x.shape, keepdims_), result_.value_or(dtype)}};
  }
  std::shared_ptr<const graph::Op> with_result(DType dtype) const override {
    if (code_ != ReduceCode::sum) return nullptr;
    return std::make_shared<const ReduceOp>(code_, dims_, keepdims_, dtype);
  }

  graph::Rule rule(std::span<const ValueType> inputs,
                   std::span<const ValueType> /*outputs*/) const override {
    std::string operand;
    std::string result;
    for (std::size_t dim = 0; dim < inputs[0].shape.rank(); ++dim) {
      const bool reduced = contains(dims_, dim);
      const bool whole = reduced && code_ != ReduceCode::sum;
      operand.push_back(static_cast<char>((whole ? 'A' : 'a') + static_cast<int>(dim)));
      if (!reduced) result.push_back(operand.back());
      if (reduced && keepdims_) result.push_back('.');
    }
    graph::Rule rule{{operand}, {result}, {}};
    const DType dtype = inputs[0].dtype;
    const bool adds = is_floating(dtype) || dtype == DType::int32 || dtype == DType::int64;
    if (code_ == ReduceCode::sum && adds) rule.linear = {0b1};
    return rule;
  }

  std::vector<ValueId> gradient(const graph::GradientCall& call) const override {
    graph::Builder& builder = call.builder;
    const SymbolicTensor x = builder.wrap(call.inputs[0]);
    const Shape& shape = x.shape();
    const Shape kept = result_shape(shape, true);
    SymbolicTensor g = cast(builder.wrap(call.output_gradients[0]), x.dtype());
    if (code_ == ReduceCode::sum) {
      // A constant stays one: it then costs nothing where it is used.
      if (const auto value = constant_of(g)) return {full(builder, shape, *value, g.dtype()).id};
      return {broadcast_to(reshape(g, kept), shape).id};
    }
    const SymbolicTensor y = reshape(builder.wrap(call.outputs[0]), kept);
    const SymbolicTensor hits = equal(x, y);
    const SymbolicTensor count = sum(cast(hits, x.dtype()), dims_, true);
    g = reshape(g, kept) / count;
    return {where(hits, g, 0.0).id};
  }

  double flops(const LocalCall& call) const override {
    return static_cast<double>(call.inputs[0].box.elements());
  }
  std::int64_t workspace_bytes(const LocalCall& call) const override {
    return kernels::reduce_workspace_bytes(args(call));
  }
  graph::Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    return std::visit(
        [&](const auto& which) -> graph::Kernel {
          return
              [kernel = kernels::prepare_reduce(args(call), which)](
                  const void* const* inputs, void* const* outputs, void* workspace,
                  const graph::StepState& /*step*/) { kernel(inputs[0], outputs[0], workspace); };
        },
        device);
  }

 private:
  Shape result_shape(const Shape& shape, bool keepdims) const {
    Shape result;
    for (std::size_t dim = 0; dim < shape.rank(); ++dim) {
      if (!contains(dims_, dim)) {
        result.push_back(shape[dim]);
      } else if (keepdims) {
        result.push_back(1);
      }
    }
    return result;
  }
  kernels::ReduceArgs args(const LocalCall& call) const {
    return {code_, call.inputs[0].shape(), dims_, call.inputs[0].dtype, call.outputs[0].dtype};
  }

  ReduceCode code_;
  std::vector<int> dims_;
  bool keepdims_;
  std::optional<DType> result_;
};

/// Ascending, from 0; empty: all. Throws config for dimensions that do not exist or come twice.
std::vector<int> normalized(std::string_view what, const Shape& shape, std::vector<int> dims) {
  if (dims.empty()) {
    for (int dim = 0; dim < static_cast<int>(shape.rank()); ++dim) dims.push_back(dim);
    return dims;
  }
  for (int& dim : dims) dim = static_cast<int>(dim_of(dim, shape, what));
  std::sort(dims.begin(), dims.end());
  if (std::adjacent_find(dims.begin(), dims.end()) != dims.end()) {
    throw Error(Error::Kind::config, fmt::format("{}: a dimension of {} is named twice: [{}]", what,
                                                 to_string(shape), fmt::join(dims, ", ")));
  }
  return dims;
}

SymbolicTensor reduce(ReduceCode code, SymbolicTensor x, std::vector<int> dims, bool keepdims) {
  dims = normalized(kNames[static_cast<std::size_t>(code)], x.shape(), std::move(dims));
  if (dims.empty() && x.dtype() != DType::boolean) return x;  // a scalar
  return x.builder->add_one(std::make_shared<const ReduceOp>(code, std::move(dims), keepdims),
                            {{x}});
}

}  // namespace

SymbolicTensor sum(SymbolicTensor x, std::vector<int> dims, bool keepdims) {
  return reduce(ReduceCode::sum, x, std::move(dims), keepdims);
}

SymbolicTensor max(SymbolicTensor x, std::vector<int> dims, bool keepdims) {
  return reduce(ReduceCode::max, x, std::move(dims), keepdims);
}

SymbolicTensor min(SymbolicTensor x, std::vector<int> dims, bool keepdims) {
  return reduce(ReduceCode::min, x, std::move(dims), keepdims);
}

SymbolicTensor mean(SymbolicTensor x, std::vector<int> dims, bool keepdims) {
  dims = normalized("mean", x.shape(), std::move(dims));
  double count = 1.0;
  for (const int dim : dims) count *= static_cast<double>(x.shape()[static_cast<std::size_t>(dim)]);
  // Half-precision sums would overflow or lose digits before the division.
  const DType dtype = is_floating(x.dtype()) ? x.dtype() : DType::float32;
  const DType inside = size_of(dtype) < 4 ? DType::float32 : dtype;
  const SymbolicTensor total = sum(cast(x, inside), dims, keepdims);
  return cast(total * (1.0 / count), dtype);
}

}  // namespace tessera::ops
