// What a mesh axis can do to one call of an op: the choices that follow from its sharding rule.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "layouts/mesh.h"
#include "layouts/placement.h"
#include "runtime/graph/op.h"
#include "runtime/graph/rule.h"

namespace tessera::compile {

/// What one axis does: nothing (every operand and result is a copy), cut a factor, or let pending
/// sums through.
struct AxisChoice {
  char factor = 0;           // cut: the lower-case letter of the rule
  std::uint32_t linear = 0;  // pass: the operands that are pending (bit i: operand i)

  bool is_copy() const { return factor == 0 && linear == 0; }
  friend bool operator==(const AxisChoice& a, const AxisChoice& b) = default;
};

/// One entry per mesh axis.
using Choice = std::vector<AxisChoice>;

/// The static side of one call.
struct CallRule {
  graph::Rule rule;
  std::vector<graph::ValueType> inputs;
  std::vector<graph::ValueType> outputs;
};

/// Order in which axes cut a factor, outer first, where operands or pins ask for one.
using FactorOrders = std::map<char, layouts::AxisList>;

/// True when the axes that cut each factor leave equal parts everywhere: all its dimensions have
/// one size, or every size divides evenly by the product of these axes.
bool is_legal(const CallRule& call, const Choice& choice, const layouts::Mesh& mesh);

/// The placement that a choice gives to operand `index`. Axes that cut one factor stand as `orders`
/// says, then in mesh order.
layouts::Placement operand_placement(const CallRule& call, const Choice& choice,
                                     const FactorOrders& orders, std::size_t index);

/// The same for result `index`: results without a cut factor become pending sums.
layouts::Placement result_placement(const CallRule& call, const Choice& choice,
                                    const FactorOrders& orders, std::size_t index);

/// "k cut over model, pending sums pass over batch": axes of size 1 are left out.
std::string to_string(const Choice& choice, const layouts::Mesh& mesh);

}  // namespace tessera::compile
