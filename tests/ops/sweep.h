// Runs one node in pieces: every legal choice of its sharding rule on several meshes, in one
// process.
#pragma once

#include <string>
#include <vector>

#include "runtime/graph/op.h"

namespace tessera::testing {

struct NodeInput {
  graph::ValueType type;
  std::vector<double>
      domain;  // values that pending terms are built around; empty for computed integers
  std::vector<double> values;  // the whole tensor
};

struct NodeUnderTest {
  const graph::Op& op;
  std::vector<NodeInput> inputs;
  double tolerance = 0.0;  // relative to max(1, |uncut|); 0: equal
};

/// The node uncut: types, rule, guard bytes, every element written, bit-equal twice, in place where
/// the op allows it. Returns the first problem as text, "" when there is none.
std::string check_node(const NodeUnderTest& test);

/// The node cut in every legal way on meshes of 2, 3, 4, 2x2 and 2x3, against the uncut node.
/// Returns as above.
std::string sweep_node(const NodeUnderTest& test);

}  // namespace tessera::testing
