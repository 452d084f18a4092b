// Where the parts of a tensor live: which mesh axes cut which dimension, and over which axes it is
// a pending sum.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/shape.h"
#include "layouts/mesh.h"

namespace tessera::layouts {

/// Axes that cut one dimension, outer first; empty: the dimension is whole.
using AxisList = std::vector<int>;

/// Placement of one tensor. An axis that appears nowhere holds a copy; an axis appears at most
/// once.
struct Placement {
  std::vector<AxisList> dims;  // one entry per dimension
  AxisSet pending = 0;         // axes over which the true value is the sum of the ranks' terms

  /// Whole on every rank.
  static Placement replicated(std::size_t rank) { return {std::vector<AxisList>(rank), 0}; }
  bool is_replicated() const;
  /// Axes that cut any dimension.
  AxisSet cut_axes() const;
  /// The dimension that `axis` cuts, or -1.
  int dim_of(int axis) const;

  friend bool operator==(const Placement& a, const Placement& b) = default;
};

/// One part of a dimension.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  friend bool operator==(const Interval& a, const Interval& b) = default;
};

/// Part `index` of `size` elements in `parts` balanced parts: the first `size % parts` parts get
/// one element more.
Interval balanced_part(std::int64_t size, std::int64_t parts, std::int64_t index);

/// The part of a dimension that a rank holds: cuts are nested, outer axis first. This and `box_of`
/// are the only places that know how a dimension is cut.
Interval interval_of(std::int64_t size, const AxisList& axes, const Mesh& mesh, int rank);

/// The part of a tensor that `rank` holds (pending axes and copies do not matter).
Box box_of(const Shape& shape, const Placement& placement, const Mesh& mesh, int rank);

/// Text for messages and dumps: "[batch, null]", "[null] pending over model".
std::string to_string(const Placement& placement, const Mesh& mesh);

}  // namespace tessera::layouts
