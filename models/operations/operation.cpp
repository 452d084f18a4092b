#include "models/operations/operation.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/ops/ops.h"

namespace tessera::models {
namespace operations {
namespace {

class Operation : public Layer {
 public:
  Operation(LayerInfo info, Function function)
      : Layer(std::move(info)), function_(std::move(function)) {}

 protected:
  bool casts_inputs() const override { return false; }
  bool names_outputs() const override { return false; }

  std::vector<MaskedTensor> call(Pass& pass, const CallArguments& arguments) override {
    std::vector<Argument> operands = arguments.positional;
    for (const auto& entry : arguments.named) operands.push_back(entry.second);
    return {{function_(pass, operands), {}}};
  }

 private:
  Function function_;
};

// Constants take the dtype of the tensors they meet; a fraction makes whole numbers floats.
DType constant_dtype(const json::Value& constant, const std::vector<Argument>& arguments) {
  std::optional<DType> dtype;
  for (const Argument& argument : arguments) {
    if (argument.tensor.value) dtype = argument.tensor.value.dtype();
  }
  const bool fraction = constant.kind == json::Kind::number;
  if (!dtype || (fraction && !is_floating(*dtype))) return DType::float32;
  if (*dtype == DType::boolean && constant.kind == json::Kind::integer) return DType::int32;
  return *dtype;
}

}  // namespace

std::unique_ptr<Layer> make_operation(LayerInfo info, Function function) {
  return std::make_unique<Operation>(std::move(info), std::move(function));
}

SymbolicTensor tensor_at(Pass& pass, const std::vector<Argument>& arguments, std::size_t index) {
  if (index >= arguments.size()) {
    throw Error(Error::Kind::config,
                fmt::format("called with {} arguments, expected more", arguments.size()));
  }
  const Argument& argument = arguments[index];
  if (argument.tensor.value) return argument.tensor.value;
  const json::Value* constant = argument.constant;
  if (constant != nullptr && (constant->is_number() || constant->kind == json::Kind::boolean)) {
    const double value = constant->is_number() ? constant->number : (constant->boolean ? 1.0 : 0.0);
    return ops::full(pass.builder(), Shape{}, value, constant_dtype(*constant, arguments));
  }
  throw Error(Error::Kind::config, fmt::format("argument {} must be a tensor or a number", index));
}

std::pair<SymbolicTensor, SymbolicTensor> promote(SymbolicTensor a, SymbolicTensor b) {
  if (a.dtype() == b.dtype()) return {a, b};
  const auto rank = [](DType dtype) {
    switch (dtype) {
      case DType::boolean:
        return 0;
      case DType::uint8:
        return 1;
      case DType::int32:
        return 2;
      case DType::int64:
        return 3;
      case DType::float16:
      case DType::bfloat16:
        return 4;
      case DType::float32:
        return 5;
      case DType::float64:
        return 6;
    }
    return 0;
  };
  DType common = rank(a.dtype()) >= rank(b.dtype()) ? a.dtype() : b.dtype();
  if (rank(a.dtype()) == 4 && rank(b.dtype()) == 4) common = DType::float32;
  return {a.dtype() == common ? a : ops::cast(a, common),
          b.dtype() == common ? b : ops::cast(b, common)};
}

}  // namespace operations

const LayerFactory* find_operation(const std::string& class_name) {
  for (const auto* table : {&operations::elementwise_table(), &operations::reduction_table(),
                            &operations::shape_table()}) {
    for (const LayerEntry& entry : *table) {
      if (class_name == entry.class_name) return &entry.factory;
    }
  }
  return nullptr;
}

std::vector<std::string> operation_classes() {
  std::vector<std::string> names;
  for (const auto* table : {&operations::elementwise_table(), &operations::reduction_table(),
                            &operations::shape_table()}) {
    for (const LayerEntry& entry : *table) names.emplace_back(entry.class_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tessera::models
