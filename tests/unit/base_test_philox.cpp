// Random numbers: the paper's vectors, moments, bijections, stability of hashes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <vector>

#include "base/philox.h"

using namespace tessera;

namespace {

struct Moments {
  double mean = 0, variance = 0, third = 0, fourth = 0, least = 0, most = 0;
};

template <typename F>
Moments moments(const F& draw, int count) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(draw(static_cast<std::uint64_t>(i)));
  Moments m;
  for (const double v : values) m.mean += v / count;
  for (const double v : values) {
    const double d = v - m.mean;
    m.variance += d * d / count;
    m.third += d * d * d / count;
    m.fourth += d * d * d * d / count;
  }
  m.least = *std::min_element(values.begin(), values.end());
  m.most = *std::max_element(values.begin(), values.end());
  return m;
}

}  // namespace

TEST_CASE("Philox4x32-10: known answers") {
  using Words = std::array<std::uint32_t, 4>;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("streams: every argument tells draws apart") {
  std::set<std::array<std::uint32_t, 4>> seen;
  for (std::uint64_t key = 0; key < 5; ++key) {
    for (std::uint64_t step = 0; step < 5; ++step) {
      for (std::uint64_t index : {0ULL, 1ULL, 1ULL << 32U, (1ULL << 32U) + 1, ~0ULL}) {
        seen.insert(random_words(key << 31U, step << 31U, index));
      }
    }
  }
  CHECK(seen.size() == 125);
  std::set<std::uint64_t> keys{stream_key(0, "dropout", "a/b"),
                               stream_key(1, "dropout", "a/b"),
                               stream_key(0, "noise", "a/b"),
                               stream_key(0, "dropout", "a/c"),
                               stream_key(0, "dropouta", "/b"),
                               stream_key(0, "", ""),
                               stream_key(1ULL << 63U, "dropout", "a/b")};
  CHECK(keys.size() == 7);
}

TEST_CASE("hashes are stable, and depend on every byte and on the length") {
  CHECK(hash_bytes("tessera") == 0xc96ec473b7065b73ULL);
  std::set<std::uint64_t> seen;
  std::string text(19, 'a');
  for (char& c : text) {
    for (int bit = 0; bit < 8; ++bit) {
      c = static_cast<char>(c ^ (1 << bit));
      seen.insert(hash_bytes(text));
      c = static_cast<char>(c ^ (1 << bit));
    }
  }
  CHECK(seen.size() == 19 * 8);
  seen.clear();
  for (std::size_t size = 0; size < 40; ++size) seen.insert(hash_bytes(std::string(size, '\0')));
  CHECK(seen.size() == 40);
}

TEST_CASE("uniform draws") {
  const std::uint64_t key = stream_key(7, "test", "uniform");
  const Moments m = moments([&](std::uint64_t i) { return random_uniform(key, 3, i); }, 200000);
  CHECK(m.mean == Approx(0.5).margin(0.003));
  CHECK(m.variance == Approx(1.0 / 12).margin(0.001));
  CHECK(m.least >= 0.0);
  CHECK(m.most < 1.0);
  CHECK(m.least < 1e-4);
  CHECK(m.most > 1 - 1e-4);
  // 24 bits, exact in float32.
  for (std::uint64_t i = 0; i < 100; ++i) {
    const float scaled = random_uniform(key, 0, i) * 0x1p24F;
    CHECK(scaled == std::floor(scaled));
  }
}

TEST_CASE("normal draws") {
  const std::uint64_t key = stream_key(7, "test", "normal");
  const Moments m = moments([&](std::uint64_t i) { return random_normal(key, 0, i); }, 200000);
  CHECK(m.mean == Approx(0.0).margin(0.01));
  CHECK(m.variance == Approx(1.0).margin(0.02));
  CHECK(m.third == Approx(0.0).margin(0.03));
  CHECK(m.fourth == Approx(3.0).margin(0.1));
  CHECK(std::isfinite(m.least));
  CHECK(m.most > 3.5);
}

TEST_CASE("truncated normal draws") {
  const std::uint64_t key = stream_key(7, "test", "truncated");
  const int count = 200000;
  std::vector<double> values;
  const Moments m = moments(
      [&](std::uint64_t i) {
        values.push_back(random_truncated_normal(key, 0, i));
        return values.back();
      },
      count);
  CHECK(m.mean == Approx(0.0).margin(0.01));
  // 1 - 2 * 2 phi(2) / (2 Phi(2) - 1)
  CHECK(m.variance == Approx(0.7737).margin(0.006));
  CHECK(m.least >= -2.0);
  CHECK(m.most <= 2.0);
  CHECK(m.most > 1.99);
  // The distribution function at some points, against erf.
  const double mass = std::erf(2 / std::sqrt(2.0));
  for (const double x : {-1.5, -1.0, -0.3, 0.0, 0.5, 1.2, 1.9}) {
    const double expected = 0.5 + 0.5 * std::erf(x / std::sqrt(2.0)) / mass;
    const auto below =
        std::count_if(values.begin(), values.end(), [x](double v) { return v <= x; });
    CHECK(static_cast<double>(below) / count == Approx(expected).margin(0.005));
  }
}

TEST_CASE("a permutation is a bijection for every size") {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = 1; size < 70; ++size) sizes.push_back(size);
  for (const std::uint64_t size : {127, 128, 129, 255, 256, 257, 1000, 4095, 4096, 4097, 60000}) {
    sizes.push_back(size);
  }
  for (const std::uint64_t size : sizes) {
    CAPTURE(size);
    std::vector<bool> seen(size, false);
    for (std::uint64_t i = 0; i < size; ++i) {
      const std::uint64_t value = random_permutation(stream_key(1, "shuffle", ""), size, i);
      REQUIRE(value < size);
      REQUIRE_FALSE(seen[value]);
      seen[value] = true;
    }
  }
  CHECK(random_permutation(5, 0, 0) == 0);
  for (const std::uint64_t size : {1ULL << 40U, (1ULL << 40U) + 1, ~0ULL}) {
    std::set<std::uint64_t> values;
    for (std::uint64_t i = 0; i < 100; ++i) {
      values.insert(random_permutation(3, size, i));
      CHECK(*values.rbegin() < size);
    }
    CHECK(values.size() == 100);
  }
}

TEST_CASE("permutations of different keys differ, and put every element anywhere") {
  // Each of 4 elements at each of 4 places, over many keys: a quarter each.
  const int keys = 8000;
  std::array<std::array<int, 4>, 4> count{};
  std::set<std::array<std::uint64_t, 4>> orders;
  for (int k = 0; k < keys; ++k) {
    std::array<std::uint64_t, 4> order{};
    for (std::size_t i = 0; i < 4; ++i) {
      order[i] = random_permutation(stream_key(0, "shuffle", std::to_string(k)), 4, i);
      ++count[i][order[i]];
    }
    orders.insert(order);
  }
  CHECK(orders.size() == 24);
  for (const auto& row : count) {
    for (const int n : row) CHECK(n == Approx(keys / 4.0).epsilon(0.08));
  }
}

TEST_CASE("a permutation leaves no runs: neighbours are far apart") {
  const std::uint64_t size = 10000;
  double distance = 0;
  int in_order = 0;
  for (std::uint64_t i = 0; i + 1 < size; ++i) {
    const auto a = static_cast<double>(random_permutation(9, size, i));
    const auto b = static_cast<double>(random_permutation(9, size, i + 1));
    distance += std::abs(a - b);
    if (b == a + 1) ++in_order;
  }
  CHECK(distance / static_cast<double>(size) == Approx(size / 3.0).epsilon(0.05));
  CHECK(in_order < 10);
}
