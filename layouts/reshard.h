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

/// One step. The parts that ranks hold are `box_of(shape, from, mesh, rank)` before and
/// `box_of(shape, to, mesh, rank)` after; both may be uneven or empty. Everything outside `axes` is
/// the same in `from` and `to`, but for axes of size 1: the first step's `from` and the last step's
/// `to` are those that were asked for, placements in between leave axes of size 1 out.
struct ReshardStep {
  ReshardKind kind = ReshardKind::slice;
  AxisList axes;    // ordered, outer first: the group; none of size 1
  int dim = -1;     // dimension gathered, scattered, sliced, or cut before (all_to_all)
  int to_dim = -1;  // all_to_all: dimension cut after
  Placement from;
  Placement to;
  /// Per rank, ring or pairwise: the mean over the group where parts are uneven.
  double bytes_sent = 0;
};

/// Steps that turn `from` into `to`: at most two collectives where two are enough, among those the
/// fewest bytes, then the fewest steps. Empty when the placements are equal up to axes of size 1.
/// Axes that both place alike are never touched. Slices come as early as they can, so that less
/// travels; a pending sum becomes a cut by one reduce_scatter, is never sliced over its own axes,
/// and several axes are summed by one joint all_reduce. A cut that becomes a pending sum is
/// gathered first, then kept by the owner. Throws internal when a placement does not fit the shape
/// or the mesh, or names an axis twice.
std::vector<ReshardStep> plan_reshard(const Shape& shape, std::size_t element_size,
                                      const Placement& from, const Placement& to, const Mesh& mesh);

/// Sum of `bytes_sent` over the steps of plan_reshard.
double reshard_bytes(const Shape& shape, std::size_t element_size, const Placement& from,
                     const Placement& to, const Mesh& mesh);

/// True when they put the same bytes on the same ranks: equal up to axes of size 1.
bool same_placement(const Placement& a, const Placement& b, const Mesh& mesh);

}  // namespace tessera::layouts
