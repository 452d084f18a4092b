// How an element-wise program runs: loops, where every value lives, which loop each step calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/map.h"
#include "kernels/vector.h"

namespace tessera::kernels {

/// Elements of a tile, at most; its registers together fill at most kMapScratchBytes.
inline constexpr std::int64_t kMapTile = 1024;
inline constexpr std::size_t kMapScratchBytes = 65536;

/// The output's dimensions with neighbours merged wherever every input allows it; outermost first,
/// never empty. Strides in elements, 0 where the input is broadcast; the innermost is 0 or 1.
struct MapLoops {
  std::vector<std::int64_t> sizes;
  std::vector<std::vector<std::int64_t>> strides;  // [input][dimension]

  std::int64_t inner() const { return sizes.back(); }
  std::int64_t rows() const;  // product of the outer sizes
  /// Does the input lie in memory like the output?
  bool is_dense(std::size_t input) const;
  /// Is it one value for all elements?
  bool is_uniform(std::size_t input) const;
  /// First element of a row (a run of the innermost dimension).
  std::int64_t offset_of_row(std::size_t input, std::int64_t row) const;
};
MapLoops merge_loops(std::span<const MapTensor> inputs, const Shape& output);

/// Every value has an entry in a table of pointers that each thread fills: registers first, then
/// inputs read where they lie, outputs written where they lie, single values, constants.
struct MapPlan {
  enum class Load : std::uint8_t {
    none,     // not read
    direct,   // the entry points into the input
    convert,  // n elements (or one) converted
    gather,   // rows put together, as a tile spans several rows
  };
  struct Input {
    Load load = Load::none;
    bool once = false;    // the same for all tiles: loaded before the first one
    bool single = false;  // one value
    std::int16_t entry = 0;
  };
  struct Step {
    MapCode code = MapCode::copy;
    std::uint8_t form = 0;  // as in TypedLoops
    bool single = false;    // computes one value
    std::int16_t operands[3] = {0, 0, 0};
    std::int16_t entry = 0;
  };
  struct Output {
    bool direct = false;     // the step writes into the output's memory
    std::int16_t entry = 0;  // else: converted or copied from here when the tile is done
  };

  MapLoops loops;
  bool spans_rows = false;  // a tile is several whole rows; else part of one
  std::int64_t tile = 0;    // elements of a full tile
  std::int64_t tiles = 0;   // in total
  std::int64_t tiles_per_row = 1;
  std::vector<Input> inputs;
  std::vector<Step> once;   // on single values that no tile changes
  std::vector<Step> steps;  // per tile
  std::vector<Output> outputs;
  std::int16_t registers = 0;
  std::int16_t first_single = 0;    // entries of single values
  std::int16_t first_constant = 0;  // entries of constants
  std::int16_t entries = 0;
  std::vector<double> constants;
};
MapPlan plan_map(const MapProgram& program, std::span<const MapTensor> inputs,
                 std::span<const MapTensor> outputs);

}  // namespace tessera::kernels
