// Counter-based random numbers and stable hashes.
#include "base/philox.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

namespace tessera {
namespace {

// Constants of the paper, table 2 and section 4.3.
constexpr std::uint64_t kMultiplier0 = 0xD2511F53U;
constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57U;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9U;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85U;
constexpr int kRounds = 10;
// Of the permutation: bits of a half, and rounds.
constexpr unsigned kLeastHalf = 4;
constexpr std::uint64_t kFeistelRounds = 8;

constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32U); }

/// A bijection of 64 bits in which each output bit depends on all input bits.
constexpr std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 32U;
  x *= 0xD6E8FEB86659FD93U;
  x ^= x >> 29U;
  x *= 0xA0761D6478BD642FU;
  x ^= x >> 32U;
  return x;
}

/// 53 bits of two words, in [0, 1).
double unit(std::uint32_t upper, std::uint32_t lower) {
  const std::uint64_t bits = (std::uint64_t{upper} << 32U | lower) >> 11U;
  return static_cast<double>(bits) * 0x1p-53;
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

/// x with normal_cdf(x) = p for p between Phi(-2) and Phi(2): Newton steps from a series about 1/2.
double inverse_normal_cdf(double p) {
  const double sqrt_two_pi = std::sqrt(2.0 * std::numbers::pi);
  const double t = (p - 0.5) * sqrt_two_pi;
  double x = t * (1.0 + t * t * (1.0 / 6.0 + t * t * 7.0 / 120.0));
  for (int step = 0; step < 6; ++step) {
    const double density = std::exp(-0.5 * x * x) / sqrt_two_pi;
    const double ratio = (normal_cdf(x) - p) / density;
    x -= ratio / (1.0 + 0.5 * x * ratio);  // Halley: the second derivative of the cdf is -x density
  }
  return x;
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {high(product1) ^ counter[1] ^ key[0], low(product1),
               high(product0) ^ counter[3] ^ key[1], low(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t seed) {
  std::uint64_t hash = mix(seed ^ 0x9E3779B97F4A7C15U) + bytes.size();
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    // Little-endian by construction: the same on every machine.
    std::uint64_t word = 0;
    for (std::size_t j = 0; j < 8 && i + j < bytes.size(); ++j) {
      word |= std::uint64_t{static_cast<unsigned char>(bytes[i + j])} << (8 * j);
    }
    hash = mix(hash ^ word) * 0x9FB21C651E98DF25U;
  }
  return mix(hash);
}

std::uint64_t stream_key(std::uint64_t seed, std::string_view purpose, std::string_view path) {
  return hash_bytes(path, hash_bytes(purpose, seed));
}

std::array<std::uint32_t, 4> random_words(std::uint64_t key, std::uint64_t step,
                                          std::uint64_t index) {
  return philox4x32({low(index), high(index), low(step), high(step)}, {low(key), high(key)});
}

float random_uniform(std::uint64_t key, std::uint64_t step, std::uint64_t index) {
  return static_cast<float>(random_words(key, step, index / 4)[index % 4] >> 8U) * 0x1p-24F;
}

float random_normal(std::uint64_t key, std::uint64_t step, std::uint64_t index) {
  const auto words = random_words(key, step, index);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - unit(words[0], words[1])));
  const double angle = 2.0 * std::numbers::pi * unit(words[2], words[3]);
  return static_cast<float>(radius * std::cos(angle));
}

float random_truncated_normal(std::uint64_t key, std::uint64_t step, std::uint64_t index) {
  const auto words = random_words(key, step, index);
  const double low_end = normal_cdf(-2.0);
  const double p = low_end + unit(words[0], words[1]) * (1.0 - 2.0 * low_end);
  const double x = inverse_normal_cdf(p);
  return static_cast<float>(x < -2.0 ? -2.0 : x > 2.0 ? 2.0 : x);
}

std::uint64_t random_permutation(std::uint64_t key, std::uint64_t size, std::uint64_t index) {
  if (size < 2) return 0;
  // Two halves of equal width cover the size; at least 8 bits, as a network on fewer reaches only
  // some of the permutations. What falls outside walks on along its cycle until it is inside.
  const auto bits = static_cast<unsigned>(std::bit_width(size - 1));
  const unsigned half = bits < 2 * kLeastHalf ? kLeastHalf : (bits + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  std::uint64_t value = index;
  do {
    std::uint64_t left = value >> half;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < kFeistelRounds; ++round) {
      const std::uint64_t next =
          left ^ (mix(mix(key + round * 0x9E3779B97F4A7C15U) ^ right) & mask);
      left = right;
      right = next;
    }
    value = left << half | right;
  } while (value >= size);
  return value;
}

}  // namespace tessera
