// Interval colouring by best fit.
#include "runtime/compile/arena.h"

#include <algorithm>
#include <numeric>

namespace tessera::compile {
namespace {

std::int64_t align(std::int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

/// The tightest gap between `taken` (sorted by offset), else the first place behind all of them.
std::int64_t find_gap(const std::vector<const Block*>& taken, std::int64_t bytes) {
  std::int64_t best = -1;
  std::int64_t best_size = 0;
  std::int64_t end = 0;
  for (const Block* block : taken) {
    const std::int64_t size = block->offset - end;
    if (size >= bytes && (best < 0 || size < best_size)) {
      best = end;
      best_size = size;
    }
    end = std::max(end, align(block->offset + block->bytes));
  }
  return best < 0 ? end : best;
}

}  // namespace

std::int64_t place_blocks(std::vector<Block>& blocks) {
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&blocks](std::size_t a, std::size_t b) {
    if (blocks[a].bytes != blocks[b].bytes) return blocks[a].bytes > blocks[b].bytes;
    return blocks[a].first < blocks[b].first;
  });
  std::int64_t total = 0;
  std::vector<const Block*> placed;  // by offset
  std::vector<const Block*> taken;
  for (const std::size_t index : order) {
    Block& block = blocks[index];
    block.offset = 0;
    if (block.bytes == 0) continue;
    taken.clear();
    for (const Block* other : placed) {
      if (other->first <= block.last && block.first <= other->last) taken.push_back(other);
    }
    block.offset = find_gap(taken, block.bytes);
    total = std::max(total, align(block.offset + block.bytes));
    const auto behind = std::upper_bound(
        placed.begin(), placed.end(), block.offset,
        [](std::int64_t offset, const Block* other) { return offset < other->offset; });
    placed.insert(behind, &block);
  }
  return total;
}

}  // namespace tessera::compile
