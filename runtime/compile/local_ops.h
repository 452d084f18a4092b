// Ops that only the compiler adds: they move bytes of one rank around a conversion or an
// assignment.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/shape.h"
#include "runtime/graph/op.h"

namespace tessera::compile {

/// A box copied from one dense tensor to another; offsets and strides in elements.
struct BoxCopy {
  Shape size;
  std::int64_t source_offset = 0;
  Shape source_strides;
  std::int64_t target_offset = 0;
  Shape target_strides;
};

/// The copy of `part` out of a tensor that holds `source` into one that holds `target`; all boxes
/// in one index space, `part` inside both.
BoxCopy copy_between(const Box& source, const Box& target, const Box& part);

/// The part both boxes hold (sizes 0 where they do not meet).
Box intersection(const Box& a, const Box& b);

/// Copies boxes from its operand to its result; what no box covers stays as it was. `name`:
/// "slice", "pack", "unpack".
std::shared_ptr<const graph::Op> make_move(std::string name, std::vector<BoxCopy> copies);

/// The operand, byte by byte: where a value must have memory of its own.
std::shared_ptr<const graph::Op> make_copy();

/// One term of a pending sum: the operand on the rank that keeps it, zeros on all others.
std::shared_ptr<const graph::Op> make_owner(bool keeps);

}  // namespace tessera::compile
