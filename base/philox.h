// Counter-based random numbers: every draw is a function of (stream, index), so that results do not
// depend on the mesh. Philox4x32-10 of Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
// easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

/// Four 32-bit words for one 128-bit counter and one 64-bit key.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

/// Key of a stream: a hash of the run's seed, what it is for ("initializer", "dropout", "shuffle")
/// and the path of its owner.
std::uint64_t stream_key(std::uint64_t seed, std::string_view purpose, std::string_view path);

/// One draw of a stream. `step` tells repeated uses apart (training step, epoch), `index` is the
/// global element index. All functions but random_uniform start from the same four words.
std::array<std::uint32_t, 4> random_words(std::uint64_t key, std::uint64_t step,
                                          std::uint64_t index);

/// Uniform in [0, 1): 24 bits, exact in float32. Word index % 4 of random_words(key, step, index / 4):
/// one counter serves four neighbours.
float random_uniform(std::uint64_t key, std::uint64_t step, std::uint64_t index);
/// Standard normal (Box and Muller) in double, rounded to float.
float random_normal(std::uint64_t key, std::uint64_t step, std::uint64_t index);
/// Standard normal cut at two standard deviations, by inversion of the distribution function.
float random_truncated_normal(std::uint64_t key, std::uint64_t step, std::uint64_t index);

/// Position `index` of a keyed pseudo-random permutation of 0..size-1 (Feistel network with cycle
/// walking): sample orders.
std::uint64_t random_permutation(std::uint64_t key, std::uint64_t size, std::uint64_t index);

/// 64-bit hash (for keys, plans, caches); not cryptographic. Stable over runs, machines and
/// versions.
std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t seed = 0);

}  // namespace tessera
