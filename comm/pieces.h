// Copies and sums of pieces of large operations, by all threads of a rank where that is worth it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/summation.h"

namespace tessera::comm {

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes);
/// On the caller's thread; the memories may overlap or be the same.
void move_bytes(std::byte* to, const std::byte* from, std::int64_t bytes);

/// Of the counts of all members: the largest, and the sum of those before a member.
std::int64_t largest(std::span<const std::int64_t> counts);
std::int64_t sum_before(std::span<const std::int64_t> counts, int member);

/// One sum: `result` may be one of the terms; `copy` gets the result too unless it is null.
struct PieceSum {
  std::byte* result = nullptr;
  std::byte* copy = nullptr;
  std::int64_t count = 0;
  std::int64_t size = 1;  // bytes of an element
  Summation summation = nullptr;
};

/// At most Segment::kMostMembers terms.
void sum_pieces(const PieceSum& sum, std::span<const void* const> terms);

}  // namespace tessera::comm
