// Sums in 16 bits as sums in 32 and casts.
#include "runtime/compile/widen.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/compile/uses.h"
#include "runtime/ops/map.h"

namespace tessera::compile {
namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Value;
using graph::ValueId;

bool has_16_bits(DType dtype) { return is_floating(dtype) && size_of(dtype) == 2; }

class Widening {
 public:
  Widening(Graph& graph, bool sums_may_pend)
      : graph_(graph), sums_may_pend_(sums_may_pend), only_reader_(graph.values.size(), kNobody) {
    for (std::size_t i = 0; i < graph.values.size(); ++i) {
      is_gradient_.push_back(is_gradient(graph, static_cast<ValueId>(i)));
    }
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
      const std::shared_ptr<const graph::Op> wide = wide_form(node);
      const NodeId reader =
          wide == nullptr ? kNobody : only_reader_[static_cast<std::size_t>(node.outputs.front())];
      if (reader >= 0 && undoes(nodes[static_cast<std::size_t>(reader)], node)) {
        node.op = wide;
        node.outputs = nodes[static_cast<std::size_t>(reader)].outputs;
        dropped[static_cast<std::size_t>(reader)] = true;
        add(std::move(node));
      } else if (wide != nullptr && sums_may_pend_) {
        node.op = wide;
        add_with_cast(std::move(node));
      } else {
        add(std::move(node));
      }
    }
    for (auto& [value, cast] : late_) graph_.nodes.push_back(std::move(cast));
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

  /// Casts that wait for their first reader come before it.
  void add(Node node) {
    for (const ValueId input : node.inputs) {
      const auto cast = late_.find(input);
      if (cast == late_.end()) continue;
      graph_.nodes.push_back(std::move(cast->second));
      late_.erase(cast);
    }
    graph_.nodes.push_back(std::move(node));
  }

  void add_with_cast(Node sum) {
    const ValueId rounded = sum.outputs.front();
    const ValueId whole = new_value(rounded);
    sum.outputs.front() = whole;
    Node cast;
    cast.op = ops::make_cast(DType::float32, graph_.type(rounded).dtype);
    cast.inputs = {whole};
    cast.outputs = {rounded};
    cast.path = sum.path;
    cast.phase = sum.phase;
    const bool late = is_gradient_[static_cast<std::size_t>(rounded)];
    if (late) {
      // It is reduced right after it is made, to where the update wants it, and reports name that.
      graph_.value(whole).path = std::exchange(graph_.value(rounded).path, "");
      graph_.value(whole).pin = graph_.value(rounded).pin;
      cast.phase = graph::Phase::update;
    }
    add(std::move(sum));
    if (late) {
      late_.emplace(rounded, std::move(cast));
    } else {
      graph_.nodes.push_back(std::move(cast));
    }
  }

  ValueId new_value(ValueId like) {
    Value value;
    value.type = {graph_.type(like).shape, DType::float32};
    graph_.values.push_back(std::move(value));
    return static_cast<ValueId>(graph_.values.size() - 1);
  }

  Graph& graph_;
  const bool sums_may_pend_;
  std::vector<NodeId> only_reader_;  // by value
  std::vector<bool> is_gradient_;    // by value, of a variable
  std::map<ValueId, Node> late_;     // casts by what they make
};

}  // namespace

void widen_sums(Graph& graph, bool sums_may_pend) { Widening(graph, sums_may_pend).run(); }

}  // namespace tessera::compile
