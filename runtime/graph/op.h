// What an operation is: shapes, sharding rule, gradient, cost and how it runs. Nothing else
// switches on op types, but the compiler's fusion knows element-wise programs, products and
// constants.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "kernels/device.h"
#include "runtime/graph/rule.h"

namespace tessera::graph {

class Builder;
using ValueId = std::int32_t;
inline constexpr ValueId kNoValue = -1;

/// Global (unsharded) type of a value.
struct ValueType {
  Shape shape;
  DType dtype = DType::float32;
  friend bool operator==(const ValueType& a, const ValueType& b) = default;
};

/// One operand or result as a rank sees it: the global shape and the box of it that lies in memory,
/// dense and row-major.
struct LocalTensor {
  Shape global;
  Box box;
  DType dtype = DType::float32;
  const Shape& shape() const { return box.size; }
  std::int64_t bytes() const { return box.elements() * static_cast<std::int64_t>(size_of(dtype)); }
};

/// One call of an op on one rank.
struct LocalCall {
  std::vector<LocalTensor> inputs;
  std::vector<LocalTensor> outputs;
};

/// What changes from step to step without being a tensor.
struct StepState {
  std::uint64_t step = 0;  // training steps done before this one: the counter of random streams
};

/// A prepared call: everything that can be decided once has been. Pointers are the local parts, in
/// the order of the call. An empty part may be a null pointer.
using Kernel = std::function<void(const void* const* inputs, void* const* outputs, void* workspace,
                                  const StepState& step)>;

/// A rule by which nothing is cut: of ops that are made when placements are decided.
Rule uncut_rule(std::span<const ValueType> inputs, std::span<const ValueType> outputs);

/// What `gradient` gets. `output_gradients[i]` is kNoValue where no gradient arrives.
struct GradientCall {
  Builder& builder;
  std::span<const ValueId> inputs;
  std::span<const ValueId> outputs;
  std::span<const ValueId> output_gradients;
  std::span<const bool> wanted;  // per input: is its gradient needed?
};

/// Immutable; attributes are members. A function of its operands and the step: equal nodes are
/// merged, unread ones removed (random draws keep their stream key among the attributes).
/// Implementations live in runtime/ops, one file per family.
class Op {
 public:
  virtual ~Op() = default;

  /// Short snake_case name: "einsum".
  virtual std::string_view name() const = 0;
  /// Attributes as text, unique among ops of this name: part of the plan's hash, of dumps and of
  /// common-subexpression keys.
  virtual std::string attributes() const { return ""; }
  /// Result types. Throws config with shapes when the operands do not fit.
  virtual std::vector<ValueType> infer(std::span<const ValueType> inputs) const = 0;
  /// Which dimensions may be cut together, and where pending sums may pass.
  virtual Rule rule(std::span<const ValueType> inputs,
                    std::span<const ValueType> outputs) const = 0;
  /// Adds backward nodes; returns one gradient per input, kNoValue where there is none (integers,
  /// not wanted).
  virtual std::vector<ValueId> gradient(const GradientCall& call) const = 0;
  /// Floating-point operations of one call with these (local) shapes; multiply and add count as
  /// two.
  virtual double flops(const LocalCall& call) const;
  /// Bytes of scratch memory of one call; planned into the arena.
  virtual std::int64_t workspace_bytes(const LocalCall& call) const;
  /// Output i may be computed in the memory of input j when that input is not needed afterwards
  /// (same local shape, same size of element). Default: never.
  virtual bool may_overwrite(std::size_t output, std::size_t input) const;
  /// True when the result is the operand's memory under another shape (reshape): the compiler lets
  /// them share it and never runs the op.
  virtual bool is_view() const { return false; }
  /// True when every element of a result is an element of the one operand: a constant operand gives
  /// constant results.
  virtual bool only_moves() const { return is_view(); }
  /// True when the result is the operand repeated as NumPy broadcasts: element-wise readers can
  /// take the operand itself.
  virtual bool is_broadcast() const { return false; }
  /// The same op with results of this dtype, rounded once at the end: the compiler asks ops that
  /// add up for float32 where 16 bits would round the terms of a sum before they meet. Default:
  /// null, there is none.
  virtual std::shared_ptr<const Op> with_result(DType dtype) const;
  /// Decides algorithm, strides and constants once.
  virtual Kernel prepare(const LocalCall& call, const kernels::Device& device) const = 0;
};

}  // namespace tessera::graph
