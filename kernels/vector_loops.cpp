// The vector loops of one instruction-set level. Everything that is compiled here lies in the
// namespace of the level, so that the linker never takes code of a higher level for a lower one.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "kernels/vector.h"

namespace tessera::kernels::TESSERA_VECTOR_LEVEL {
namespace {

#include "kernels/vector_math.h"

inline constexpr double kRootHalf = 0.70710678118654752;
inline constexpr double kRootTwoOverPi = 0.79788456080286536;

inline double sigmoid_double(double x) {
  const double e = std::exp(-std::abs(x));
  return (x >= 0.0 ? 1.0 : e) / (1.0 + e);
}

#include "kernels/vector_convert.h"
#include "kernels/vector_map.h"
#include "kernels/vector_random.h"
#include "kernels/vector_reduce.h"
// Uses the lines of the reductions.
#include "kernels/vector_matmul.h"

template <MapCode code, typename T, std::size_t... forms>
constexpr void set_forms(TypedLoops<T>& loops, std::index_sequence<forms...> /*forms*/) {
  ((loops.map[static_cast<int>(code)][forms] = &map_loop<code, static_cast<int>(forms), T>), ...);
}

template <typename T, std::size_t... codes>
constexpr void set_map(TypedLoops<T>& loops, std::index_sequence<codes...> /*codes*/) {
  (set_forms<static_cast<MapCode>(codes)>(
       loops, std::make_index_sequence<(1U << arity_of(static_cast<MapCode>(codes)))>{}),
   ...);
}

template <ReduceCode code, typename T>
constexpr void set_reduce(TypedLoops<T>& loops) {
  loops.reduce[static_cast<int>(code)] = &reduce_loop<code, T>;
  loops.accumulate[static_cast<int>(code)] = &accumulate_loop<code, T>;
}

template <typename T>
constexpr void set_typed(TypedLoops<T>& loops) {
  set_map(loops, std::make_index_sequence<kMapCodes>{});
  set_reduce<ReduceCode::sum>(loops);
  set_reduce<ReduceCode::max>(loops);
  set_reduce<ReduceCode::min>(loops);
  loops.gemm = &gemm_loop<T>;
}

template <std::size_t from, std::size_t... to>
constexpr void set_row(VectorLoops& loops, std::index_sequence<to...> /*to*/) {
  ((loops.convert[from][to] = &convert<static_cast<DType>(from), static_cast<DType>(to)>), ...);
}

template <std::size_t... from>
constexpr void set_convert(VectorLoops& loops, std::index_sequence<from...> /*from*/) {
  (set_row<from>(loops, std::make_index_sequence<kDTypes>{}), ...);
}

constexpr VectorLoops make_loops() {
  VectorLoops loops{};
  set_typed(loops.f32);
  set_typed(loops.f64);
  set_convert(loops, std::make_index_sequence<kDTypes>{});
  loops.uniform = &uniform_loop;
  return loops;
}

}  // namespace

extern const VectorLoops loops;
constinit const VectorLoops loops = make_loops();

}  // namespace tessera::kernels::TESSERA_VECTOR_LEVEL
