// Backwards over the nodes; contributions to a value are added up as they come.
#include "runtime/ops/gradients.h"

#include "base/error.h"
#include "runtime/ops/ops.h"

namespace tessera::ops {
namespace {

using graph::Builder;
using graph::kNoValue;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::SymbolicTensor;
using graph::ValueId;

/// Per value: does it depend on a target?
std::vector<bool> dependents(const graph::Graph& graph, std::span<const SymbolicTensor> targets) {
  std::vector<bool> depends(graph.values.size(), false);
  for (const SymbolicTensor target : targets) depends[static_cast<std::size_t>(target.id)] = true;
  for (const Node& node : graph.nodes) {
    bool any = false;
    for (const ValueId input : node.inputs) any = any || depends[static_cast<std::size_t>(input)];
    if (!any) continue;
    for (const ValueId output : node.outputs) {
      depends[static_cast<std::size_t>(output)] = is_floating(graph.type(output).dtype);
    }
  }
  return depends;
}

class Walk {
 public:
  Walk(Builder& builder, std::span<const SymbolicTensor> targets)
      : builder_(builder),
        depends_(dependents(builder.graph(), targets)),
        gradients_(builder.graph().values.size(), kNoValue) {}

  void run(SymbolicTensor loss, SymbolicTensor seed) {
    const auto nodes = static_cast<NodeId>(builder_.graph().nodes.size());
    accumulate(loss.id, seed.id);
    for (NodeId id = nodes; id-- > 0;) visit(id);
  }

  SymbolicTensor gradient_of(SymbolicTensor target) const {
    return {&builder_, gradients_[static_cast<std::size_t>(target.id)]};
  }

 private:
  void accumulate(ValueId value, ValueId contribution) {
    ValueId& known = gradients_[static_cast<std::size_t>(value)];
    known =
        known == kNoValue ? contribution : (builder_.wrap(known) + builder_.wrap(contribution)).id;
  }

  void visit(NodeId id) {
    // A copy: adding nodes moves the graph's vector.
    const Node node = builder_.graph().nodes[static_cast<std::size_t>(id)];
    std::vector<ValueId> arriving;
    bool any = false;
    for (const ValueId output : node.outputs) {
      const ValueId gradient = depends_[static_cast<std::size_t>(output)]
                                   ? gradients_[static_cast<std::size_t>(output)]
                                   : kNoValue;
      arriving.push_back(gradient);
      any = any || gradient != kNoValue;
    }
    if (!any) return;
    const std::unique_ptr<bool[]> wanted(new bool[node.inputs.size()]);
    bool anything_wanted = false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      wanted[i] = depends_[static_cast<std::size_t>(node.inputs[i])];
      anything_wanted = anything_wanted || wanted[i];
    }
    if (!anything_wanted) return;
    const Builder::Scope path(builder_, Builder::AbsolutePath{node.path});
    const std::vector<ValueId> results = node.op->gradient(
        {builder_, node.inputs, node.outputs, arriving, {wanted.get(), node.inputs.size()}});
    check(results.size() == node.inputs.size(), "an op's gradient must have one entry per input");
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (wanted[i] && results[i] != kNoValue) accumulate(node.inputs[i], results[i]);
    }
  }

  Builder& builder_;
  std::vector<bool> depends_;
  std::vector<ValueId> gradients_;
};

}  // namespace

std::vector<SymbolicTensor> gradients(Builder& builder, SymbolicTensor loss,
                                      std::span<const SymbolicTensor> targets,
                                      SymbolicTensor seed) {
  check(loss.shape().empty(), "the gradient walk starts at a scalar");
  const Builder::Scope backward(builder, Phase::backward);
  // Before the walk, which knows the values that exist when it begins.
  if (!seed) seed = full(builder, {}, 1.0, loss.dtype());
  Walk walk(builder, targets);
  walk.run(loss, seed);
  std::vector<SymbolicTensor> found;
  for (const SymbolicTensor target : targets) {
    const SymbolicTensor gradient = walk.gradient_of(target);
    found.push_back(gradient ? gradient : SymbolicTensor{});
  }
  return found;
}

}  // namespace tessera::ops
