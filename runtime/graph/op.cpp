// What ops do unless they say otherwise.
#include "runtime/graph/op.h"

namespace tessera::graph {

Rule uncut_rule(std::span<const ValueType> inputs, std::span<const ValueType> outputs) {
  Rule rule;
  for (const ValueType& type : inputs) rule.operands.emplace_back(type.shape.rank(), '.');
  for (const ValueType& type : outputs) rule.results.emplace_back(type.shape.rank(), '.');
  return rule;
}

double Op::flops(const LocalCall& call) const {
  double elements = 0;
  for (const LocalTensor& output : call.outputs)
    elements += static_cast<double>(output.box.elements());
  return elements;
}

std::int64_t Op::workspace_bytes(const LocalCall& /*call*/) const { return 0; }

std::shared_ptr<const Op> Op::with_result(DType /*dtype*/) const { return nullptr; }

bool Op::may_overwrite(std::size_t /*output*/, std::size_t /*input*/) const { return false; }

}  // namespace tessera::graph
