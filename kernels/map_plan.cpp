// Plans element-wise programs: merges loops, sorts values by how often they change, assigns
// registers.
#include "kernels/map_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"

namespace tessera::kernels {
namespace {

constexpr std::int16_t kNowhere = -1;

/// Strides of an input along the output's dimensions: 0 where it is broadcast.
std::vector<std::int64_t> broadcast_strides(const Shape& input, const Shape& output) {
  const bool fits = input.rank() <= output.rank();
  const std::size_t missing = fits ? output.rank() - input.rank() : 0;
  std::vector<std::int64_t> strides(output.rank(), 0);
  const Shape own = input.strides();
  for (std::size_t dim = 0; dim < input.rank(); ++dim) {
    if (!fits || (input[dim] != 1 && input[dim] != output[missing + dim])) {
      throw Error(Error::Kind::internal, fmt::format("element-wise: operand {} does not fit {}",
                                                     to_string(input), to_string(output)));
    }
    if (input[dim] != 1) strides[missing + dim] = own[dim];
  }
  return strides;
}

/// Decides everything but the loops.
class Planner {
 public:
  Planner(const MapProgram& program, std::span<const MapTensor> inputs,
          std::span<const MapTensor> outputs)
      : program_(program),
        input_tensors_(inputs),
        output_tensors_(outputs),
        own_(program.wide ? DType::float64 : DType::float32) {}

  MapPlan run() {
    plan_.loops = merge_loops(input_tensors_, output_tensors_[0].shape);
    plan_.inputs.resize(input_tensors_.size());
    find_uses();
    // Registers depend on the way tiles are cut, and tiles on the number of registers: rows first,
    // with as many registers as there could be.
    choose_tiles();
    classify_inputs();
    classify_steps();
    choose_direct_outputs();
    assign_registers();
    number_entries();
    emit_steps();
    set_tile_size();
    return std::move(plan_);
  }

 private:
  std::size_t steps() const { return program_.steps.size(); }
  int arity(std::size_t step) const { return operands_of(program_.steps[step].code); }
  const MapOperand& operand(std::size_t step, int i) const {
    return program_.steps[step].operands[static_cast<std::size_t>(i)];
  }
  bool is_result(std::size_t step) const {
    return std::find(program_.results.begin(), program_.results.end(),
                     static_cast<std::int16_t>(step)) != program_.results.end();
  }

  void find_uses() {
    last_use_of_input_.assign(input_tensors_.size(), -1);
    last_use_of_step_.assign(steps(), -1);
    for (std::size_t step = 0; step < steps(); ++step) {
      for (int i = 0; i < arity(step); ++i) {
        const MapOperand& read = operand(step, i);
        const auto index = static_cast<std::size_t>(read.index);
        if (read.kind == MapOperand::Kind::input) {
          check(index < input_tensors_.size(), "element-wise: a step reads an unknown input");
          last_use_of_input_[index] = static_cast<int>(step);
        } else if (read.kind == MapOperand::Kind::step) {
          check(index < step, "element-wise: a step reads a later one");
          last_use_of_step_[index] = static_cast<int>(step);
        }
      }
    }
    for (const std::int16_t result : program_.results) {
      check(result >= 0 && static_cast<std::size_t>(result) < steps(),
            "element-wise: unknown result");
    }
  }

  void choose_tiles() {
    const MapLoops& loops = plan_.loops;
    const std::int64_t worst = tile_for(static_cast<std::int64_t>(steps() + plan_.inputs.size()));
    plan_.spans_rows = loops.rows() > 1 && loops.inner() > 0 &&
                       loops.inner() <= std::min<std::int64_t>(worst / 2, 256);
  }

  std::int64_t tile_for(std::int64_t registers) const {
    const auto room = static_cast<std::int64_t>(kMapScratchBytes / size_of(own_));
    return std::min(kMapTile, room / std::max<std::int64_t>(registers, 1) / 16 * 16);
  }

  void classify_inputs() {
    const MapLoops& loops = plan_.loops;
    for (std::size_t i = 0; i < plan_.inputs.size(); ++i) {
      MapPlan::Input& input = plan_.inputs[i];
      if (last_use_of_input_[i] < 0) continue;
      const bool same_type = input_tensors_[i].dtype == own_;
      input.load = same_type ? MapPlan::Load::direct : MapPlan::Load::convert;
      if (loops.is_uniform(i)) {
        input.once = input.single = true;
      } else if (!plan_.spans_rows) {
        input.single = loops.strides[i].back() == 0;
      } else if (!loops.is_dense(i)) {
        input.load = MapPlan::Load::gather;
        const auto& strides = loops.strides[i];
        input.once = std::all_of(strides.begin(), strides.end() - 1,
                                 [](std::int64_t stride) { return stride == 0; });
      }
    }
  }

  void classify_steps() {
    single_.assign(steps(), false);
    once_.assign(steps(), false);
    for (std::size_t step = 0; step < steps(); ++step) {
      bool single = !is_result(step);
      bool once = single;
      for (int i = 0; i < arity(step); ++i) {
        const MapOperand& read = operand(step, i);
        const auto index = static_cast<std::size_t>(read.index);
        if (read.kind == MapOperand::Kind::input) {
          single = single && plan_.inputs[index].single;
          once = once && plan_.inputs[index].once;
        } else if (read.kind == MapOperand::Kind::step) {
          single = single && single_[index];
          once = once && once_[index];
        }
      }
      single_[step] = single;
      once_[step] = single && once;
    }
  }

  /// An output may lie in the memory of an input, so a step may write into it only when no later
  /// step reads an input that could be that one.
  void choose_direct_outputs() {
    plan_.outputs.resize(output_tensors_.size());
    direct_output_.assign(steps(), -1);
    for (std::size_t o = 0; o < plan_.outputs.size(); ++o) {
      const auto result = static_cast<std::size_t>(program_.results[o]);
      if (output_tensors_[o].dtype != own_ || direct_output_[result] >= 0) continue;
      bool safe = true;
      for (std::size_t i = 0; i < plan_.inputs.size(); ++i) {
        const bool could_be = plan_.inputs[i].load == MapPlan::Load::direct &&
                              input_tensors_[i].shape == output_tensors_[o].shape;
        if (could_be && last_use_of_input_[i] > static_cast<int>(result)) safe = false;
      }
      if (!safe) continue;
      plan_.outputs[o].direct = true;
      direct_output_[result] = static_cast<int>(o);
    }
  }

  std::int16_t take() {
    if (free_.empty()) return plan_.registers++;
    const std::int16_t entry = free_.back();
    free_.pop_back();
    return entry;
  }

  void assign_registers() {
    entry_of_step_.assign(steps(), kNowhere);
    for (MapPlan::Input& input : plan_.inputs) {
      const bool loaded =
          input.load == MapPlan::Load::convert || input.load == MapPlan::Load::gather;
      if (loaded && !input.single) input.entry = take();
    }
    for (std::size_t step = 0; step < steps(); ++step) {
      // Operands that end here make room for the result: loops may write over what they read.
      for (std::size_t i = 0; i < plan_.inputs.size(); ++i) {
        const MapPlan::Input& input = plan_.inputs[i];
        const bool in_register =
            !input.single && !input.once &&
            (input.load == MapPlan::Load::convert || input.load == MapPlan::Load::gather);
        if (in_register && last_use_of_input_[i] == static_cast<int>(step)) {
          free_.push_back(input.entry);
        }
      }
      for (std::size_t other = 0; other < step; ++other) {
        const bool ends = last_use_of_step_[other] == static_cast<int>(step) && !is_result(other);
        if (ends && !single_[other]) free_.push_back(entry_of_step_[other]);
      }
      if (!single_[step] && direct_output_[step] < 0) entry_of_step_[step] = take();
      // A value that nobody reads.
      if (last_use_of_step_[step] < 0 && !is_result(step) && !single_[step]) {
        free_.push_back(entry_of_step_[step]);
      }
    }
  }

  void number_entries() {
    std::int16_t next = plan_.registers;
    for (MapPlan::Input& input : plan_.inputs) {
      if (input.load == MapPlan::Load::direct) input.entry = next++;
    }
    for (std::size_t o = 0; o < plan_.outputs.size(); ++o) {
      const auto result = static_cast<std::size_t>(program_.results[o]);
      if (plan_.outputs[o].direct) entry_of_step_[result] = next++;
    }
    plan_.first_single = next;
    for (MapPlan::Input& input : plan_.inputs) {
      if (input.load == MapPlan::Load::convert && input.single) input.entry = next++;
    }
    for (std::size_t step = 0; step < steps(); ++step) {
      if (single_[step]) entry_of_step_[step] = next++;
    }
    plan_.first_constant = next;
    for (std::size_t o = 0; o < plan_.outputs.size(); ++o) {
      plan_.outputs[o].entry = entry_of_step_[static_cast<std::size_t>(program_.results[o])];
    }
  }

  std::int16_t entry_of_constant(double value) {
    // Bits are compared, so that -0 and NaN are kept apart.
    const auto same = [value](double known) {
      return std::bit_cast<std::uint64_t>(known) == std::bit_cast<std::uint64_t>(value);
    };
    auto found = std::find_if(plan_.constants.begin(), plan_.constants.end(), same);
    if (found == plan_.constants.end()) found = plan_.constants.insert(found, value);
    return static_cast<std::int16_t>(plan_.first_constant + (found - plan_.constants.begin()));
  }

  void emit_steps() {
    for (std::size_t step = 0; step < steps(); ++step) {
      MapPlan::Step out;
      out.code = program_.steps[step].code;
      out.single = single_[step];
      out.entry = entry_of_step_[step];
      for (int i = 0; i < arity(step); ++i) {
        const MapOperand& read = operand(step, i);
        const auto index = static_cast<std::size_t>(read.index);
        bool one = true;
        if (read.kind == MapOperand::Kind::constant) {
          out.operands[i] = entry_of_constant(read.constant);
        } else if (read.kind == MapOperand::Kind::input) {
          out.operands[i] = plan_.inputs[index].entry;
          one = plan_.inputs[index].single;
        } else {
          out.operands[i] = entry_of_step_[index];
          one = single_[index];
        }
        if (one) out.form = static_cast<std::uint8_t>(out.form | (1U << static_cast<unsigned>(i)));
      }
      (once_[step] ? plan_.once : plan_.steps).push_back(out);
    }
    plan_.entries = static_cast<std::int16_t>(plan_.first_constant +
                                              static_cast<std::int16_t>(plan_.constants.size()));
  }

  void set_tile_size() {
    const MapLoops& loops = plan_.loops;
    plan_.tile = tile_for(plan_.registers);
    if (plan_.spans_rows) {
      const std::int64_t rows = std::min(plan_.tile / loops.inner(), loops.rows());
      plan_.tile = rows * loops.inner();
      plan_.tiles = (loops.rows() + rows - 1) / rows;
    } else {
      plan_.tiles_per_row = (loops.inner() + plan_.tile - 1) / plan_.tile;
      plan_.tiles = loops.rows() * plan_.tiles_per_row;
    }
  }

  const MapProgram& program_;
  std::span<const MapTensor> input_tensors_;
  std::span<const MapTensor> output_tensors_;
  DType own_;  // in which the program computes
  MapPlan plan_;
  std::vector<int> last_use_of_input_;  // step; -1: never read
  std::vector<int> last_use_of_step_;
  std::vector<bool> single_;        // per step: one value
  std::vector<bool> once_;          // per step: the same for all tiles
  std::vector<int> direct_output_;  // per step: the output that it writes, or -1
  std::vector<std::int16_t> entry_of_step_;
  std::vector<std::int16_t> free_;
};

}  // namespace

std::int64_t MapLoops::rows() const {
  std::int64_t product = 1;
  for (std::size_t dim = 0; dim + 1 < sizes.size(); ++dim) product *= sizes[dim];
  return product;
}

bool MapLoops::is_dense(std::size_t input) const {
  std::int64_t step = 1;
  for (std::size_t dim = sizes.size(); dim-- > 0;) {
    if (strides[input][dim] != step) return false;
    step *= sizes[dim];
  }
  return true;
}

bool MapLoops::is_uniform(std::size_t input) const {
  return std::all_of(strides[input].begin(), strides[input].end(),
                     [](std::int64_t stride) { return stride == 0; });
}

std::int64_t MapLoops::offset_of_row(std::size_t input, std::int64_t row) const {
  std::int64_t offset = 0;
  for (std::size_t dim = sizes.size() - 1; dim-- > 0;) {
    offset += row % sizes[dim] * strides[input][dim];
    row /= sizes[dim];
  }
  return offset;
}

MapLoops merge_loops(std::span<const MapTensor> inputs, const Shape& output) {
  std::vector<std::vector<std::int64_t>> full;
  for (const MapTensor& input : inputs) full.push_back(broadcast_strides(input.shape, output));
  MapLoops loops;
  loops.strides.resize(inputs.size());
  for (std::size_t dim = 0; dim < output.rank(); ++dim) {
    if (output[dim] == 1) continue;
    bool merges = !loops.sizes.empty();
    for (std::size_t i = 0; merges && i < inputs.size(); ++i) {
      merges = loops.strides[i].back() == full[i][dim] * output[dim];
    }
    if (merges) {
      loops.sizes.back() *= output[dim];
    } else {
      loops.sizes.push_back(output[dim]);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (merges) {
        loops.strides[i].back() = full[i][dim];
      } else {
        loops.strides[i].push_back(full[i][dim]);
      }
    }
  }
  if (loops.sizes.empty()) {
    // One element: every operand lies like the result, so that it may also lie in its memory.
    loops.sizes.push_back(1);
    for (auto& strides : loops.strides) strides.push_back(1);
  }
  return loops;
}

MapPlan plan_map(const MapProgram& program, std::span<const MapTensor> inputs,
                 std::span<const MapTensor> outputs) {
  check(!outputs.empty() && outputs.size() == program.results.size(),
        "element-wise: results and outputs differ in number");
  check(program.steps.size() <= kMaxMapSteps && inputs.size() <= kMaxMapInputs &&
            outputs.size() <= kMaxMapOutputs,
        "element-wise: the program is too long");
  for (const MapTensor& output : outputs) {
    check(output.shape == outputs[0].shape, "element-wise: outputs differ in shape");
  }
  return Planner(program, inputs, outputs).run();
}

}  // namespace tessera::kernels
