// Reshape: the same elements in the same order under another shape; expand_dims and squeeze are
// reshapes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

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

/// Gives the dimensions begin..end-1 of one side of a group their letters: the outermost that is
/// larger than 1 carries `factor`, the others stay whole.
void label(std::string& term, const Shape& shape, std::size_t begin, std::size_t end, char factor,
           char& whole) {
  bool carried = false;
  for (std::size_t dim = begin; dim < end; ++dim) {
    if (shape[dim] == 1) {
      term[dim] = '.';
    } else if (!carried) {
      term[dim] = factor;
      carried = true;
    } else {
      term[dim] = whole++;
    }
  }
}

/// Splits both shapes into the smallest groups of neighbours with equal products. Where a tensor is
/// empty only leading dimensions that agree can be told apart.
Rule reshape_rule(const Shape& from, const Shape& to) {
  std::string in(from.rank(), 'Z');
  std::string out(to.rank(), 'Z');
  char factor = 'a';
  char whole = 'A';
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < from.rank() && j < to.rank()) {
    std::size_t i_end = i + 1;
    std::size_t j_end = j + 1;
    std::int64_t in_product = from[i];
    std::int64_t out_product = to[j];
    while (in_product != out_product) {
      const bool grow_in = in_product < out_product;
      if (grow_in ? i_end == from.rank() : j_end == to.rank()) return {{in}, {out}, {0b1}};
      if (grow_in) {
        in_product *= from[i_end++];
      } else {
        out_product *= to[j_end++];
      }
    }
    label(in, from, i, i_end, factor, whole);
    label(out, to, j, j_end, factor, whole);
    if (in_product != 1) ++factor;
    i = i_end;
    j = j_end;
  }
  label(in, from, i, from.rank(), 'Z', whole);
  label(out, to, j, to.rank(), 'Z', whole);
  return {{in}, {out}, {0b1}};
}

class Reshape final : public graph::Op {
 public:
  explicit Reshape(Shape shape) : shape_(shape) {}

  std::string_view name() const override { return "reshape"; }
  std::string attributes() const override { return to_string(shape_); }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    if (inputs[0].shape.elements() != shape_.elements()) {
      throw Error(Error::Kind::config,
                  fmt::format("reshape: {} has {} elements, {} has {}", to_string(inputs[0].shape),
                              inputs[0].shape.elements(), to_string(shape_), shape_.elements()));
    }
    return {{shape_, inputs[0].dtype}};
  }

  Rule rule(std::span<const ValueType> inputs,
            std::span<const ValueType> /*outputs*/) const override {
    return reshape_rule(inputs[0].shape, shape_);
  }

  std::vector<ValueId> gradient(const GradientCall& call) const override {
    const SymbolicTensor dy = call.builder.wrap(call.output_gradients[0]);
    return {reshape(dy, call.builder.graph().type(call.inputs[0]).shape).id};
  }

  double flops(const LocalCall& /*call*/) const override { return 0.0; }

  bool may_overwrite(std::size_t /*output*/, std::size_t /*input*/) const override { return true; }

  bool is_view() const override { return true; }

  Kernel prepare(const LocalCall& call, const kernels::Device& /*device*/) const override {
    const std::size_t bytes =
        static_cast<std::size_t>(call.outputs[0].box.elements()) * size_of(call.outputs[0].dtype);
    return [bytes](const void* const* inputs, void* const* outputs, void* /*workspace*/,
                   const graph::StepState& /*step*/) {
      if (bytes > 0 && inputs[0] != outputs[0]) std::memcpy(outputs[0], inputs[0], bytes);
    };
  }

 private:
  Shape shape_;
};

}  // namespace

SymbolicTensor reshape(SymbolicTensor x, Shape shape) {
  std::int64_t known = 1;
  int open = -1;
  for (std::size_t dim = 0; dim < shape.rank(); ++dim) {
    if (shape[dim] != -1) {
      known *= shape[dim];
    } else if (open < 0) {
      open = static_cast<int>(dim);
    } else {
      throw Error(Error::Kind::config,
                  fmt::format("reshape: {} leaves more than one size open", to_string(shape)));
    }
  }
  if (open >= 0) {
    const std::int64_t elements = x.shape().elements();
    if (known == 0 || elements % known != 0) {
      throw Error(Error::Kind::config, fmt::format("reshape: {} does not fit into {}",
                                                   to_string(x.shape()), to_string(shape)));
    }
    shape[static_cast<std::size_t>(open)] = elements / known;
  }
  if (shape == x.shape()) return x;
  const std::array<SymbolicTensor, 1> inputs{x};
  return x.builder->add_one(std::make_shared<Reshape>(shape), inputs);
}

SymbolicTensor expand_dims(SymbolicTensor x, int dim) {
  const auto rank = static_cast<int>(x.rank());
  if (dim < -rank - 1 || dim > rank) {
    throw Error(Error::Kind::config,
                fmt::format("expand_dims: a dimension cannot be put at {} of shape {}", dim,
                            to_string(x.shape())));
  }
  const int at = dim < 0 ? dim + rank + 1 : dim;
  Shape shape;
  for (int i = 0; i <= rank; ++i) {
    if (i == at) shape.push_back(1);
    if (i < rank) shape.push_back(x.shape()[static_cast<std::size_t>(i)]);
  }
  return reshape(x, shape);
}

SymbolicTensor squeeze(SymbolicTensor x, int dim) {
  const std::size_t at = dim_of(dim, x.shape(), "squeeze");
  if (x.shape()[at] != 1) {
    throw Error(Error::Kind::config, fmt::format("squeeze: dimension {} of shape {} is not 1", dim,
                                                 to_string(x.shape())));
  }
  Shape shape;
  for (std::size_t i = 0; i < x.rank(); ++i) {
    if (i != at) shape.push_back(x.shape()[i]);
  }
  return reshape(x, shape);
}

}  // namespace tessera::ops
