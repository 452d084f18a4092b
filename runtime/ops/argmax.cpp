// Index of the first largest or smallest element along a dimension.
#include "kernels/argmax.h"

#include <fmt/format.h>

#include <limits>

#include "base/error.h"
#include "runtime/ops/dims.h"
#include "runtime/ops/ops.h"

namespace tessera::ops {
namespace {

using graph::kNoValue;
using graph::LocalCall;
using graph::ValueType;

class ArgmaxOp final : public graph::Op {
 public:
  ArgmaxOp(bool smallest, std::size_t dim) : smallest_(smallest), dim_(dim) {}

  std::string_view name() const override { return smallest_ ? "argmin" : "argmax"; }
  std::string attributes() const override { return fmt::format("dim {}", dim_); }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    const Shape& shape = inputs[0].shape;
    if (shape[dim_] == 0 || shape[dim_] > std::numeric_limits<std::int32_t>::max()) {
      throw Error(Error::Kind::config,
                  fmt::format("{} over dimension {} of {}: its size must be at least 1 and fit "
                              "into 31 bits",
                              name(), dim_, to_string(shape)));
    }
    Shape result;
    for (std::size_t dim = 0; dim < shape.rank(); ++dim) {
      if (dim != dim_) result.push_back(shape[dim]);
    }
    return {{result, DType::int32}};
  }

  graph::Rule rule(std::span<const ValueType> inputs,
                   std::span<const ValueType> /*outputs*/) const override {
    std::string operand;
    std::string result;
    for (std::size_t dim = 0; dim < inputs[0].shape.rank(); ++dim) {
      operand.push_back(static_cast<char>((dim == dim_ ? 'A' : 'a') + static_cast<int>(dim)));
      if (dim != dim_) result.push_back(operand.back());
    }
    return {{operand}, {result}, {}};
  }

  std::vector<graph::ValueId> gradient(const graph::GradientCall& /*call*/) const override {
    return {kNoValue};
  }
  double flops(const LocalCall& call) const override {
    return static_cast<double>(call.inputs[0].box.elements());
  }

  graph::Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    const Shape& shape = call.inputs[0].shape();
    kernels::ArgmaxArgs args{smallest_, 1, shape[dim_], 1, call.inputs[0].dtype};
    for (std::size_t dim = 0; dim < dim_; ++dim) args.outer *= shape[dim];
    for (std::size_t dim = dim_ + 1; dim < shape.rank(); ++dim) args.inner *= shape[dim];
    return std::visit(
        [&](const auto& which) -> graph::Kernel {
          return [kernel = kernels::prepare_argmax(args, which)](
                     const void* const* inputs, void* const* outputs, void* /*workspace*/,
                     const graph::StepState& /*step*/) {
            kernel(inputs[0], static_cast<std::int32_t*>(outputs[0]));
          };
        },
        device);
  }

 private:
  bool smallest_;
  std::size_t dim_;
};

SymbolicTensor add_argmax(bool smallest, SymbolicTensor x, int dim) {
  const std::size_t which = dim_of(dim, x.shape(), smallest ? "argmin" : "argmax");
  return x.builder->add_one(std::make_shared<const ArgmaxOp>(smallest, which), {{x}});
}

}  // namespace

SymbolicTensor argmax(SymbolicTensor x, int dim) { return add_argmax(false, x, dim); }
SymbolicTensor argmin(SymbolicTensor x, int dim) { return add_argmax(true, x, dim); }

}  // namespace tessera::ops
