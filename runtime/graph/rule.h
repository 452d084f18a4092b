// Sharding rules as factor strings, einsum-like, and the legal choices derived from them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"

namespace tessera::graph {

/// One character per dimension of every operand and result. A lower-case letter is a factor that a
/// mesh axis may cut: all its dimensions are cut together, operands without it are whole copies,
/// results without it become pending sums. A capital letter must be whole. '.' is a dimension of
/// size 1 that is broadcast, or one that takes no part: never cut. A letter may stand for
/// dimensions of different sizes (reshape): then a cut is legal only where every size divides
/// evenly.
struct Rule {
  std::vector<std::string> operands;
  std::vector<std::string> results;
  /// Each entry is a set of operands (bit i: operand i) in which the op is jointly linear: when
  /// exactly these operands are pending over an axis and all others are copies, every result is
  /// pending over it. add: {0b11}; multiply: {0b01, 0b10}; reshape: {0b1}.
  std::vector<std::uint32_t> linear;
};

/// Parses "mk,kn->mn". Scalars are empty between commas. A rule without operands starts with "->".
Rule parse_rule(std::string_view text, std::vector<std::uint32_t> linear = {});
std::string to_string(const Rule& rule);

/// Is this character of a term one that a mesh axis may cut?
inline bool is_factor(char c) { return c >= 'a' && c <= 'z'; }

/// Factors (lower-case letters) of a rule in order of first appearance.
std::string factors_of(const Rule& rule);

}  // namespace tessera::graph
