// Placements of operands and results as functions of the rule and the choice per axis.
#include "runtime/compile/choices.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::compile {
namespace {

using layouts::AxisList;
using layouts::AxisSet;
using layouts::Placement;

AxisList axes_that_cut(const Choice& choice, char factor, const FactorOrders& orders) {
  const auto cuts = [&](int axis) {
    return choice[static_cast<std::size_t>(axis)].factor == factor;
  };
  AxisList axes;
  if (const auto order = orders.find(factor); order != orders.end()) {
    std::copy_if(order->second.begin(), order->second.end(), std::back_inserter(axes), cuts);
  }
  for (int axis = 0; axis < static_cast<int>(choice.size()); ++axis) {
    if (cuts(axis) && std::find(axes.begin(), axes.end(), axis) == axes.end()) {
      axes.push_back(axis);
    }
  }
  return axes;
}

Placement cuts_of(const std::string& term, const Choice& choice, const FactorOrders& orders) {
  Placement placement = Placement::replicated(term.size());
  for (std::size_t dim = 0; dim < term.size(); ++dim) {
    const char factor = term[dim];
    if (graph::is_factor(factor)) {
      placement.dims[dim] = axes_that_cut(choice, factor, orders);
    }
  }
  return placement;
}

}  // namespace

bool is_legal(const CallRule& call, const Choice& choice, const layouts::Mesh& mesh) {
  for (std::size_t first = 0; first < choice.size(); ++first) {
    const char factor = choice[first].factor;
    if (factor == 0) continue;
    std::int64_t parts = 1;
    for (std::size_t axis = 0; axis < choice.size(); ++axis) {
      if (choice[axis].factor == factor) parts *= mesh.axis_size(static_cast<int>(axis));
    }
    std::int64_t size = -1;
    bool equal = true;
    bool even = true;
    const auto look = [&](const std::vector<std::string>& terms,
                          const std::vector<graph::ValueType>& types) {
      for (std::size_t i = 0; i < terms.size(); ++i) {
        const std::size_t dim = terms[i].find(factor);
        if (dim == std::string::npos) continue;
        const std::int64_t here = types[i].shape[dim];
        equal = equal && (size < 0 || size == here);
        even = even && here % parts == 0;
        size = here;
      }
    };
    look(call.rule.operands, call.inputs);
    look(call.rule.results, call.outputs);
    if (!equal && !even) return false;
  }
  return true;
}

Placement operand_placement(const CallRule& call, const Choice& choice, const FactorOrders& orders,
                            std::size_t index) {
  Placement placement = cuts_of(call.rule.operands[index], choice, orders);
  for (std::size_t axis = 0; axis < choice.size(); ++axis) {
    if (((choice[axis].linear >> index) & 1U) != 0) placement.pending |= AxisSet{1} << axis;
  }
  return placement;
}

Placement result_placement(const CallRule& call, const Choice& choice, const FactorOrders& orders,
                           std::size_t index) {
  const std::string& term = call.rule.results[index];
  Placement placement = cuts_of(term, choice, orders);
  for (std::size_t axis = 0; axis < choice.size(); ++axis) {
    const AxisChoice& here = choice[axis];
    const bool lacks = here.factor != 0 && term.find(here.factor) == std::string::npos;
    if (lacks || here.linear != 0) placement.pending |= AxisSet{1} << axis;
  }
  return placement;
}

std::string to_string(const Choice& choice, const layouts::Mesh& mesh) {
  std::string text;
  for (std::size_t axis = 0; axis < choice.size(); ++axis) {
    if (mesh.shape()[axis] == 1) continue;
    const AxisChoice& here = choice[axis];
    const std::string& name = mesh.axis_names()[axis];
    if (!text.empty()) text += ", ";
    if (here.factor != 0) {
      text += fmt::format("{} cut over {}", here.factor, name);
    } else if (here.linear != 0) {
      text += fmt::format("pending sums pass over {}", name);
    } else {
      text += fmt::format("copies over {}", name);
    }
  }
  return text;
}

}  // namespace tessera::compile
