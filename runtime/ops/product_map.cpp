// Products by panels of rows, each followed by its part of an element-wise program.
#include "runtime/ops/product_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "base/error.h"
#include "kernels/matmul.h"
#include "kernels/workspace.h"

namespace tessera::ops {
namespace {

using graph::LocalCall;
using graph::LocalTensor;
using graph::ValueType;

/// Panels of fewer rows than a register tile has waste part of it.
constexpr std::int64_t kRowMultiple = 16;

/// The first `rows` rows of a tensor.
LocalTensor first_rows(LocalTensor tensor, std::int64_t rows) {
  tensor.box.size[0] = rows;
  return tensor;
}

/// Does the operand of an element-wise program have a row for every row of the result?
bool has_rows(const LocalTensor& operand, const LocalTensor& result) {
  return operand.shape().rank() == result.shape().rank() && operand.shape()[0] == result.shape()[0];
}

std::int64_t bytes_of_row(const LocalTensor& tensor) {
  return tensor.shape()[0] == 0 ? 0 : tensor.bytes() / tensor.shape()[0];
}

/// Some rows of a product whose whole is `args`.
kernels::MatmulArgs rows_of(kernels::MatmulArgs args, std::int64_t rows) {
  args.m = rows;
  // What a panel touches, from its first element to its last.
  args.a.elements = (rows - 1) * args.a.row + (args.k - 1) * args.a.column + 1;
  args.c.elements = rows * args.c.row;
  return args;
}

}  // namespace

ProductMapOp::ProductMapOp(std::shared_ptr<const EinsumOp> product,
                           std::shared_ptr<const MapOp> map, std::size_t operand,
                           std::int64_t panel_bytes)
    : product_(std::move(product)),
      map_(std::move(map)),
      operand_(operand),
      panel_bytes_(panel_bytes) {}

bool ProductMapOp::has_panels(const EinsumOp& product, const LocalCall& call) {
  const LocalTensor& result = call.outputs[0];
  if (result.shape().empty() || result.box.elements() == 0) return false;
  const EinsumPlan plan = plan_of(product, call);
  return !plan.swapped && plan.workspace_bytes == 0 && plan.product.batch.empty() &&
         plan.product.k > 0 && plan.product.m == result.shape()[0] &&
         plan.product.n * plan.product.m == result.box.elements() &&
         plan.product.c.row == plan.product.n;
}

std::string ProductMapOp::attributes() const {
  return fmt::format("{} | {} of operand {} by {} bytes", product_->attributes(),
                     map_->attributes(), operand_, panel_bytes_);
}

std::vector<ValueType> ProductMapOp::infer(std::span<const ValueType> inputs) const {
  const std::size_t own = product_operands();
  std::vector<ValueType> operands(inputs.begin() + static_cast<std::ptrdiff_t>(own), inputs.end());
  operands.insert(operands.begin() + static_cast<std::ptrdiff_t>(operand_),
                  product_->infer(inputs.first(own)).front());
  return map_->infer(operands);
}

graph::Rule ProductMapOp::rule(std::span<const ValueType> inputs,
                               std::span<const ValueType> outputs) const {
  return graph::uncut_rule(inputs, outputs);
}

std::vector<graph::ValueId> ProductMapOp::gradient(const graph::GradientCall& call) const {
  throw Error(Error::Kind::internal,
              fmt::format("{} is made after gradients are taken ({} operands)", name(),
                          call.inputs.size()));
}

ProductMapOp::Calls ProductMapOp::calls_of(const LocalCall& call) const {
  const auto own = static_cast<std::ptrdiff_t>(product_operands());
  Calls calls;
  calls.product.inputs.assign(call.inputs.begin(), call.inputs.begin() + own);
  // The product lies as the results of the map do.
  LocalTensor result = call.outputs[0];
  result.dtype = product_->result();
  calls.product.outputs = {result};
  calls.map.inputs.assign(call.inputs.begin() + own, call.inputs.end());
  calls.map.inputs.insert(calls.map.inputs.begin() + static_cast<std::ptrdiff_t>(operand_), result);
  calls.map.outputs = call.outputs;
  return calls;
}

ProductMapOp::Panels ProductMapOp::panels_of(const Calls& calls) const {
  const LocalTensor& result = calls.product.outputs[0];
  Panels panels;
  panels.rows = panels.panel = result.shape().empty() ? 1 : result.shape()[0];
  panels.panel_bytes = result.bytes();
  if (!has_panels(*product_, calls.product)) {
    panels.workspace_bytes = product_->workspace_bytes(calls.product);
    return panels;
  }
  const std::int64_t count = std::max<std::int64_t>(result.bytes() / panel_bytes_, 1);
  const std::int64_t even = (panels.rows + count - 1) / count;
  panels.panel = std::min((even + kRowMultiple - 1) / kRowMultiple * kRowMultiple, panels.rows);
  panels.whole = false;
  panels.panel_bytes = panels.panel * bytes_of_row(result);
  return panels;
}

double ProductMapOp::flops(const LocalCall& call) const {
  const Calls calls = calls_of(call);
  return product_->flops(calls.product) + map_->flops(calls.map);
}

std::int64_t ProductMapOp::workspace_bytes(const LocalCall& call) const {
  const Panels panels = panels_of(calls_of(call));
  return kernels::aligned(panels.panel_bytes) + panels.workspace_bytes;
}

bool ProductMapOp::may_overwrite(std::size_t output, std::size_t input) const {
  const std::size_t own = product_operands();
  if (input < own) return false;
  const std::size_t other = input - own;
  return map_->may_overwrite(output, other < operand_ ? other : other + 1);
}

namespace {

/// One of the panels' two sizes.
struct PanelKernels {
  kernels::MatmulKernel product;
  kernels::MapKernel map;
};

template <typename Device>
PanelKernels prepare_panel(const EinsumPlan& plan, const MapOp& map, const LocalCall& call,
                           std::int64_t rows, const Device& device) {
  const LocalTensor& result = call.outputs[0];
  std::vector<kernels::MapTensor> inputs;
  std::vector<kernels::MapTensor> outputs;
  for (const LocalTensor& tensor : call.inputs) {
    const bool moves = has_rows(tensor, result);
    inputs.push_back({moves ? first_rows(tensor, rows).shape() : tensor.shape(), tensor.dtype});
  }
  for (const LocalTensor& tensor : call.outputs) {
    outputs.push_back({first_rows(tensor, rows).shape(), tensor.dtype});
  }
  return {kernels::prepare_matmul(rows_of(plan.product, rows), device),
          kernels::prepare_map(map.program(), inputs, outputs, device)};
}

}  // namespace

struct ProductMapOp::Run {
  PanelKernels panel;
  PanelKernels last;
  std::int64_t rows = 0;
  std::int64_t panel_rows = 0;
  std::int64_t row_bytes = 0;  // of the product's first operand
  std::size_t own = 2;         // operands of the product
  std::size_t operand = 0;
  // Bytes of a row of the map's operands and results; 0: the same for all rows.
  std::vector<std::int64_t> inputs;
  std::vector<std::int64_t> outputs;
  // Reused by every call: kernels are not reentrant.
  std::vector<const void*> in;
  std::vector<void*> out;

  void operator()(const void* const* operands, void* const* results, void* workspace) {
    const auto* a = static_cast<const std::byte*>(operands[0]);
    for (std::int64_t row = 0; row < rows; row += panel_rows) {
      PanelKernels& kernels = rows - row < panel_rows ? last : panel;
      kernels.product(a + row * row_bytes, operands[1], own == 3 ? operands[2] : nullptr, workspace,
                      nullptr);
      for (std::size_t i = 0, next = own; i < in.size(); ++i) {
        in[i] = i == operand ? workspace
                             : static_cast<const std::byte*>(operands[next++]) + row * inputs[i];
      }
      for (std::size_t o = 0; o < out.size(); ++o) {
        out[o] = static_cast<std::byte*>(results[o]) + row * outputs[o];
      }
      kernels.map(in.data(), out.data());
    }
  }
};

graph::Kernel ProductMapOp::prepare(const LocalCall& call, const kernels::Device& device) const {
  const Calls calls = calls_of(call);
  const Panels panels = panels_of(calls);
  const std::size_t own = product_operands();
  if (panels.whole) {
    const std::int64_t skip = kernels::aligned(panels.panel_bytes);
    std::vector<const void*> in(calls.map.inputs.size());
    return
        [product = product_->prepare(calls.product, device), map = map_->prepare(calls.map, device),
         in, own, operand = operand_, skip](const void* const* operands, void* const* results,
                                            void* workspace, const graph::StepState& step) mutable {
          auto* memory = static_cast<std::byte*>(workspace);
          const std::array<void*, 1> made = {memory};
          product(operands, made.data(), memory + skip, step);
          for (std::size_t i = 0, next = own; i < in.size(); ++i) {
            in[i] = i == operand ? memory : operands[next++];
          }
          map(in.data(), results, memory + skip, step);
        };
  }
  Run run;
  const EinsumPlan plan = plan_of(*product_, calls.product);
  const LocalTensor& result = calls.product.outputs[0];
  const std::int64_t rest = panels.rows % panels.panel;
  std::visit(
      [&](const auto& which) {
        run.panel = prepare_panel(plan, *map_, calls.map, panels.panel, which);
        if (rest > 0) run.last = prepare_panel(plan, *map_, calls.map, rest, which);
      },
      device);
  run.rows = panels.rows;
  run.panel_rows = panels.panel;
  run.row_bytes =
      plan.product.a.row * static_cast<std::int64_t>(size_of(calls.product.inputs[0].dtype));
  run.own = own;
  run.operand = operand_;
  for (const LocalTensor& tensor : calls.map.inputs) {
    run.inputs.push_back(has_rows(tensor, result) ? bytes_of_row(tensor) : 0);
  }
  for (const LocalTensor& tensor : call.outputs) run.outputs.push_back(bytes_of_row(tensor));
  run.in.resize(calls.map.inputs.size());
  run.out.resize(call.outputs.size());
  return
      [run = std::move(run)](const void* const* in, void* const* out, void* workspace,
                             const graph::StepState& /*step*/) mutable { run(in, out, workspace); };
}

}  // namespace tessera::ops
