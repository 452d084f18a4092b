// How scratch memory is divided: every piece begins at a cache line.
#pragma once

#include <cstdint>

namespace tessera::kernels {

inline constexpr std::int64_t kAlignment = 64;

/// Bytes that a piece of a workspace takes, so that the next one is aligned.
inline std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace tessera::kernels
