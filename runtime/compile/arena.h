// Offsets for blocks of memory whose lifetimes are known.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::compile {

/// Alignment of every block: a cache line, and the widest vector.
inline constexpr std::int64_t kArenaAlignment = 64;

/// Memory that is needed from event `first` to event `last`, both included.
struct Block {
  std::int64_t bytes = 0;
  std::int32_t first = 0;
  std::int32_t last = 0;
  std::int64_t offset = 0;  // result
};

/// Gives blocks offsets so that none that live at the same time overlap; largest first, each into
/// the tightest gap that holds it. Returns the bytes needed for all. Empty blocks get offset 0.
std::int64_t place_blocks(std::vector<Block>& blocks);

}  // namespace tessera::compile
