// Random numbers as vector loops: the functions of base/philox.h on consecutive indices.
// Included by the vector loops alone, inside the namespace of their level.

/// Philox4x32-10 (Salmon et al. 2011) of `counters` consecutive counters: 4 draws each. The upper
/// half of the counter is the same for all.
inline void uniform_of_counters(std::uint64_t key, std::uint64_t step, std::uint64_t counter,
                                float* out, int counters) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32U); };
  const std::uint32_t first = low(counter);
  const std::uint32_t upper = high(counter);
#pragma omp simd
  for (int i = 0; i < counters; ++i) {
    std::uint32_t c0 = first + static_cast<std::uint32_t>(i);
    std::uint32_t c1 = upper;
    std::uint32_t c2 = low(step);
    std::uint32_t c3 = high(step);
    std::uint32_t k0 = low(key);
    std::uint32_t k1 = high(key);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * c0;
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * c2;
      c0 = high(product1) ^ c1 ^ k0;
      c2 = high(product0) ^ c3 ^ k1;
      c1 = low(product1);
      c3 = low(product0);
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
    // 24 bits: signed conversions are vector instructions everywhere.
    const auto unit = [](std::uint32_t word) {
      return static_cast<float>(static_cast<std::int32_t>(word >> 8U)) * 0x1p-24F;
    };
    out[4 * i] = unit(c0);
    out[4 * i + 1] = unit(c1);
    out[4 * i + 2] = unit(c2);
    out[4 * i + 3] = unit(c3);
  }
}

void uniform_loop(std::uint64_t key, std::uint64_t step, std::uint64_t index, float* out,
                  std::int64_t n) {
  // Counters of one call: their draws stay in the cache, and no carry goes into the upper half.
  constexpr std::uint64_t kCounters = 64;
  while (n > 0) {
    const std::uint64_t counter = index / 4;
    const auto skipped = static_cast<std::int64_t>(index % 4);
    const auto in_block = static_cast<std::int64_t>(kCounters - counter % kCounters);
    const std::int64_t needed = (skipped + (n < 4 * in_block ? n : 4 * in_block) + 3) / 4;
    const std::int64_t counters = needed < in_block ? needed : in_block;
    const std::int64_t draws = 4 * counters - skipped < n ? 4 * counters - skipped : n;
    if (skipped == 0 && draws == 4 * counters) {
      uniform_of_counters(key, step, counter, out, static_cast<int>(counters));
    } else {
      float buffer[4 * kCounters];
      uniform_of_counters(key, step, counter, buffer, static_cast<int>(counters));
      for (std::int64_t i = 0; i < draws; ++i) out[i] = buffer[skipped + i];
    }
    out += draws;
    index += static_cast<std::uint64_t>(draws);
    n -= draws;
  }
}
