// Strided copies, plain copies and zeros.
#include "runtime/compile/local_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <variant>

#include "base/error.h"
#include "kernels/strided_copy.h"

namespace tessera::compile {
namespace {

using graph::Kernel;
using graph::LocalCall;
using graph::Rule;
using graph::StepState;
using graph::ValueId;
using graph::ValueType;

/// What all of them share: they appear after propagation and differentiation, on local shapes.
class LocalOp : public graph::Op {
 public:
  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    return {inputs.begin(), inputs.end()};
  }
  Rule rule(std::span<const ValueType> inputs, std::span<const ValueType> outputs) const override {
    return graph::uncut_rule(inputs, outputs);
  }
  std::vector<ValueId> gradient(const graph::GradientCall& call) const override {
    throw Error(Error::Kind::internal,
                fmt::format("{} is made by the compiler and has no gradient ({} operands)", name(),
                            call.inputs.size()));
  }
  double flops(const LocalCall& /*call*/) const override { return 0; }
};

/// One box, prepared.
struct Part {
  kernels::StridedCopy plan;
  std::int64_t source = 0;  // bytes
  std::int64_t target = 0;
};

class MoveOp final : public LocalOp {
 public:
  MoveOp(std::string name, std::vector<BoxCopy> copies)
      : name_(std::move(name)), copies_(std::move(copies)) {}

  std::string_view name() const override { return name_; }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    const std::size_t element = size_of(call.inputs[0].dtype);
    std::vector<Part> parts;
    for (const BoxCopy& copy : copies_) {
      if (copy.size.elements() == 0) continue;
      parts.push_back(
          {kernels::plan_strided_copy(copy.size, copy.source_strides, copy.target_strides, element),
           copy.source_offset * static_cast<std::int64_t>(element),
           copy.target_offset * static_cast<std::int64_t>(element)});
    }
    return std::visit(
        [&parts](const auto& here) -> Kernel {
          return [parts = std::move(parts), here](const void* const* inputs, void* const* outputs,
                                                  void* /*workspace*/, const StepState& /*step*/) {
            for (const Part& part : parts) {
              kernels::strided_copy(part.plan,
                                    static_cast<const std::byte*>(inputs[0]) + part.source,
                                    static_cast<std::byte*>(outputs[0]) + part.target, here);
            }
          };
        },
        device);
  }

 private:
  std::string name_;
  std::vector<BoxCopy> copies_;
};

class CopyOp final : public LocalOp {
 public:
  std::string_view name() const override { return "copy"; }
  bool may_overwrite(std::size_t /*output*/, std::size_t /*input*/) const override { return true; }

  Kernel prepare(const LocalCall& call, const kernels::Device& /*device*/) const override {
    const auto bytes = static_cast<std::size_t>(call.inputs[0].bytes());
    return [bytes](const void* const* inputs, void* const* outputs, void* /*workspace*/,
                   const StepState& /*step*/) {
      if (bytes > 0 && inputs[0] != outputs[0]) std::memcpy(outputs[0], inputs[0], bytes);
    };
  }
};

class OwnerOp final : public LocalOp {
 public:
  explicit OwnerOp(bool keeps) : keeps_(keeps) {}

  std::string_view name() const override { return "owner"; }
  bool may_overwrite(std::size_t /*output*/, std::size_t /*input*/) const override { return true; }

  Kernel prepare(const LocalCall& call, const kernels::Device& device) const override {
    if (keeps_) return CopyOp().prepare(call, device);
    const auto bytes = static_cast<std::size_t>(call.outputs[0].bytes());
    return [bytes](const void* const* /*inputs*/, void* const* outputs, void* /*workspace*/,
                   const StepState& /*step*/) {
      if (bytes > 0) std::memset(outputs[0], 0, bytes);
    };
  }

 private:
  bool keeps_;
};

std::int64_t offset_in(const Box& holder, const Box& part) {
  const Shape strides = holder.size.strides();
  std::int64_t offset = 0;
  for (std::size_t dim = 0; dim < strides.rank(); ++dim) {
    offset += (part.begin[dim] - holder.begin[dim]) * strides[dim];
  }
  return offset;
}

}  // namespace

BoxCopy copy_between(const Box& source, const Box& target, const Box& part) {
  return {part.size, offset_in(source, part), source.size.strides(), offset_in(target, part),
          target.size.strides()};
}

Box intersection(const Box& a, const Box& b) {
  Box both = a;
  for (std::size_t dim = 0; dim < a.begin.rank(); ++dim) {
    both.begin[dim] = std::max(a.begin[dim], b.begin[dim]);
    const std::int64_t end = std::min(a.begin[dim] + a.size[dim], b.begin[dim] + b.size[dim]);
    both.size[dim] = std::max<std::int64_t>(0, end - both.begin[dim]);
  }
  return both;
}

std::shared_ptr<const graph::Op> make_move(std::string name, std::vector<BoxCopy> copies) {
  return std::make_shared<MoveOp>(std::move(name), std::move(copies));
}

std::shared_ptr<const graph::Op> make_copy() { return std::make_shared<CopyOp>(); }

std::shared_ptr<const graph::Op> make_owner(bool keeps) { return std::make_shared<OwnerOp>(keeps); }

}  // namespace tessera::compile
