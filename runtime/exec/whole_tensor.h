// Whole tensors in and out, piece by piece: no rank holds more of a sharded tensor than its part
// and one slab.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "comm/communicator.h"
#include "runtime/exec/executor.h"

namespace tessera::exec {

inline constexpr std::int64_t kSlabBytes = std::int64_t{16} << 20U;

/// Calls `on_rank_0(first element, bytes in the variable's dtype)` on rank 0 for consecutive slabs
/// of the whole tensor, row-major, of about `slab_bytes` at most; never for a tensor without
/// elements. Pending sums are added up. Collective over the job.
void gather_slabs(Storage& storage, graph::VariableId id, comm::World& world,
                  const std::function<void(std::int64_t, std::span<const std::byte>)>& on_rank_0,
                  std::int64_t slab_bytes = kSlabBytes);

/// Fills this rank's part: `read(box, to)` is called for boxes of at most about `slab_bytes`
/// (global indices) and writes the elements of the box, row-major in the variable's dtype. Not
/// collective. Of a pending sum one rank keeps the value, the others zero.
void fill_from_slabs(Storage& storage, graph::VariableId id,
                     const std::function<void(const Box&, std::span<std::byte>)>& read,
                     std::int64_t slab_bytes = kSlabBytes);

}  // namespace tessera::exec
