// Loops over tiles that stay in the first-level cache: one pass a term, so that the order is that
// of the ranks.
#include "comm/summation.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace tessera::comm {
namespace {

/// Elements of a tile: 4 to 8 KiB of accumulators.
constexpr std::int64_t kTile = 1024;

inline float load(BFloat16 value) { return to_float(value); }
inline float load(Float16 value) { return to_float(value); }
template <class T>
T load(T value) {
  return value;
}

inline void store(BFloat16& to, float value) { to = to_bfloat16(value); }
inline void store(Float16& to, float value) { to = to_float16(value); }
template <class T>
void store(T& to, T value) {
  to = value;
}

struct Sum {
  template <class T>
  static T combine(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      // Unsigned arithmetic: signed overflow is undefined, wrapping is what integer sums of tensors
      // do.
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(
          static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
    } else {
      return a + b;
    }
  }
};

/// A NaN stays: as `a` because comparisons with it are false, as `b` because b != b.
struct Max {
  template <class T>
  static T combine(T a, T b) {
    return b > a || b != b ? b : a;
  }
};

struct Min {
  template <class T>
  static T combine(T a, T b) {
    return b < a || b != b ? b : a;
  }
};

struct Any {
  static std::uint8_t combine(std::uint8_t a, std::uint8_t b) {
    return static_cast<std::uint8_t>((a | b) != 0);
  }
};

struct All {
  static std::uint8_t combine(std::uint8_t a, std::uint8_t b) {
    return static_cast<std::uint8_t>(a != 0 && b != 0);
  }
};

/// Two terms need no accumulators; the terms may be `out` itself but never overlap it otherwise.
template <class T, class Combination>
void combine_two(T* out, const T* a, const T* b, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    store(out[i], Combination::combine(load(a[i]), load(b[i])));
  }
}

template <class T, class Combination>
void combine_tile(T* out, const void* const* terms, int n, std::int64_t begin, std::int64_t count) {
  using Accumulator = decltype(load(std::declval<T>()));
  Accumulator sum[kTile];
  const T* first = static_cast<const T*>(terms[0]) + begin;
  for (std::int64_t i = 0; i < count; ++i) sum[i] = load(first[i]);
  for (int term = 1; term < n; ++term) {
    const T* next = static_cast<const T*>(terms[term]) + begin;
    for (std::int64_t i = 0; i < count; ++i) sum[i] = Combination::combine(sum[i], load(next[i]));
  }
  for (std::int64_t i = 0; i < count; ++i) store(out[begin + i], sum[i]);
}

template <class T, class Combination>
void combine(void* out, const void* const* terms, int n, std::int64_t count) {
  if (count == 0) return;
  T* to = static_cast<T*>(out);
  if (n == 1) {
    if (out != terms[0]) std::memcpy(out, terms[0], static_cast<std::size_t>(count) * sizeof(T));
    return;
  }
  if (n == 2) {
    combine_two<T, Combination>(to, static_cast<const T*>(terms[0]),
                                static_cast<const T*>(terms[1]), count);
    return;
  }
  for (std::int64_t begin = 0; begin < count; begin += kTile) {
    combine_tile<T, Combination>(to, terms, n, begin, std::min(kTile, count - begin));
  }
}

template <class T>
Summation choose(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::sum:
      return combine<T, Sum>;
    case ReduceKind::max:
      return combine<T, Max>;
    case ReduceKind::min:
      return combine<T, Min>;
  }
  return nullptr;
}

}  // namespace

Summation summation_of(DType dtype, ReduceKind kind) {
  switch (dtype) {
    case DType::float32:
      return choose<float>(kind);
    case DType::float64:
      return choose<double>(kind);
    case DType::bfloat16:
      return choose<BFloat16>(kind);
    case DType::float16:
      return choose<Float16>(kind);
    case DType::int32:
      return choose<std::int32_t>(kind);
    case DType::int64:
      return choose<std::int64_t>(kind);
    case DType::uint8:
      return choose<std::uint8_t>(kind);
    case DType::boolean:
      return kind == ReduceKind::min ? combine<std::uint8_t, All> : combine<std::uint8_t, Any>;
  }
  throw Error(Error::Kind::internal, "all_reduce: unknown dtype");
}

}  // namespace tessera::comm
