// Vector loops over contiguous memory: the innermost loops of element-wise and reduction kernels.
// Compiled once per instruction-set level; `vector_loops` gives those that this processor runs.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "kernels/map.h"

namespace tessera::kernels {

inline constexpr int kDTypes = static_cast<int>(DType::boolean) + 1;

/// One step over n elements. Operands that the code does not have are ignored. `out` may be one of
/// the operands.
template <typename T>
using MapLoop = void (*)(const T* a, const T* b, const T* c, T* out, std::int64_t n);

/// n elements of one dtype to n elements of another. The memories must not overlap, but for types
/// of one size, where they may be the same. Floats to integers go towards zero, saturate, and NaN
/// gives 0; integers to narrower integers wrap; everything but zero becomes true.
using ConvertLoop = void (*)(const void* from, void* to, std::int64_t n);

enum class ReduceCode : std::uint8_t { sum, max, min };
inline constexpr int kReduceCodes = 3;

/// Reduces n contiguous elements; of none: 0, lowest or highest value. Maxima and minima of
/// anything with a NaN are NaN. Sums add in T within blocks and in double between them.
template <typename T>
using ReduceLoop = double (*)(const T* x, std::int64_t n);

/// accumulator[j] = accumulator[j] op x[i * stride + j] over i < rows, for j < n.
template <typename T>
using AccumulateLoop = void (*)(const T* x, std::int64_t stride, std::int64_t rows, T* accumulator,
                                std::int64_t n);

/// c = a b for a [m, k], b [k, n], c [m, n] with any strides (in elements): small products.
struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t a_row = 0;
  std::int64_t a_column = 0;
  std::int64_t b_row = 0;
  std::int64_t b_column = 0;
  std::int64_t c_row = 0;
  std::int64_t c_column = 0;
};
template <typename T>
using GemmLoop = void (*)(const T* a, const T* b, T* c, const GemmShape& shape);

/// Loops for elements of type T; a set bit i of a map loop's form: operand i is one value for all
/// elements.
template <typename T>
struct TypedLoops {
  MapLoop<T> map[kMapCodes][8];
  ReduceLoop<T> reduce[kReduceCodes];
  AccumulateLoop<T> accumulate[kReduceCodes];
  GemmLoop<T> gemm;
};

/// n draws of random_uniform (base/philox.h) of one stream and step, from `index` on.
using UniformLoop = void (*)(std::uint64_t key, std::uint64_t step, std::uint64_t index, float* out,
                             std::int64_t n);

struct VectorLoops {
  TypedLoops<float> f32;
  TypedLoops<double> f64;
  ConvertLoop convert[kDTypes][kDTypes];  // [from][to]
  UniformLoop uniform;

  template <typename T>
  const TypedLoops<T>& typed() const;
};
template <>
inline const TypedLoops<float>& VectorLoops::typed<float>() const {
  return f32;
}
template <>
inline const TypedLoops<double>& VectorLoops::typed<double>() const {
  return f64;
}

/// Sets of instructions that the loops are compiled for, each with those before it.
enum class VectorLevel : std::uint8_t { baseline, avx2, avx512 };
/// The highest level that this processor runs.
VectorLevel vector_level();

/// The loops of the levels that this processor has, best first.
std::vector<const VectorLoops*> supported_vector_loops();
/// The best of them. The same on every call.
const VectorLoops& vector_loops();

}  // namespace tessera::kernels
