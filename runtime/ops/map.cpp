// Element-wise operations as ops: shapes, sharding rule, linearity, how they run.
#include "runtime/ops/map.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "runtime/ops/dims.h"

namespace tessera::ops {
namespace {

using graph::LocalTensor;
using graph::ValueType;
using kernels::MapOperand;
using kernels::MapProgram;
using kernels::MapStep;

/// Of more operands no sets are tried: the number of sets doubles with each.
constexpr std::size_t kMaxLinearOperands = 8;

/// How a value depends on the operands that are pending sums.
enum class Dependence { none, zero, linear, other };

Dependence dependence_of_step(MapCode code, const std::array<Dependence, 3>& operands) {
  using D = Dependence;
  const auto [a, b, c] = operands;
  const auto both = [](D x, D y) {
    if (x == D::linear && y == D::linear) return D::linear;
    if ((x == D::linear && y == D::zero) || (x == D::zero && y == D::linear)) return D::linear;
    return D::other;
  };
  const auto free = [](D x) { return x == D::none || x == D::zero; };
  const int arity = kernels::operands_of(code);
  if (free(a) && (arity < 2 || free(b)) && (arity < 3 || free(c))) return D::none;
  switch (code) {
    case MapCode::copy:
    case MapCode::negate:
      return a;
    case MapCode::add:
    case MapCode::subtract:
      return both(a, b);
    case MapCode::multiply:
      return (free(a) && b == D::linear) || (a == D::linear && free(b)) ? D::linear : D::other;
    case MapCode::divide:
      return a == D::linear && free(b) ? D::linear : D::other;
    case MapCode::select:
      return free(a) ? both(b, c) : D::other;
    default:
      return D::other;
  }
}

/// Is every result linear in the operands of the set, all others being copies?
bool is_linear(const MapProgram& program, std::uint32_t pending) {
  std::vector<Dependence> steps;
  for (const MapStep& step : program.steps) {
    std::array<Dependence, 3> operands{};
    for (std::size_t i = 0; i < 3; ++i) {
      const MapOperand& operand = step.operands[i];
      if (operand.kind == MapOperand::Kind::constant) {
        operands[i] = operand.constant == 0.0 ? Dependence::zero : Dependence::none;
      } else if (operand.kind == MapOperand::Kind::step) {
        operands[i] = steps[static_cast<std::size_t>(operand.index)];
      } else {
        const bool is_pending = ((pending >> static_cast<unsigned>(operand.index)) & 1U) != 0;
        operands[i] = is_pending ? Dependence::linear : Dependence::none;
      }
    }
    steps.push_back(dependence_of_step(step.code, operands));
  }
  return std::all_of(program.results.begin(), program.results.end(), [&](std::int16_t result) {
    return steps[static_cast<std::size_t>(result)] == Dependence::linear;
  });
}

bool can_be_pending(DType dtype) {
  return is_floating(dtype) || dtype == DType::int32 || dtype == DType::int64;
}

/// Would a sum of parts of dtype `to` lose what a sum in dtype `from` keeps?
bool narrows(DType from, DType to) {
  return is_floating(from) != is_floating(to) || size_of(to) < size_of(from);
}

std::vector<std::uint32_t> linear_sets(const MapProgram& program, std::span<const ValueType> inputs,
                                       std::span<const ValueType> outputs) {
  std::vector<std::uint32_t> sets;
  if (inputs.size() > kMaxLinearOperands) return sets;
  for (const ValueType& output : outputs) {
    if (!can_be_pending(output.dtype)) return sets;
  }
  for (std::uint32_t set = 1; set < (1U << inputs.size()); ++set) {
    bool fits = true;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (((set >> i) & 1U) == 0) continue;
      for (const ValueType& output : outputs) {
        fits = fits && can_be_pending(inputs[i].dtype) && !narrows(inputs[i].dtype, output.dtype);
      }
    }
    if (fits && is_linear(program, set)) sets.push_back(set);
  }
  return sets;
}

std::vector<kernels::MapTensor> local_tensors(const std::vector<LocalTensor>& tensors) {
  std::vector<kernels::MapTensor> local;
  for (const LocalTensor& tensor : tensors) local.push_back({tensor.shape(), tensor.dtype});
  return local;
}

}  // namespace

Shape broadcast_shape(std::span<const Shape> shapes) {
  std::size_t rank = 0;
  for (const Shape& shape : shapes) rank = std::max(rank, shape.rank());
  Shape result;
  for (std::size_t dim = 0; dim < rank; ++dim) result.push_back(1);
  for (const Shape& shape : shapes) {
    const std::size_t missing = rank - shape.rank();
    for (std::size_t dim = 0; dim < shape.rank(); ++dim) {
      std::int64_t& size = result[missing + dim];
      if (shape[dim] == 1 || shape[dim] == size) continue;
      if (size != 1) {
        std::string all;
        for (const Shape& each : shapes) all += (all.empty() ? "" : ", ") + to_string(each);
        throw Error(
            Error::Kind::config,
            fmt::format("shapes {} do not broadcast: sizes {} and {} meet", all, size, shape[dim]));
      }
      size = shape[dim];
    }
  }
  return result;
}

bool computes_wide(std::span<const DType> operands, std::span<const DType> results) {
  const auto is_wide = [](DType dtype) {
    return dtype == DType::float64 || dtype == DType::int32 || dtype == DType::int64;
  };
  return std::any_of(operands.begin(), operands.end(), is_wide) ||
         std::any_of(results.begin(), results.end(), is_wide);
}

std::shared_ptr<const MapOp> make_map(kernels::MapProgram program, std::span<const DType> operands,
                                      std::vector<DType> results) {
  program.wide = computes_wide(operands, results);
  return std::make_shared<const MapOp>(std::move(program), std::move(results));
}

std::shared_ptr<const MapOp> make_cast(DType from, DType to) {
  MapProgram program;
  program.steps.push_back({MapCode::copy, {}});
  program.results.push_back(0);
  return make_map(std::move(program), {&from, 1}, {to});
}

MapOp::MapOp(kernels::MapProgram program, std::vector<DType> results, bool stops_gradient)
    : program_(std::move(program)), results_(std::move(results)), stops_gradient_(stops_gradient) {
  check(results_.size() == program_.results.size() && !results_.empty(),
        "element-wise: results and dtypes differ in number");
}

std::string_view MapOp::name() const {
  return program_.steps.size() == 1 ? kernels::name_of(program_.steps[0].code) : "map";
}

std::string MapOp::attributes() const {
  std::string text = kernels::to_string(program_);
  for (const DType dtype : results_) text += fmt::format(" {}", tessera::name_of(dtype));
  if (stops_gradient_) text += " stop_gradient";
  return text;
}

std::vector<ValueType> MapOp::infer(std::span<const ValueType> inputs) const {
  std::vector<Shape> shapes;
  for (const ValueType& input : inputs) shapes.push_back(input.shape);
  const Shape shape = broadcast_shape(shapes);
  std::vector<ValueType> types;
  for (const DType dtype : results_) types.push_back({shape, dtype});
  return types;
}

graph::Rule MapOp::rule(std::span<const ValueType> inputs,
                        std::span<const ValueType> outputs) const {
  const Shape& result = outputs[0].shape;
  const std::string letters = factor_letters(result.rank());
  graph::Rule rule;
  for (const ValueType& input : inputs) {
    const std::size_t missing = result.rank() - input.shape.rank();
    std::string term = letters.substr(missing);
    for (std::size_t dim = 0; dim < term.size(); ++dim) {
      if (input.shape[dim] != result[missing + dim]) term[dim] = '.';
    }
    rule.operands.push_back(std::move(term));
  }
  rule.results.assign(outputs.size(), letters);
  rule.linear = linear_sets(program_, inputs, outputs);
  return rule;
}

double MapOp::flops(const graph::LocalCall& call) const {
  return static_cast<double>(call.outputs[0].box.elements()) *
         static_cast<double>(program_.steps.size());
}

bool MapOp::may_overwrite(std::size_t /*output*/, std::size_t /*input*/) const { return true; }

graph::Kernel MapOp::prepare(const graph::LocalCall& call, const kernels::Device& device) const {
  const std::vector<kernels::MapTensor> inputs = local_tensors(call.inputs);
  const std::vector<kernels::MapTensor> outputs = local_tensors(call.outputs);
  return std::visit(
      [&](const auto& which) -> graph::Kernel {
        return [kernel = kernels::prepare_map(program_, inputs, outputs, which)](
                   const void* const* in, void* const* out, void* /*workspace*/,
                   const graph::StepState& /*step*/) { kernel(in, out); };
      },
      device);
}

}  // namespace tessera::ops
