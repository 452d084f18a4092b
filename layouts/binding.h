// Binding: every variable and layer output of a model gets its placement, and every fault of the
// rules is found.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/shape.h"
#include "layouts/distribution.h"

namespace tessera::layouts {

/// A variable or layer output to be placed.
struct Bindable {
  std::string path;
  Shape shape;
};

/// What was decided for one of them.
struct Bound {
  std::optional<std::size_t> rule;  // index into the map's rules; nullopt: none matched
  Placement compute;                // what the rule says; whole where there is none
  Placement storage;                // variables: cut further by ZeRO stage 3
};

struct Binding {
  std::vector<Bound> variables;  // one per variable
  std::vector<Bound> outputs;  // one per layer output; those without a rule are left to the planner
  std::vector<std::string> warnings;
};

/// Binds weights (optimizer slots inherit and do not belong here) and layer outputs. Problems,
/// placed at their rule: a path that several rules match, a layout longer than the shape, a cut
/// that does not divide where `require_divisible` asks for it, a rule that matches nothing.
/// Warnings: uneven cuts, and unused rules where these are allowed.
Binding bind(const Distribution& distribution, const std::vector<Bindable>& variables,
             const std::vector<Bindable>& outputs, json::Problems& problems);

/// "parts of 3, 3, 2, 2": sizes of a dimension's parts in the order of the ranks, shortened where
/// there are many.
std::string part_sizes(std::int64_t size, const AxisList& axes, const Mesh& mesh);

}  // namespace tessera::layouts
