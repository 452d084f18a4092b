// The placed versions of the graph's values during propagation: which exist, what another one
// costs, how to get it.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/compile/choices.h"
#include "runtime/compile/draft.h"
#include "runtime/compile/uses.h"

namespace tessera::compile {

/// Adds nodes to the draft as versions are asked for. Every conversion happens once: versions are
/// kept per value, and per phase for variables, so that what is gathered for the forward pass need
/// not stay for the backward one.
class Stock {
 public:
  Stock(const graph::Graph& graph, const layouts::Mesh& mesh, const std::vector<CallRule>& rules,
        const Uses& uses, Draft& draft);

  /// Where a reader in `phase` finds the value now; null where any placement is made on demand at
  /// no cost.
  const layouts::Placement* find(graph::ValueId id, graph::Phase phase);
  /// True when every reader of a value that is not made yet also reads something that is, or will
  /// be, cut by `axis` where dimension `dim` of the value meets it: parts are all that they need.
  bool is_awaited_in_parts(graph::ValueId id, int axis, std::size_t dim);
  /// Bytes per rank to have the value at `target` for a reader in `phase`.
  double price(graph::ValueId id, graph::Phase phase, const layouts::Placement& target);
  /// The value at `target`. `reader` says who needs it, for reasons in the plan.
  DraftId get(graph::ValueId id, graph::Phase phase, const layouts::Placement& target,
              const std::string& reader);
  /// The value as it comes: converted to nothing.
  DraftId get_as_it_comes(graph::ValueId id, graph::Phase phase);
  /// May a node read the value while it is a pending sum?
  bool sums_may_pass(graph::ValueId id) const;

  /// Adds the node with these operands, its results placed by `choice`, pins applied. Returns
  /// nothing: results are found by `find`.
  void add_node(graph::NodeId id, std::vector<DraftId> inputs, const Choice& choice,
                const FactorOrders& orders);

 private:
  struct Version {
    /// kNoDraft: a variable's compute placement that nobody has asked for yet.
    DraftId id = kNoDraft;
    layouts::Placement placement;
  };
  struct State {
    std::vector<Version> versions;  // the first is where readers find the value
    bool known = false;
  };

  State& state_of(graph::ValueId id, graph::Phase phase);
  bool reader_awaits_parts(const Reader& reader, int axis, std::size_t dim);
  bool will_be_cut(graph::ValueId id, graph::Phase phase, int axis, std::size_t dim, int depth);
  void start_variable(graph::ValueId id, graph::Phase phase, State& state);
  DraftId base_of_variable(graph::ValueId id);
  bool has_free_choice(graph::ValueId id) const;
  bool is_total(graph::ValueId id) const;
  double bytes_between(graph::ValueId id, const layouts::Placement& from,
                       const layouts::Placement& to);
  DraftId convert(DraftId from, const layouts::Placement& target, graph::Phase phase,
                  const std::string& reader);
  DraftId make_floating(graph::ValueId id, const layouts::Placement& target,
                        const std::string& reader);
  DraftId place_metric(graph::ValueId id, const layouts::Placement& target, graph::Phase phase);
  std::string reason_of(const layouts::ReshardStep& step, DraftId from,
                        const std::string& reader) const;
  graph::Phase phase_of_sum(graph::ValueId id, graph::Phase reader) const;

  const graph::Graph& graph_;
  const layouts::Mesh& mesh_;
  const std::vector<CallRule>& rules_;
  const Uses& uses_;
  Draft& draft_;
  std::vector<State> states_;  // inputs and results of nodes
  std::map<std::pair<graph::ValueId, graph::Phase>, State> variables_;
  std::map<graph::ValueId, DraftId> bases_;         // variables as stored
  std::map<DraftId, std::string> sum_reasons_;      // why a value is a pending sum
  std::unordered_map<std::string, double> prices_;  // value, from, to -> bytes
};

}  // namespace tessera::compile
