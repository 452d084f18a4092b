// Einstein sums: matrix products in every arrangement of dimensions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/builder.h"
#include "runtime/ops/einsum_plan.h"
#include "runtime/ops/map_codes.h"

namespace tessera::ops {

/// What is done to the result before it is stored. Only where no sum is pending: the graph gets
/// these by fusion, after sharding.
struct Epilogue {
  /// The op has a third operand, added along the trailing dimensions of the result, which must be
  /// dimensions of the second operand alone ("...k,kn->...n" and a bias [n]).
  bool bias = false;
  /// Applied last. See kernels::can_fuse_activation.
  std::optional<MapCode> activation;
  friend bool operator==(const Epilogue& a, const Epilogue& b) = default;
};

/// A sum of products of two operands over the letters that the result lacks. Every letter stands in
/// at least two of the three terms (`einsum` sums others away first). Accumulates in float32, or in
/// float64 for float64.
class EinsumOp final : public graph::Op {
 public:
  /// `equation`: "abk,kn->abn", letters a-z, none twice in a term. Throws config otherwise.
  EinsumOp(std::string_view equation, DType result, Epilogue epilogue = {});

  /// Terms of the operands and of the result.
  const std::string& a() const { return a_; }
  const std::string& b() const { return b_; }
  const std::string& c() const { return c_; }
  std::string equation() const { return a_ + "," + b_ + "->" + c_; }
  DType result() const { return result_; }
  const Epilogue& epilogue() const { return epilogue_; }
  /// Letters at the end of the result that only the second operand has: those of a bias. Empty:
  /// none can be fused.
  std::string bias_letters() const;
  /// The same product with an epilogue.
  std::shared_ptr<const EinsumOp> with(DType result, Epilogue epilogue) const;

  std::string_view name() const override { return "einsum"; }
  std::shared_ptr<const graph::Op> with_result(DType dtype) const override;
  std::string attributes() const override;
  std::vector<graph::ValueType> infer(std::span<const graph::ValueType> inputs) const override;
  graph::Rule rule(std::span<const graph::ValueType> inputs,
                   std::span<const graph::ValueType> outputs) const override;
  /// Without epilogue only: gradients are taken before fusion.
  std::vector<graph::ValueId> gradient(const graph::GradientCall& call) const override;
  double flops(const graph::LocalCall& call) const override;
  std::int64_t workspace_bytes(const graph::LocalCall& call) const override;
  graph::Kernel prepare(const graph::LocalCall& call, const kernels::Device& device) const override;

 private:
  std::string a_;
  std::string b_;
  std::string c_;
  DType result_;
  Epilogue epilogue_;
};

/// The matrix product of a call.
EinsumPlan plan_of(const EinsumOp& op, const graph::LocalCall& call);

}  // namespace tessera::ops
