// Ops that only move elements: transpose, broadcast_to, concat, slice, pad.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "runtime/ops/copies.h"
#include "runtime/ops/dims.h"
#include "runtime/ops/ops.h"

namespace tessera::ops {
namespace {

using graph::GradientCall;
using graph::Kernel;
using graph::kNoValue;
using graph::LocalCall;
using graph::Rule;
using graph::ValueId;
using graph::ValueType;

/// Operands of one concat node: linear sets are masks of 32 bits.
constexpr std::size_t kMaxParts = 32;

class Movement : public graph::Op {
 public:
  double flops(const LocalCall& /*call*/) const final { return 0.0; }
};

class Transpose final : public Movement {
 public:
  explicit Transpose(std::vector<int> permutation) : permutation_(std::move(permutation)) {}

  std::string_view name() const override { return "transpose"; }
  bool only_moves() const override { return true; }
  std::string attributes() const override {
    return fmt::format("{}", fmt::join(permutation_, ","));
  }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    return {{permuted(inputs[0].shape), inputs[0].dtype}};
  }

  Rule rule(std::span<const ValueType> inputs,
            std::span<const ValueType> /*outputs*/) const override {
    const std::string in = factor_letters(inputs[0].shape.rank());
    std::string out;
    for (const int dim : permutation_) out.push_back(in[static_cast<std::size_t>(dim)]);
    return {{in}, {out}, {0b1}};
  }

  std::vector<ValueId> gradient(const GradientCall& call) const override {
    std::vector<int> inverse(permutation_.size());
    for (std::size_t i = 0; i < permutation_.size(); ++i) {
      inverse[static_cast<std::size_t>(permutation_[i])] = static_cast<int>(i);
    }
    return {transpose(call.builder.wrap(call.output_gradients[0]), inverse).id};
  }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    const Shape& out = call.outputs[0].shape();
    CopyPart part;
    part.copy = kernels::plan_strided_copy(out, permuted(call.inputs[0].shape().strides()),
                                           out.strides(), size_of(call.outputs[0].dtype));
    return copy_kernel({part}, device);
  }

 private:
  Shape permuted(const Shape& shape) const {
    Shape result;
    for (const int dim : permutation_) result.push_back(shape[static_cast<std::size_t>(dim)]);
    return result;
  }

  std::vector<int> permutation_;
};

class BroadcastTo final : public Movement {
 public:
  explicit BroadcastTo(Shape shape) : shape_(shape) {}

  std::string_view name() const override { return "broadcast_to"; }
  bool only_moves() const override { return true; }
  bool is_broadcast() const override { return true; }
  std::string attributes() const override { return to_string(shape_); }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    const Shape& from = inputs[0].shape;
    bool fits = from.rank() <= shape_.rank();
    for (std::size_t i = 0; fits && i < from.rank(); ++i) {
      fits = from[i] == 1 || from[i] == shape_[i + shape_.rank() - from.rank()];
    }
    if (!fits) {
      throw Error(Error::Kind::config,
                  fmt::format("broadcast_to: shape {} does not broadcast to {}", to_string(from),
                              to_string(shape_)));
    }
    return {{shape_, inputs[0].dtype}};
  }

  Rule rule(std::span<const ValueType> inputs,
            std::span<const ValueType> /*outputs*/) const override {
    const std::string out = factor_letters(shape_.rank());
    const Shape& from = inputs[0].shape;
    std::string in = out.substr(shape_.rank() - from.rank());
    for (std::size_t i = 0; i < from.rank(); ++i) {
      if (from[i] == 1) in[i] = '.';
    }
    return {{in}, {out}, {0b1}};
  }

  std::vector<ValueId> gradient(const GradientCall& call) const override {
    const Shape& from = call.builder.graph().type(call.inputs[0]).shape;
    const std::size_t extra = shape_.rank() - from.rank();
    std::vector<int> dims;
    for (std::size_t i = 0; i < shape_.rank(); ++i) {
      if (i < extra || (from[i - extra] == 1 && shape_[i] != 1))
        dims.push_back(static_cast<int>(i));
    }
    const SymbolicTensor dy = call.builder.wrap(call.output_gradients[0]);
    if (dims.empty()) return {dy.id};
    return {reshape(sum(dy, dims, true), from).id};
  }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    const Shape& in = call.inputs[0].shape();
    const Shape& out = call.outputs[0].shape();
    const Shape in_strides = in.strides();
    Shape strides = out;
    for (std::size_t i = 0; i < out.rank(); ++i) strides[i] = 0;
    const std::size_t extra = out.rank() - in.rank();
    for (std::size_t i = 0; i < in.rank(); ++i) {
      if (call.inputs[0].global[i] != 1) strides[i + extra] = in_strides[i];
    }
    CopyPart part;
    part.copy =
        kernels::plan_strided_copy(out, strides, out.strides(), size_of(call.outputs[0].dtype));
    return copy_kernel({part}, device);
  }

 private:
  Shape shape_;
};

/// Letters of an op that touches one dimension only: that one stays whole.
Rule rule_around(std::size_t rank, std::size_t dim, std::size_t operands,
                 std::vector<std::uint32_t> linear) {
  std::string term = factor_letters(rank);
  term[dim] = 'A';
  return {std::vector<std::string>(operands, term), {term}, std::move(linear)};
}

class Concat final : public Movement {
 public:
  explicit Concat(std::size_t dim) : dim_(dim) {}

  std::string_view name() const override { return "concat"; }
  std::string attributes() const override { return std::to_string(dim_); }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    ValueType result = inputs[0];
    for (const ValueType& input : inputs.subspan(1)) {
      Shape expected = result.shape;
      if (input.shape.rank() == expected.rank()) expected[dim_] = input.shape[dim_];
      if (!(expected == input.shape) || input.dtype != result.dtype) {
        throw Error(Error::Kind::config,
                    fmt::format("concat along dimension {}: {} {} does not go with {} {}", dim_,
                                name_of(input.dtype), to_string(input.shape), name_of(result.dtype),
                                to_string(inputs[0].shape)));
      }
      result.shape[dim_] += input.shape[dim_];
    }
    return {result};
  }

  Rule rule(std::span<const ValueType> inputs,
            std::span<const ValueType> /*outputs*/) const override {
    const std::uint32_t all = 0xFFFFFFFFU >> (kMaxParts - inputs.size());
    return rule_around(inputs[0].shape.rank(), dim_, inputs.size(), {all});
  }

  std::vector<ValueId> gradient(const GradientCall& call) const override {
    const SymbolicTensor dy = call.builder.wrap(call.output_gradients[0]);
    std::vector<ValueId> gradients(call.inputs.size(), kNoValue);
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      const std::int64_t size = call.builder.graph().type(call.inputs[i]).shape[dim_];
      if (call.wanted[i]) gradients[i] = slice(dy, static_cast<int>(dim_), begin, size).id;
      begin += size;
    }
    return gradients;
  }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    const Shape& out = call.outputs[0].shape();
    std::vector<CopyPart> parts;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      const Shape& in = call.inputs[i].shape();
      if (in.elements() > 0) {
        parts.push_back(box_copy(static_cast<int>(i), in, 0, out, begin, in, dim_,
                                 size_of(call.outputs[0].dtype)));
      }
      begin += in[dim_];
    }
    return copy_kernel(std::move(parts), device);
  }

 private:
  std::size_t dim_;
};

class Slice final : public Movement {
 public:
  Slice(std::size_t dim, std::int64_t begin, std::int64_t size)
      : dim_(dim), begin_(begin), size_(size) {}

  std::string_view name() const override { return "slice"; }
  bool only_moves() const override { return true; }
  std::string attributes() const override { return fmt::format("{}:{}+{}", dim_, begin_, size_); }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    ValueType result = inputs[0];
    if (begin_ < 0 || size_ < 0 || begin_ + size_ > result.shape[dim_]) {
      throw Error(Error::Kind::config,
                  fmt::format("slice: elements {}..{} of dimension {} are not all in shape {}",
                              begin_, begin_ + size_ - 1, dim_, to_string(result.shape)));
    }
    result.shape[dim_] = size_;
    return {result};
  }

  Rule rule(std::span<const ValueType> inputs,
            std::span<const ValueType> /*outputs*/) const override {
    return rule_around(inputs[0].shape.rank(), dim_, 1, {0b1});
  }

  std::vector<ValueId> gradient(const GradientCall& call) const override {
    const std::int64_t whole = call.builder.graph().type(call.inputs[0]).shape[dim_];
    return {pad(call.builder.wrap(call.output_gradients[0]), static_cast<int>(dim_), begin_,
                whole - begin_ - size_)
                .id};
  }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    const Shape& out = call.outputs[0].shape();
    if (out.elements() == 0) return copy_kernel({}, device);
    return copy_kernel({box_copy(0, call.inputs[0].shape(), begin_, out, 0, out, dim_,
                                 size_of(call.outputs[0].dtype))},
                       device);
  }

 private:
  std::size_t dim_;
  std::int64_t begin_;
  std::int64_t size_;
};

class Pad final : public Movement {
 public:
  Pad(std::size_t dim, std::int64_t before, std::int64_t after, double value)
      : dim_(dim), before_(before), after_(after), value_(value) {}

  std::string_view name() const override { return "pad"; }
  std::string attributes() const override {
    return fmt::format("{}:{}+{}={}", dim_, before_, after_, value_);
  }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    ValueType result = inputs[0];
    if (before_ < 0 || after_ < 0) {
      throw Error(Error::Kind::config,
                  fmt::format("pad: negative widths {} and {}", before_, after_));
    }
    result.shape[dim_] += before_ + after_;
    return {result};
  }

  Rule rule(std::span<const ValueType> inputs,
            std::span<const ValueType> /*outputs*/) const override {
    std::vector<std::uint32_t> linear;
    if (value_ == 0.0) linear.push_back(0b1);
    return rule_around(inputs[0].shape.rank(), dim_, 1, linear);
  }

  std::vector<ValueId> gradient(const GradientCall& call) const override {
    const std::int64_t size = call.builder.graph().type(call.inputs[0]).shape[dim_];
    return {
        slice(call.builder.wrap(call.output_gradients[0]), static_cast<int>(dim_), before_, size)
            .id};
  }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    const Shape& in = call.inputs[0].shape();
    const Shape& out = call.outputs[0].shape();
    const std::size_t element_size = size_of(call.outputs[0].dtype);
    std::vector<CopyPart> parts;
    const auto fill = [&](std::int64_t begin, std::int64_t width) {
      Shape size = out;
      size[dim_] = width;
      if (size.elements() > 0) parts.push_back(box_fill(out, begin, size, dim_, element_size));
    };
    fill(0, before_);
    if (in.elements() > 0) {
      parts.push_back(box_copy(0, in, 0, out, before_, in, dim_, element_size));
    }
    fill(before_ + in[dim_], after_);
    return copy_kernel(std::move(parts), device, element_bits(value_, call.outputs[0].dtype));
  }

 private:
  std::size_t dim_;
  std::int64_t before_;
  std::int64_t after_;
  double value_;
};

SymbolicTensor add_unary(SymbolicTensor x, std::shared_ptr<const graph::Op> op) {
  const std::array<SymbolicTensor, 1> inputs{x};
  return x.builder->add_one(std::move(op), inputs);
}

}  // namespace

SymbolicTensor transpose(SymbolicTensor x, std::vector<int> permutation) {
  std::vector<bool> seen(x.rank(), false);
  bool identity = true;
  bool valid = permutation.size() == x.rank();
  for (std::size_t i = 0; valid && i < permutation.size(); ++i) {
    permutation[i] = static_cast<int>(dim_of(permutation[i], x.shape(), "transpose"));
    const auto dim = static_cast<std::size_t>(permutation[i]);
    valid = !seen[dim];
    seen[dim] = true;
    identity = identity && dim == i;
  }
  if (!valid) {
    throw Error(Error::Kind::config,
                fmt::format("transpose: ({}) does not permute the dimensions of {}",
                            fmt::join(permutation, ", "), to_string(x.shape())));
  }
  return identity ? x : add_unary(x, std::make_shared<Transpose>(std::move(permutation)));
}

SymbolicTensor broadcast_to(SymbolicTensor x, Shape shape) {
  return shape == x.shape() ? x : add_unary(x, std::make_shared<BroadcastTo>(shape));
}

SymbolicTensor concat(const std::vector<SymbolicTensor>& parts, int dim) {
  if (parts.empty()) throw Error(Error::Kind::config, "concat: there is nothing to join");
  if (parts.size() == 1) return parts.front();
  if (parts.size() > kMaxParts) {
    const std::size_t group = (parts.size() + kMaxParts - 1) / kMaxParts;
    std::vector<SymbolicTensor> joined;
    for (std::size_t i = 0; i < parts.size(); i += group) {
      const auto begin = parts.begin() + static_cast<std::ptrdiff_t>(i);
      const std::size_t count = std::min(group, parts.size() - i);
      joined.push_back(concat({begin, begin + static_cast<std::ptrdiff_t>(count)}, dim));
    }
    return concat(joined, dim);
  }
  return parts.front().builder->add_one(
      std::make_shared<Concat>(dim_of(dim, parts.front().shape(), "concat")), parts);
}

SymbolicTensor slice(SymbolicTensor x, int dim, std::int64_t begin, std::int64_t size) {
  const std::size_t at = dim_of(dim, x.shape(), "slice");
  if (begin == 0 && size == x.shape()[at]) return x;
  return add_unary(x, std::make_shared<Slice>(at, begin, size));
}

SymbolicTensor pad(SymbolicTensor x, int dim, std::int64_t before, std::int64_t after,
                   double value) {
  const std::size_t at = dim_of(dim, x.shape(), "pad");
  if (before == 0 && after == 0) return x;
  return add_unary(x, std::make_shared<Pad>(at, before, after, value));
}

}  // namespace tessera::ops
