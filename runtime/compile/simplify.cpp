// Dead nodes and common subexpressions.
#include "runtime/compile/simplify.h"

#include <fmt/format.h>

#include <numeric>
#include <unordered_map>
#include <utility>

#include "runtime/compile/fold.h"
#include "runtime/compile/widen.h"

namespace tessera::compile {
namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Value;
using graph::ValueId;

std::vector<bool> live_values(const Graph& graph) {
  std::vector<bool> live(graph.values.size(), false);
  for (const graph::Assignment& assignment : graph.assignments) {
    live[static_cast<std::size_t>(assignment.value)] = true;
  }
  for (const graph::Output& output : graph.outputs) {
    live[static_cast<std::size_t>(output.value)] = true;
  }
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool wanted = false;
    for (const ValueId output : node.outputs) {
      wanted = wanted || live[static_cast<std::size_t>(output)];
    }
    if (!wanted) continue;
    for (const ValueId input : node.inputs) live[static_cast<std::size_t>(input)] = true;
  }
  return live;
}

/// Merging must not lose a name or a pin, nor give two of either to one value.
bool may_merge(const Value& kept, const Value& other) {
  const bool pins = !other.pin || (kept.pin && *kept.pin == *other.pin);
  const bool names = other.path.empty() || kept.path.empty() || kept.path == other.path;
  return pins && names;
}

class Simplification {
 public:
  Simplification(const Graph& source, bool sums_may_pend)
      : result_(source), sums_may_pend_(sums_may_pend) {}

  Graph run() {
    fold_constants(result_);
    skip_broadcasts(result_);
    widen_sums(result_, sums_may_pend_);
    same_.resize(result_.values.size());
    std::iota(same_.begin(), same_.end(), ValueId{0});
    const std::vector<bool> live = live_values(result_);
    std::vector<Node> nodes = std::exchange(result_.nodes, {});
    for (Value& value : result_.values) value.producer = -1;
    for (Node& node : nodes) {
      bool wanted = false;
      for (const ValueId output : node.outputs) {
        wanted = wanted || live[static_cast<std::size_t>(output)];
      }
      if (wanted) keep(std::move(node));
    }
    for (graph::Assignment& assignment : result_.assignments) {
      assignment.value = same_[static_cast<std::size_t>(assignment.value)];
    }
    for (graph::Output& output : result_.outputs) {
      output.value = same_[static_cast<std::size_t>(output.value)];
    }
    return std::move(result_);
  }

 private:
  void keep(Node node) {
    for (ValueId& input : node.inputs) input = same_[static_cast<std::size_t>(input)];
    const auto id = static_cast<NodeId>(result_.nodes.size());
    const auto [known, is_new] = known_.emplace(key_of(node), id);
    if (!is_new && merge(result_.nodes[static_cast<std::size_t>(known->second)], node)) return;
    for (const ValueId output : node.outputs) result_.value(output).producer = id;
    result_.nodes.push_back(std::move(node));
  }

  bool merge(const Node& kept, const Node& other) {
    for (std::size_t i = 0; i < other.outputs.size(); ++i) {
      if (!may_merge(result_.value(kept.outputs[i]), result_.value(other.outputs[i]))) return false;
    }
    for (std::size_t i = 0; i < other.outputs.size(); ++i) {
      same_[static_cast<std::size_t>(other.outputs[i])] = kept.outputs[i];
      std::string& path = result_.value(kept.outputs[i]).path;
      if (path.empty()) path = result_.value(other.outputs[i]).path;
    }
    return true;
  }

  static std::string key_of(const Node& node) {
    std::string key = fmt::format("{}|{}|{}", node.op->name(), node.op->attributes(),
                                  static_cast<int>(node.phase));
    for (const ValueId input : node.inputs) key += fmt::format(",{}", input);
    return key;
  }

  Graph result_;
  const bool sums_may_pend_;
  std::vector<ValueId> same_;  // value -> the value that stands for it
  std::unordered_map<std::string, NodeId> known_;
};

}  // namespace

Graph simplify(const Graph& graph, bool sums_may_pend) {
  return Simplification(graph, sums_may_pend).run();
}

}  // namespace tessera::compile
