// Random numbers as vector loops: the functions of base/philox.h on consecutive indices.
// Included by the vector loops alone, inside the namespace of their level.

/// First word of Philox4x32-10 (Salmon et al. 2011) of one counter: what uniform draws need.
inline std::uint32_t first_random_word(std::uint32_t c0, std::uint32_t c1, std::uint32_t c2,
                                       std::uint32_t c3, std::uint32_t k0, std::uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * c0;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32U) ^ c1 ^ k0;
    c2 = static_cast<std::uint32_t>(product0 >> 32U) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(product1);
    c3 = static_cast<std::uint32_t>(product0);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c0;
}

void uniform_loop(std::uint64_t key, std::uint64_t step, std::uint64_t index, float* out,
                  std::int64_t n) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32U); };
  while (n > 0) {
    // The upper half of the index is constant within a run.
    const std::uint64_t left = (std::uint64_t{1} << 32U) - low(index);
    const std::int64_t run =
        left < static_cast<std::uint64_t>(n) ? static_cast<std::int64_t>(left) : n;
    const std::uint32_t first = low(index);
    const std::uint32_t upper = high(index);
#pragma omp simd
    for (std::int64_t i = 0; i < run; ++i) {
      const std::uint32_t word = first_random_word(first + static_cast<std::uint32_t>(i), upper,
                                                   low(step), high(step), low(key), high(key));
      // 24 bits: signed conversions are vector instructions everywhere.
      out[i] = static_cast<float>(static_cast<std::int32_t>(word >> 8U)) * 0x1p-24F;
    }
    out += run;
    index += static_cast<std::uint64_t>(run);
    n -= run;
  }
}
