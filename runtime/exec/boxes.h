// Parts of dense row-major tensors: runs of neighbours, overlaps, copies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/shape.h"

namespace tessera::exec {

/// The whole of a tensor as a box.
Box whole(const Shape& shape);

/// The part that both boxes hold; empty (some size 0) where they have none in common.
Box overlap(const Box& a, const Box& b);

/// Calls visit(offset in `outer`, offset in `inner`, elements) for the longest runs of `inner` that
/// are contiguous in both, in row-major order. `inner` lies inside `outer`; offsets are elements of
/// dense tensors with the sizes of the boxes.
template <class Visit>
void for_each_run(const Box& outer, const Box& inner, const Visit& visit);

/// Copies `region`, which lies inside both boxes.
void copy_region(const std::byte* from, const Box& from_box, std::byte* to, const Box& to_box,
                 const Box& region, std::int64_t element_bytes);

/// Cuts a tensor into contiguous boxes of at most `most` elements (at least one row of the
/// dimension that is cut) and calls visit(box, first element) in row-major order; never for a
/// tensor without elements.
template <class Visit>
void for_each_slab(const Shape& shape, std::int64_t most, const Visit& visit);

// ---- templates ----

template <class Visit>
void for_each_run(const Box& outer, const Box& inner, const Visit& visit) {
  const std::size_t rank = inner.size.rank();
  const std::int64_t total = inner.elements();
  if (total == 0) return;
  // Dimensions from `split` on are whole in `outer`, so that one run covers them and a range of the
  // dimension before.
  std::size_t split = rank;
  while (split > 0 && inner.size[split - 1] == outer.size[split - 1]) --split;
  std::int64_t run = 1;
  for (std::size_t dim = split > 0 ? split - 1 : 0; dim < rank; ++dim) run *= inner.size[dim];
  const Shape strides = outer.size.strides();
  Shape index = inner.begin;  // copied for its rank; counts from the box's own beginning
  for (std::size_t dim = 0; dim < rank; ++dim) index[dim] = 0;
  for (std::int64_t done = 0; done < total; done += run) {
    std::int64_t offset = 0;
    for (std::size_t dim = 0; dim < rank; ++dim) {
      offset += (inner.begin[dim] - outer.begin[dim] + index[dim]) * strides[dim];
    }
    visit(offset, done, run);
    for (std::size_t dim = split > 0 ? split - 1 : 0; dim-- > 0;) {
      if (++index[dim] < inner.size[dim]) break;
      index[dim] = 0;
    }
  }
}

template <class Visit>
void for_each_slab(const Shape& shape, std::int64_t most, const Visit& visit) {
  const std::int64_t total = shape.elements();
  if (total == 0) return;
  const Shape strides = shape.strides();
  std::size_t cut = 0;
  while (cut + 1 < shape.rank() && strides[cut] > most) ++cut;
  Box box = whole(shape);
  const std::int64_t rows_in_all = shape.empty() ? 1 : shape[cut];
  const std::int64_t row = shape.empty() ? 1 : strides[cut];
  const std::int64_t rows = most / row > 1 ? most / row : 1;
  for (std::int64_t first = 0; first < total;) {
    std::int64_t rest = first / row;  // counts rows of the dimension that is cut
    if (!shape.empty()) {
      box.begin[cut] = rest % rows_in_all;
      box.size[cut] = rows < rows_in_all - box.begin[cut] ? rows : rows_in_all - box.begin[cut];
      rest /= rows_in_all;
      for (std::size_t dim = cut; dim-- > 0;) {
        box.begin[dim] = rest % shape[dim];
        box.size[dim] = 1;
        rest /= shape[dim];
      }
    }
    visit(static_cast<const Box&>(box), first);
    first += box.elements();
  }
}

}  // namespace tessera::exec
