// Which legal choice a node gets.
#pragma once

#include <string>
#include <vector>

#include "runtime/compile/choices.h"
#include "runtime/compile/draft.h"
#include "runtime/compile/stock.h"

namespace tessera::compile {

struct Selection {
  Choice choice;
  FactorOrders orders;
  bool had_alternatives = false;
  std::string chosen;  // texts only where alternatives exist and reports are wanted
  std::string reason;
  std::string runner_up;
};

/// The cheapest choice for node `id` given where its operands lie now: axis by axis, then once more
/// per axis with the others known.
Selection select(const graph::Graph& graph, graph::NodeId id, const CallRule& call,
                 const layouts::Mesh& mesh, Stock& stock, bool with_reports);

}  // namespace tessera::compile
