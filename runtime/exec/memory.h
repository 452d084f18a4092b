// Large pieces of zeroed memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::exec {

/// Zeroed memory aligned to 64 bytes at least, or nullptr for 0 bytes. Large pieces come straight
/// from the system: pages that are never touched cost nothing, and huge pages are asked for. Throws
/// internal with the size when there is not enough.
std::byte* allocate_zeroed(std::int64_t bytes);
/// `bytes` as given to allocate_zeroed.
void release(std::byte* memory, std::int64_t bytes);

}  // namespace tessera::exec
