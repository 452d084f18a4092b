// Plain operations of keras.ops in Functional graphs: no weights, no casts, no output path.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/layer_table.h"

namespace tessera::models::operations {

/// What an operation computes from its arguments: tensors and constants in order.
using Function = std::function<SymbolicTensor(Pass& pass, const std::vector<Argument>& arguments)>;

std::unique_ptr<Layer> make_operation(LayerInfo info, Function function);

/// The tensor of argument `index`; a constant number becomes one of `like`'s dtype. Throws config
/// when there is none.
SymbolicTensor tensor_at(Pass& pass, const std::vector<Argument>& arguments, std::size_t index);

/// Both operands with one dtype, as Keras promotes them: whole numbers give way to floats.
std::pair<SymbolicTensor, SymbolicTensor> promote(SymbolicTensor a, SymbolicTensor b);

/// Tables of the families: (class name, factory).
const std::vector<LayerEntry>& elementwise_table();
const std::vector<LayerEntry>& reduction_table();
const std::vector<LayerEntry>& shape_table();

}  // namespace tessera::models::operations
