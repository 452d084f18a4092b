// The walk over the graph that places every value.
#include "runtime/compile/propagate.h"

#include <fmt/format.h>

#include "base/error.h"
#include "runtime/compile/select.h"
#include "runtime/compile/stock.h"
#include "runtime/compile/uses.h"

namespace tessera::compile {
namespace {

using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::Value;
using graph::ValueId;
using graph::Variable;
using layouts::Placement;

class Propagation {
 public:
  Propagation(const graph::Graph& graph, const layouts::Mesh& mesh, bool with_reports)
      : graph_(graph),
        mesh_(mesh),
        with_reports_(with_reports),
        rules_(rules_of(graph)),
        uses_(uses_of(graph, rules_)),
        stock_(graph, mesh, rules_, uses_, draft_) {
    draft_.graph = &graph;
    draft_.mesh = mesh;
  }

  Draft run() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) visit(static_cast<NodeId>(i));
    for (const graph::Assignment& assignment : graph_.assignments) assign(assignment);
    for (const graph::Output& output : graph_.outputs) {
      draft_.outputs.push_back({output.name, stock_.get_as_it_comes(output.value, Phase::update)});
    }
    if (with_reports_) report_values();
    return std::move(draft_);
  }

 private:
  static std::string reader_of(const Node& node) {
    return node.path.empty() ? std::string(node.op->name())
                             : fmt::format("{} of {}", node.op->name(), node.path);
  }

  void visit(NodeId id) {
    const Node& node = graph_.nodes[static_cast<std::size_t>(id)];
    if (uses_.floating[static_cast<std::size_t>(node.outputs.front())]) return;
    const CallRule& call = rules_[static_cast<std::size_t>(id)];
    Selection selection = select(graph_, id, call, mesh_, stock_, with_reports_);
    const std::string reader = reader_of(node);
    std::vector<DraftId> inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      inputs.push_back(stock_.get(node.inputs[i], node.phase,
                                  operand_placement(call, selection.choice, selection.orders, i),
                                  reader));
    }
    stock_.add_node(id, std::move(inputs), selection.choice, selection.orders);
    if (with_reports_ && selection.had_alternatives) {
      draft_.decisions.push_back({node.path, std::string(node.op->name()),
                                  std::move(selection.chosen), std::move(selection.reason),
                                  std::move(selection.runner_up)});
    }
  }

  void assign(const graph::Assignment& assignment) {
    Variable& variable = (*graph_.variables)[assignment.variable];
    const Value& value = graph_.value(assignment.value);
    if (value.source == Value::Source::variable && value.variable == assignment.variable) return;
    const bool metric = variable.role == graph::Role::metric;
    const Phase phase = metric ? Phase::metrics : Phase::update;
    if (!variable.storage) {
      if (!metric) {
        throw Error(Error::Kind::internal,
                    fmt::format("compile: variable \"{}\" has no placement", variable.path));
      }
      const Placement* here = stock_.find(assignment.value, phase);
      variable.storage = here != nullptr ? *here : Placement::replicated(variable.shape.rank());
    }
    const DraftId placed =
        stock_.get(assignment.value, phase, without_trivial_axes(*variable.storage, mesh_),
                   fmt::format("the storage of {}", variable.path));
    draft_.assignments.push_back({assignment.variable, placed});
  }

  /// Named results of nodes but gradients, where their readers find them. Pins are repeated as they
  /// were asked for.
  void report_values() {
    for (std::size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& value = graph_.values[i];
      if (value.source != Value::Source::node || value.path.empty() || value.producer < 0) continue;
      if (uses_.floating[i] || is_gradient(graph_, static_cast<ValueId>(i))) continue;
      const Placement* here = stock_.find(static_cast<ValueId>(i), Phase::forward);
      draft_.reported.push_back({value.path, value.type.shape, value.pin ? *value.pin : *here});
    }
  }

  const graph::Graph& graph_;
  const layouts::Mesh& mesh_;
  const bool with_reports_;
  const std::vector<CallRule> rules_;
  const Uses uses_;
  Draft draft_;
  Stock stock_;
};

}  // namespace

Draft propagate(const graph::Graph& graph, const layouts::Mesh& mesh, bool with_reports) {
  Draft draft = Propagation(graph, mesh, with_reports).run();
  remove_unread(draft);  // what pins ask of results that nobody reads
  verify(draft, "propagation");
  return draft;
}

}  // namespace tessera::compile
