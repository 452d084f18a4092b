// Element-wise kernels: a short program over registers, run tile by tile so that intermediates stay
// in cache.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "kernels/device.h"

namespace tessera::kernels {

/// One element-wise operation. Comparisons and logic give 1 or 0.
enum class MapCode : std::uint8_t {
  copy,
  negate,
  abs,
  sign,
  exp,
  expm1,
  log,
  log1p,
  sqrt,
  rsqrt,
  square,
  reciprocal,
  sin,
  cos,
  tanh,
  sigmoid,
  softplus,
  erf,
  floor,
  ceil,
  round,
  relu,
  gelu_erf,
  gelu_tanh,
  silu,
  is_finite,
  logical_not,
  add,
  subtract,
  multiply,
  divide,
  power,
  maximum,
  minimum,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  logical_and,
  logical_or,
  select,  // a != 0 ? b : c
};
std::string_view name_of(MapCode code);
/// Number of operands: 1, 2 or 3.
int operands_of(MapCode code);
/// Comparisons and logic: their results are booleans.
bool gives_boolean(MapCode code);

/// What one step reads: an input of the program, the result of an earlier step, or a constant.
struct MapOperand {
  enum class Kind : std::uint8_t { input, step, constant };
  Kind kind = Kind::input;
  std::int16_t index = 0;  // input or step
  double constant = 0.0;
  friend bool operator==(const MapOperand& a, const MapOperand& b) = default;
};

struct MapStep {
  MapCode code = MapCode::copy;
  std::array<MapOperand, 3> operands{};
  friend bool operator==(const MapStep& a, const MapStep& b) = default;
};

/// Steps in order; `results[i]` is the step whose value output i gets. Computes in float32, or in
/// float64 when `wide` (any operand or result is float64, int32 or int64); stores round to the
/// output's dtype (floats to integers towards zero).
struct MapProgram {
  std::vector<MapStep> steps;
  std::vector<std::int16_t> results;
  bool wide = false;
  friend bool operator==(const MapProgram& a, const MapProgram& b) = default;
};
std::string to_string(const MapProgram& program);

/// Number of element-wise operations.
inline constexpr int kMapCodes = static_cast<int>(MapCode::select) + 1;
/// Limits of one program: its working set must stay in the first-level cache.
inline constexpr std::size_t kMaxMapSteps = 128;
inline constexpr std::size_t kMaxMapInputs = 64;
inline constexpr std::size_t kMaxMapOutputs = 32;

/// One operand or result of a program: dense, row-major.
struct MapTensor {
  Shape shape;
  DType dtype = DType::float32;
};

/// A prepared program. Pointers are in the order of the operands and results.
using MapKernel = std::function<void(const void* const* inputs, void* const* outputs)>;

/// Decides loops, registers and conversions once. All outputs have one shape; inputs broadcast to
/// it as in NumPy. An output may lie in the memory of an input of the same shape and element size.
/// Throws internal when shapes do not fit or a limit above is exceeded.
MapKernel prepare_map(const MapProgram& program, std::span<const MapTensor> inputs,
                      std::span<const MapTensor> outputs, const CpuDevice& device);

}  // namespace tessera::kernels
