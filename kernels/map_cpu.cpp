// Runs element-wise programs on the CPU, tile by tile.
#include <memory>

#include "kernels/map_plan.h"
#include "kernels/parallel.h"

namespace tessera::kernels {
namespace {

/// Entries of a thread's table at the limits of kernels/map.h: inputs and steps may both need
/// registers or single values.
constexpr std::size_t kMaxEntries =
    2 * (kMaxMapInputs + kMaxMapSteps) + kMaxMapOutputs + 3 * kMaxMapSteps;

/// Nanoseconds per element, roughly, in tenths: decides how many threads pay off.
std::int64_t cost_of(MapCode code) {
  switch (code) {
    case MapCode::power:
    case MapCode::sin:
    case MapCode::cos:
      return 60;
    case MapCode::exp:
    case MapCode::expm1:
    case MapCode::log:
    case MapCode::log1p:
    case MapCode::tanh:
    case MapCode::sigmoid:
    case MapCode::softplus:
    case MapCode::erf:
    case MapCode::gelu_erf:
    case MapCode::gelu_tanh:
    case MapCode::silu:
      return 6;
    default:
      return 1;
  }
}

/// A program that computes in T.
template <typename T>
class MapRun {
 public:
  MapRun(const MapProgram& program, std::span<const MapTensor> inputs,
         std::span<const MapTensor> outputs, const CpuDevice& device)
      : plan_(plan_map(program, inputs, outputs)), vector_(&vector_loops()) {
    const DType own = program.wide ? DType::float64 : DType::float32;
    const auto index = [](DType dtype) { return static_cast<std::size_t>(dtype); };
    for (const MapTensor& input : inputs) {
      loads_.push_back(vector_->convert[index(input.dtype)][index(own)]);
      input_sizes_.push_back(static_cast<std::int64_t>(size_of(input.dtype)));
    }
    for (const MapTensor& output : outputs) {
      stores_.push_back(vector_->convert[index(own)][index(output.dtype)]);
      output_sizes_.push_back(static_cast<std::int64_t>(size_of(output.dtype)));
    }
    for (const double constant : plan_.constants) constants_.push_back(static_cast<T>(constant));
    for (const MapPlan::Step& step : plan_.once) once_.push_back(loop_of(step));
    for (const MapPlan::Step& step : plan_.steps) steps_.push_back(loop_of(step));
    std::int64_t cost = static_cast<std::int64_t>(inputs.size() + outputs.size());
    for (const MapPlan::Step& step : plan_.steps) {
      cost += cost_of(step.code) * (program.wide ? 4 : 1);
    }
    elements_ = outputs[0].shape.elements();
    // A thread is worth starting for about ten microseconds of work.
    threads_ = plan_.tiles == 1 ? 1 : threads_for(device, elements_ * cost, 100000);
  }

  void operator()(const void* const* inputs, void* const* outputs) const {
    if (elements_ == 0) return;
    parallel_ranges(threads_, plan_.tiles, [&](std::int64_t begin, std::int64_t end) {
      run_tiles(inputs, outputs, begin, end);
    });
  }

 private:
  struct Loop {
    MapLoop<T> run;
    MapPlan::Step step;
  };
  /// Where one tile lies.
  struct Tile {
    std::int64_t row = 0;     // first row
    std::int64_t column = 0;  // first element within the row
    std::int64_t n = 0;       // elements
    std::int64_t first = 0;   // first element of the output
  };

  Loop loop_of(const MapPlan::Step& step) const {
    return {vector_->typed<T>().map[static_cast<std::size_t>(step.code)][step.form], step};
  }

  Tile tile_at(std::int64_t index) const {
    const std::int64_t inner = plan_.loops.inner();
    if (plan_.spans_rows) {
      const std::int64_t rows = plan_.tile / inner;
      const std::int64_t first = index * plan_.tile;
      return {index * rows, 0, std::min(plan_.tile, elements_ - first), first};
    }
    const std::int64_t row = index / plan_.tiles_per_row;
    const std::int64_t column = index % plan_.tiles_per_row * plan_.tile;
    return {row, column, std::min(plan_.tile, inner - column), row * inner + column};
  }

  void run_tiles(const void* const* inputs, void* const* outputs, std::int64_t begin,
                 std::int64_t end) const {
    alignas(64) T scratch[kMapScratchBytes / sizeof(T)];
    T singles[2 * (kMaxMapInputs + kMaxMapSteps)];
    T* table[kMaxEntries];
    const std::int64_t stride = (plan_.tile + 15) / 16 * 16;
    for (std::int16_t r = 0; r < plan_.registers; ++r) table[r] = scratch + r * stride;
    for (std::int16_t e = plan_.first_single; e < plan_.first_constant; ++e) {
      table[e] = singles + (e - plan_.first_single);
    }
    for (std::int16_t e = plan_.first_constant; e < plan_.entries; ++e) {
      // Constants are read, never written: the loops take operands as pointers to const.
      table[e] = const_cast<T*>(constants_.data()) + (e - plan_.first_constant);
    }
    Tile tile = tile_at(begin);
    if (plan_.spans_rows) tile.n = plan_.tile;  // patterns of rows serve every tile
    for (std::size_t i = 0; i < plan_.inputs.size(); ++i) {
      if (plan_.inputs[i].once) load(i, inputs[i], tile, table);
    }
    for (const Loop& loop : once_) run_step(loop, table, 1);
    for (std::int64_t index = begin; index < end; ++index) {
      tile = tile_at(index);
      for (std::size_t i = 0; i < plan_.inputs.size(); ++i) {
        if (!plan_.inputs[i].once) load(i, inputs[i], tile, table);
      }
      for (std::size_t o = 0; o < plan_.outputs.size(); ++o) {
        if (plan_.outputs[o].direct) {
          table[plan_.outputs[o].entry] = static_cast<T*>(outputs[o]) + tile.first;
        }
      }
      for (const Loop& loop : steps_) run_step(loop, table, loop.step.single ? 1 : tile.n);
      for (std::size_t o = 0; o < plan_.outputs.size(); ++o) {
        if (plan_.outputs[o].direct) continue;
        stores_[o](table[plan_.outputs[o].entry],
                   static_cast<std::byte*>(outputs[o]) + tile.first * output_sizes_[o], tile.n);
      }
    }
  }

  static void run_step(const Loop& loop, T* const* table, std::int64_t n) {
    const MapPlan::Step& step = loop.step;
    loop.run(table[step.operands[0]], table[step.operands[1]], table[step.operands[2]],
             table[step.entry], n);
  }

  void load(std::size_t i, const void* memory, const Tile& tile, T** table) const {
    const MapPlan::Input& input = plan_.inputs[i];
    if (input.load == MapPlan::Load::none) return;
    if (input.load == MapPlan::Load::gather) {
      gather(i, static_cast<const std::byte*>(memory), tile, table[input.entry]);
      return;
    }
    std::int64_t offset = 0;
    if (plan_.spans_rows) {
      if (!input.single) offset = tile.first;
    } else {
      offset = plan_.loops.offset_of_row(i, tile.row) + tile.column * plan_.loops.strides[i].back();
    }
    const std::byte* from = static_cast<const std::byte*>(memory) + offset * input_sizes_[i];
    if (input.load == MapPlan::Load::direct) {
      table[input.entry] = reinterpret_cast<T*>(const_cast<std::byte*>(from));
    } else {
      loads_[i](from, table[input.entry], input.single ? 1 : tile.n);
    }
  }

  /// Puts the rows of a tile together: a run of every row, or one value repeated.
  void gather(std::size_t i, const std::byte* memory, const Tile& tile, T* to) const {
    const std::int64_t inner = plan_.loops.inner();
    const std::vector<std::int64_t>& strides = plan_.loops.strides[i];
    const bool repeats = strides.back() == 0;
    const std::int64_t rows = tile.n / inner;
    const std::byte* from = memory + plan_.loops.offset_of_row(i, tile.row) * input_sizes_[i];
    if (plan_.inputs[i].once) {
      // One pattern: the part that is there is copied behind itself.
      loads_[i](from, to, repeats ? 1 : inner);
      if (repeats) std::fill_n(to + 1, inner - 1, *to);
      for (std::int64_t done = inner; done < tile.n; done *= 2) {
        std::copy_n(to, std::min(done, tile.n - done), to + done);
      }
      return;
    }
    if (repeats && strides.size() == 2) {
      // Neighbouring rows have neighbouring values.
      T values[kMapTile];
      loads_[i](from, values, rows);
      for (std::int64_t row = 0; row < rows; ++row, to += inner) {
        for (std::int64_t j = 0; j < inner; ++j) to[j] = values[row];
      }
      return;
    }
    for (std::int64_t row = 0; row < rows; ++row, to += inner) {
      from = memory + plan_.loops.offset_of_row(i, tile.row + row) * input_sizes_[i];
      loads_[i](from, to, repeats ? 1 : inner);
      if (repeats) std::fill_n(to + 1, inner - 1, *to);
    }
  }

  MapPlan plan_;
  const VectorLoops* vector_;
  std::vector<ConvertLoop> loads_;   // per input: its dtype to T
  std::vector<ConvertLoop> stores_;  // per output: T to its dtype
  std::vector<std::int64_t> input_sizes_;
  std::vector<std::int64_t> output_sizes_;
  std::vector<T> constants_;
  std::vector<Loop> once_;
  std::vector<Loop> steps_;
  std::int64_t elements_ = 0;
  int threads_ = 1;
};

/// One input to one output of the same shape, nothing computed: works for every pair of dtypes
/// without loss on the way.
class ConvertRun {
 public:
  ConvertRun(const MapTensor& input, const MapTensor& output, const CpuDevice& device)
      : convert_(vector_loops().convert[static_cast<std::size_t>(input.dtype)]
                                       [static_cast<std::size_t>(output.dtype)]),
        input_size_(static_cast<std::int64_t>(size_of(input.dtype))),
        output_size_(static_cast<std::int64_t>(size_of(output.dtype))),
        elements_(output.shape.elements()),
        threads_(threads_for(device, elements_, 65536)),
        same_type_(input.dtype == output.dtype) {}

  void operator()(const void* const* inputs, void* const* outputs) const {
    if (inputs[0] == outputs[0] && same_type_) return;
    parallel_ranges(threads_, elements_, [&](std::int64_t begin, std::int64_t end) {
      convert_(static_cast<const std::byte*>(inputs[0]) + begin * input_size_,
               static_cast<std::byte*>(outputs[0]) + begin * output_size_, end - begin);
    });
  }

 private:
  ConvertLoop convert_;
  std::int64_t input_size_;
  std::int64_t output_size_;
  std::int64_t elements_;
  int threads_;
  bool same_type_;
};

bool is_conversion(const MapProgram& program, std::span<const MapTensor> inputs,
                   std::span<const MapTensor> outputs) {
  if (program.steps.size() != 1 || inputs.size() != 1 || outputs.size() != 1) return false;
  const MapStep& step = program.steps[0];
  return step.code == MapCode::copy && step.operands[0].kind == MapOperand::Kind::input &&
         inputs[0].shape.elements() == outputs[0].shape.elements();
}

}  // namespace

MapKernel prepare_map(const MapProgram& program, std::span<const MapTensor> inputs,
                      std::span<const MapTensor> outputs, const CpuDevice& device) {
  if (is_conversion(program, inputs, outputs)) {
    return ConvertRun(inputs[0], outputs[0], device);
  }
  // Shared, so that the function object is small and copies are cheap.
  if (program.wide) {
    return [run = std::make_shared<const MapRun<double>>(program, inputs, outputs, device)](
               const void* const* in, void* const* out) { (*run)(in, out); };
  }
  return [run = std::make_shared<const MapRun<float>>(program, inputs, outputs, device)](
             const void* const* in, void* const* out) { (*run)(in, out); };
}

}  // namespace tessera::kernels
