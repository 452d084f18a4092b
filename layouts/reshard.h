// How a tensor gets from one placement to another: the communication that it takes, and its price.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/shape.h"
#include "layouts/mesh.h"
#include "layouts/placement.h"

namespace tessera::layouts {

/// One kind of step. Group of a step: the ranks `mesh.group(rank, step.axes)`, in that order.
enum class ReshardKind : std::uint8_t {
  slice,       // copy or pending -> cut: each rank keeps its part of `dim`; nothing is sent
  all_gather,  // `axes` are the innermost cuts of `dim`: the group's parts, one after another, are
               // the outer part
  all_reduce,  // pending over `axes` -> the sum on every rank; adjacent axes travel as one joint
               // group
  reduce_scatter,  // pending over `axes` -> sum, and each rank keeps its part of `dim` (cut by
                   // `axes` as innermost)
  all_to_all,      // `axes` are the innermost cuts of `dim` before and of `to_dim` after
  owner,  // copy -> pending sum: the rank with coordinate 0 along `axes` keeps its values, others
          // hold zeros
};

/// One step. `from` and `to` are whole placements, axes of size 1 included as they stand at that
/// point; everything outside `axes` is the same in both. The parts that ranks hold are
/// `box_of(shape, from, mesh, rank)` and `box_of(shape, to, ...)`; both may be uneven or empty.
struct ReshardStep {
  ReshardKind kind = ReshardKind::slice;
  AxisList axes;    // ordered, outer first: the group; none of size 1
  int dim = -1;     // dimension gathered, scattered, sliced, or cut before (all_to_all)
  int to_dim = -1;  // all_to_all: dimension cut after
  Placement from;
  Placement to;
  double bytes_sent =
      0;  // per rank, ring or pairwise: the mean over the group where parts are uneven
};

/// Steps that turn `from` into `to`: fewest bytes, then fewest steps. Empty when equal up to axes
/// of size 1. Conversions that no step exists for (a cut that becomes a pending sum) go through the
/// whole value: gather, then owner. Throws internal when either placement does not fit the shape or
/// names an axis twice.
std::vector<ReshardStep> plan_reshard(const Shape& shape, std::size_t element_size,
                                      const Placement& from, const Placement& to, const Mesh& mesh);

/// Sum of `bytes_sent` over the steps of plan_reshard.
double reshard_bytes(const Shape& shape, std::size_t element_size, const Placement& from,
                     const Placement& to, const Mesh& mesh);

/// True when they put the same bytes on the same ranks: equal up to axes of size 1.
bool same_placement(const Placement& a, const Placement& b, const Mesh& mesh);

}  // namespace tessera::layouts
