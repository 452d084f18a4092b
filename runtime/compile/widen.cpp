// Sums in 16 bits as sums in 32 and casts.
#include "runtime/compile/widen.h"

#include <memory>
#include <utility>
#include <vector>

#include "runtime/ops/map.h"

namespace tessera::compile {
namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Value;
using graph::ValueId;

bool has_16_bits(DType dtype) { return is_floating(dtype) && size_of(dtype) == 2; }

std::shared_ptr<const graph::Op> make_cast(DType from, DType to) {
  kernels::MapProgram program;
  program.steps.push_back({kernels::MapCode::copy, {}});
  program.results.push_back(0);
  return ops::make_map(std::move(program), {&from, 1}, {to});
}

class Widening {
 public:
  explicit Widening(Graph& graph) : graph_(graph), only_reader_(graph.values.size(), kNobody) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const ValueId input : graph.nodes[i].inputs) note(input, static_cast<NodeId>(i));
    }
    for (const graph::Assignment& assignment : graph.assignments) note(assignment.value, kMany);
    for (const graph::Output& output : graph.outputs) note(output.value, kMany);
  }

  void run() {
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    std::vector<bool> dropped(nodes.size(), false);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (dropped[i]) continue;
      Node& node = nodes[i];
      std::shared_ptr<const graph::Op> wide = wide_form(node);
      if (wide == nullptr) {
        graph_.nodes.push_back(std::move(node));
        continue;
      }
      const ValueId rounded = node.outputs.front();
      const NodeId reader = only_reader_[static_cast<std::size_t>(rounded)];
      node.op = std::move(wide);
      if (reader >= 0 && undoes(nodes[static_cast<std::size_t>(reader)], node)) {
        node.outputs = nodes[static_cast<std::size_t>(reader)].outputs;
        dropped[static_cast<std::size_t>(reader)] = true;
        graph_.nodes.push_back(std::move(node));
      } else {
        add_with_cast(std::move(node), rounded);
      }
    }
  }

 private:
  static constexpr NodeId kNobody = -1;
  static constexpr NodeId kMany = -2;  // or an output or an assignment

  void note(ValueId value, NodeId reader) {
    NodeId& known = only_reader_[static_cast<std::size_t>(value)];
    known = known == kNobody || known == reader ? reader : kMany;
  }

  std::shared_ptr<const graph::Op> wide_form(const Node& node) const {
    if (node.outputs.size() != 1 || !has_16_bits(graph_.type(node.outputs.front()).dtype)) {
      return nullptr;
    }
    return node.op->with_result(DType::float32);
  }

  /// Is the reader a cast of the sum to float32, which then is the sum itself? What has a name or a
  /// placement is kept.
  bool undoes(const Node& reader, const Node& sum) const {
    const auto* map = dynamic_cast<const ops::MapOp*>(reader.op.get());
    return map != nullptr && reader.phase == sum.phase && map->program().steps.size() == 1 &&
           map->program().steps.front().code == kernels::MapCode::copy &&
           graph_.type(reader.outputs.front()).dtype == DType::float32 &&
           !graph_.value(sum.outputs.front()).pin && graph_.value(sum.outputs.front()).path.empty();
  }

  void add_with_cast(Node sum, ValueId rounded) {
    Value value;
    value.type = {graph_.type(rounded).shape, DType::float32};
    graph_.values.push_back(std::move(value));
    const auto whole = static_cast<ValueId>(graph_.values.size() - 1);
    Node cast;
    cast.op = make_cast(DType::float32, graph_.type(rounded).dtype);
    cast.inputs = {whole};
    cast.outputs = {rounded};
    cast.path = sum.path;
    cast.phase = sum.phase;
    sum.outputs = {whole};
    graph_.nodes.push_back(std::move(sum));
    graph_.nodes.push_back(std::move(cast));
  }

  Graph& graph_;
  std::vector<NodeId> only_reader_;  // by value
};

}  // namespace

void widen_sums(Graph& graph) { Widening(graph).run(); }

}  // namespace tessera::compile
