// Candidates per axis, their prices, and the choice between them.
#include "runtime/compile/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <tuple>

namespace tessera::compile {
namespace {

using graph::Node;
using graph::Value;
using graph::ValueId;
using layouts::AxisList;
using layouts::AxisSet;
using layouts::Placement;

AxisSet bit(int axis) { return AxisSet{1} << axis; }

/// Smaller is better, in this order.
struct Price {
  double bytes = 0;  // to convert the operands; if any, also to reduce what becomes pending by it
  double pin_bytes = 0;          // to convert the results to their pins
  int pending = 0;               // axes over which results are pending sums
  std::int64_t minus_parts = 0;  // more parts are better

  friend bool operator<(const Price& a, const Price& b) {
    return std::tie(a.bytes, a.pin_bytes, a.pending, a.minus_parts) <
           std::tie(b.bytes, b.pin_bytes, b.pending, b.minus_parts);
  }
};

class Selector {
 public:
  Selector(const graph::Graph& graph, graph::NodeId id, const CallRule& call,
           const layouts::Mesh& mesh, Stock& stock)
      : graph_(graph),
        node_(graph.nodes[static_cast<std::size_t>(id)]),
        call_(call),
        mesh_(mesh),
        stock_(stock) {
    for (const ValueId input : node_.inputs) {
      const Placement* here = stock.find(input, node_.phase);
      current_.push_back(here != nullptr ? std::optional<Placement>(*here) : std::nullopt);
    }
    for (const ValueId output : node_.outputs) {
      const Value& result = graph.value(output);
      pins_.push_back(result.pin ? std::optional(without_trivial_axes(*result.pin, mesh))
                                 : std::nullopt);
    }
    find_orders();
  }

  Selection run(bool with_reports) {
    Selection selection;
    selection.choice.resize(static_cast<std::size_t>(mesh_.axes()));
    std::vector<std::vector<AxisChoice>> candidates;
    int open_axes = 0;
    for (int axis = 0; axis < mesh_.axes(); ++axis) {
      candidates.push_back(candidates_of(axis));
      if (candidates.back().size() > 1) ++open_axes;
    }
    if (open_axes > 0) choose_axis_by_axis(candidates, selection.choice);
    if (open_axes > 1) improve(candidates, selection.choice);
    selection.orders = orders_;
    selection.had_alternatives = open_axes > 0;
    if (with_reports && open_axes > 0) report(candidates, selection);
    return selection;
  }

 private:
  /// Orders of nested cuts as operands have them, then pins.
  void find_orders() {
    const auto note = [this](const std::string& term, const Placement& placement) {
      for (std::size_t dim = 0; dim < term.size(); ++dim) {
        AxisList& order = orders_[term[dim]];
        for (const int axis : placement.dims[dim]) {
          if (std::find(order.begin(), order.end(), axis) == order.end()) order.push_back(axis);
        }
      }
    };
    for (std::size_t i = 0; i < current_.size(); ++i) {
      if (current_[i]) note(call_.rule.operands[i], *current_[i]);
    }
    for (std::size_t i = 0; i < pins_.size(); ++i) {
      if (pins_[i]) note(call_.rule.results[i], *pins_[i]);
    }
  }

  /// A cut is a candidate where something is cut that way already, or where parts are all that
  /// the readers will need: cuts are not invented.
  bool is_asked_for(int axis, char factor) const {
    const auto asks = [axis, factor](const std::string& term,
                                     const std::optional<Placement>& placement) {
      if (!placement) return false;
      const int dim = placement->dim_of(axis);
      return dim >= 0 && term[static_cast<std::size_t>(dim)] == factor;
    };
    for (std::size_t i = 0; i < current_.size(); ++i) {
      if (asks(call_.rule.operands[i], current_[i])) return true;
    }
    for (std::size_t i = 0; i < pins_.size(); ++i) {
      if (asks(call_.rule.results[i], pins_[i])) return true;
      if (!pins_[i] && is_awaited(i, axis, factor)) return true;
    }
    return false;
  }

  bool is_awaited(std::size_t result, int axis, char factor) const {
    const std::size_t dim = call_.rule.results[result].find(factor);
    return dim != std::string::npos && stock_.is_awaited_in_parts(node_.outputs[result], axis, dim);
  }

  bool passes_sums(int axis, std::uint32_t group) const {
    std::uint32_t pending = 0;
    for (std::size_t i = 0; i < current_.size() && i < 32; ++i) {
      if (((group >> i) & 1U) == 0 || !current_[i]) continue;
      if ((current_[i]->pending & bit(axis)) == 0) continue;
      if (!stock_.sums_may_pass(node_.inputs[i])) return false;
      pending |= std::uint32_t{1} << i;
    }
    return pending != 0 && is_worth_passing(call_, pending);
  }

  std::vector<AxisChoice> candidates_of(int axis) const {
    std::vector<AxisChoice> candidates{{}};
    if (mesh_.axis_size(axis) == 1) return candidates;
    for (const char factor : graph::factors_of(call_.rule)) {
      if (is_asked_for(axis, factor)) candidates.push_back({factor, 0});
    }
    for (const std::uint32_t group : call_.rule.linear) {
      if (passes_sums(axis, group)) candidates.push_back({0, group});
    }
    return candidates;
  }

  /// `placement` with the state over `axis` replaced by what `choice` asks of a term.
  Placement with_axis(const Placement& placement, int axis, const AxisChoice& choice,
                      const std::string& term, bool pending) const {
    Placement result = placement;
    result.pending &= ~bit(axis);
    if (pending) result.pending |= bit(axis);
    for (std::size_t dim = 0; dim < term.size(); ++dim) {
      AxisList& axes = result.dims[dim];
      const auto found = std::find(axes.begin(), axes.end(), axis);
      const bool cut = choice.factor != 0 && term[dim] == choice.factor;
      if (cut && found == axes.end()) {
        axes.push_back(axis);
      } else if (!cut && found != axes.end()) {
        axes.erase(found);
      }
    }
    return result;
  }

  /// Axes one after another; those that come later are taken to stay as they are.
  void choose_axis_by_axis(const std::vector<std::vector<AxisChoice>>& candidates, Choice& choice) {
    std::vector<std::optional<Placement>> working = current_;
    for (int axis = 0; axis < mesh_.axes(); ++axis) {
      const auto index = static_cast<std::size_t>(axis);
      std::optional<Price> best;
      for (const AxisChoice& candidate : candidates[index]) {
        Choice longer = choice;
        longer[index] = candidate;
        if (!is_legal(call_, longer, mesh_)) continue;
        Price price;
        for (std::size_t i = 0; i < working.size(); ++i) {
          if (!working[i]) continue;
          price.bytes += stock_.price(node_.inputs[i], node_.phase,
                                      operand_with_axis(*working[i], axis, candidate, i));
        }
        add_results(longer, price);
        if (!best || price < *best) {
          best = price;
          choice[index] = candidate;
        }
      }
      for (std::size_t i = 0; i < working.size(); ++i) {
        if (working[i]) working[i] = operand_with_axis(*working[i], axis, choice[index], i);
      }
    }
  }

  Placement operand_with_axis(const Placement& placement, int axis, const AxisChoice& choice,
                              std::size_t operand) const {
    return with_axis(placement, axis, choice, call_.rule.operands[operand],
                     ((choice.linear >> operand) & 1U) != 0);
  }

  void add_results(const Choice& choice, Price& price) const {
    for (std::size_t i = 0; i < pins_.size(); ++i) {
      const Placement placement = result_placement(call_, choice, orders_, i);
      const graph::ValueType& type = call_.outputs[i];
      price.pending += std::popcount(placement.pending);
      if (pins_[i] && *pins_[i] != placement) {
        price.pin_bytes +=
            layouts::reshard_bytes(type.shape, size_of(type.dtype), placement, *pins_[i], mesh_);
      }
      if (price.bytes > 0) price.bytes += bytes_to_reduce(choice, placement, type);
    }
    for (std::size_t axis = 0; axis < choice.size(); ++axis) {
      if (choice[axis].factor != 0) price.minus_parts -= mesh_.shape()[axis];
    }
  }

  /// Only of sums that the choice itself starts: those that pass would be reduced elsewhere.
  double bytes_to_reduce(const Choice& choice, const Placement& placement,
                         const graph::ValueType& type) const {
    double bytes = 0;
    for (int axis = 0; axis < mesh_.axes(); ++axis) {
      if (choice[static_cast<std::size_t>(axis)].factor == 0) continue;
      if ((placement.pending & bit(axis)) == 0) continue;
      const double parts = mesh_.axis_size(axis);
      bytes += 2 * (parts - 1) / parts * static_cast<double>(type.shape.elements()) *
               static_cast<double>(size_of(type.dtype)) / mesh_.group_size(placement.cut_axes());
    }
    return bytes;
  }

  Price price_of(const Choice& choice) const {
    Price price;
    for (std::size_t i = 0; i < current_.size(); ++i) {
      if (!current_[i]) continue;
      price.bytes +=
          stock_.price(node_.inputs[i], node_.phase, operand_placement(call_, choice, orders_, i));
    }
    add_results(choice, price);
    return price;
  }

  /// One sweep with exact prices, the other axes as chosen.
  void improve(const std::vector<std::vector<AxisChoice>>& candidates, Choice& choice) const {
    Price best = price_of(choice);
    for (std::size_t axis = 0; axis < candidates.size(); ++axis) {
      if (candidates[axis].size() == 1) continue;
      for (const AxisChoice& candidate : candidates[axis]) {
        Choice other = choice;
        other[axis] = candidate;
        if (other == choice || !is_legal(call_, other, mesh_)) continue;
        const Price price = price_of(other);
        if (price < best) {
          best = price;
          choice = std::move(other);
        }
      }
    }
  }

  void report(const std::vector<std::vector<AxisChoice>>& candidates, Selection& selection) const {
    const auto bytes = [](double count) { return fmt::format("{:.0f} bytes to convert", count); };
    selection.chosen = to_string(selection.choice, mesh_);
    selection.reason = bytes(price_of(selection.choice).bytes);
    std::optional<Price> second;
    for (std::size_t axis = 0; axis < candidates.size(); ++axis) {
      for (const AxisChoice& candidate : candidates[axis]) {
        Choice other = selection.choice;
        other[axis] = candidate;
        if (other == selection.choice || !is_legal(call_, other, mesh_)) continue;
        const Price price = price_of(other);
        if (second && !(price < *second)) continue;
        second = price;
        selection.runner_up = fmt::format("{}: {}", to_string(other, mesh_), bytes(price.bytes));
      }
    }
  }

  const graph::Graph& graph_;
  const Node& node_;
  const CallRule& call_;
  const layouts::Mesh& mesh_;
  Stock& stock_;
  std::vector<std::optional<Placement>> current_;  // of operands; none where any is free
  std::vector<std::optional<Placement>> pins_;     // of results
  FactorOrders orders_;
};

}  // namespace

Selection select(const graph::Graph& graph, graph::NodeId id, const CallRule& call,
                 const layouts::Mesh& mesh, Stock& stock, bool with_reports) {
  return Selector(graph, id, call, mesh, stock).run(with_reports);
}

}  // namespace tessera::compile
