// Evaluation of nodes on constants, and shorter ways past broadcasts.
#include "runtime/compile/fold.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "runtime/ops/map.h"
#include "runtime/ops/source.h"

namespace tessera::compile {
namespace {

using graph::Node;
using graph::ValueId;
using ops::FullOp;
using ops::MapOp;

const FullOp* constant_of(const graph::Graph& graph, ValueId id) {
  const graph::Value& value = graph.value(id);
  if (value.source != graph::Value::Source::node) return nullptr;
  return dynamic_cast<const FullOp*>(
      graph.nodes[static_cast<std::size_t>(value.producer)].op.get());
}

graph::LocalTensor scalar(DType dtype) { return {Shape{}, Box{}, dtype}; }

/// The constant's element, where its dtype holds the value exactly as float64 does.
std::optional<double> read(const void* memory, DType dtype) {
  switch (dtype) {
    case DType::float32: {
      float value = 0;
      std::memcpy(&value, memory, sizeof(value));
      return value;
    }
    case DType::float64: {
      double value = 0;
      std::memcpy(&value, memory, sizeof(value));
      return value;
    }
    case DType::int32: {
      std::int32_t value = 0;
      std::memcpy(&value, memory, sizeof(value));
      return value;
    }
    default:
      return std::nullopt;
  }
}

/// What a node gives for one element of each operand.
std::optional<double> evaluate(const graph::Graph& graph, const Node& node) {
  graph::LocalCall call;
  std::vector<double> operands(node.inputs.size());  // 8 bytes hold an element of any dtype
  std::vector<const void*> inputs;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const FullOp* full = constant_of(graph, node.inputs[i]);
    const graph::LocalTensor local = scalar(graph.type(node.inputs[i]).dtype);
    void* memory = &operands[i];
    full->prepare({{}, {local}}, kernels::CpuDevice{1})(nullptr, &memory, nullptr, {});
    call.inputs.push_back(local);
    inputs.push_back(&operands[i]);
  }
  const DType dtype = graph.type(node.outputs.front()).dtype;
  call.outputs = {scalar(dtype)};
  double result = 0;
  void* memory = &result;
  node.op->prepare(call, kernels::CpuDevice{1})(inputs.data(), &memory, nullptr, {});
  return read(&result, dtype);
}

}  // namespace

void fold_constants(graph::Graph& graph) {
  for (Node& node : graph.nodes) {
    if (node.inputs.empty() || node.outputs.size() != 1) continue;
    const bool constant =
        std::all_of(node.inputs.begin(), node.inputs.end(),
                    [&graph](ValueId input) { return constant_of(graph, input) != nullptr; });
    if (!constant) continue;
    std::optional<double> value;
    if (node.op->only_moves()) {
      value = constant_of(graph, node.inputs.front())->value();
    } else if (dynamic_cast<const MapOp*>(node.op.get()) != nullptr) {
      value = evaluate(graph, node);
    }
    if (!value) continue;
    const graph::ValueType& type = graph.type(node.outputs.front());
    node.op = std::make_shared<const FullOp>(type.shape, *value, type.dtype);
    node.inputs.clear();
  }
}

void skip_broadcasts(graph::Graph& graph) {
  for (Node& node : graph.nodes) {
    if (dynamic_cast<const MapOp*>(node.op.get()) == nullptr) continue;
    std::vector<Shape> shapes;
    for (const ValueId input : node.inputs) shapes.push_back(graph.type(input).shape);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const graph::Value& value = graph.value(node.inputs[i]);
      if (value.source != graph::Value::Source::node || value.pin) continue;
      const Node& producer = graph.nodes[static_cast<std::size_t>(value.producer)];
      if (!producer.op->is_broadcast()) continue;
      const Shape whole = std::exchange(shapes[i], graph.type(producer.inputs.front()).shape);
      if (ops::broadcast_shape(shapes) == graph.type(node.outputs.front()).shape) {
        node.inputs[i] = producer.inputs.front();
      } else {
        shapes[i] = whole;
      }
    }
  }
}

}  // namespace tessera::compile
