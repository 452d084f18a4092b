// What all ops that only move elements run: a list of strided copies.
#pragma once

#include <vector>

#include "base/shape.h"
#include "kernels/device.h"
#include "kernels/strided_copy.h"
#include "runtime/graph/op.h"

namespace tessera::ops {

/// One box of elements that goes from an operand (or a constant) to the result.
struct CopyPart {
  int source = 0;              // operand; -1: the constant of the list
  std::int64_t in_offset = 0;  // elements from the start of the operand's part
  std::int64_t out_offset = 0;
  kernels::StridedCopy copy;
};

/// Copies `size` elements between dense tensors of shapes `in` and `out`, starting at index
/// `in_begin` and `out_begin` of dimension `dim` and at 0 of the others.
CopyPart box_copy(int source, const Shape& in, std::int64_t in_begin, const Shape& out,
                  std::int64_t out_begin, const Shape& size, std::size_t dim,
                  std::size_t element_size);
/// Fills that box with the constant.
CopyPart box_fill(const Shape& out, std::int64_t out_begin, const Shape& size, std::size_t dim,
                  std::size_t element_size);

/// A kernel that does all parts in order. `constant`: one element in the result's dtype.
graph::Kernel copy_kernel(std::vector<CopyPart> parts, const kernels::Device& device,
                          std::uint64_t constant = 0);

/// The bits of one element of this dtype, as the constant of `copy_kernel`.
std::uint64_t element_bits(double value, DType dtype);

}  // namespace tessera::ops
