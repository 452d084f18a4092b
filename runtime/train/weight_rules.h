// What a layer can say about a weight: initializer, regularizer, constraint. Keras's names and
// arguments.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/json.h"
#include "runtime/graph/builder.h"

namespace tessera::train {

/// Input and output dimensions for fans (EinsumDense passes its own); empty: Keras's rule by rank.
struct FanAxes {
  std::vector<int> input;
  std::vector<int> output;
};

/// From "glorot_uniform", {"class_name": "RandomNormal", "config": {...}}, resolved for a shape.
graph::Initializer make_initializer(const json::Value& value, const std::string& path,
                                    const Shape& shape, json::Problems& problems,
                                    const FanAxes& axes = {});

/// A scalar penalty of a weight (or of a layer's output: activity regularizers); null or absent:
/// empty function.
std::function<graph::SymbolicTensor(graph::SymbolicTensor)> make_regularizer(
    const json::Value& value, const std::string& path, json::Problems& problems);

/// Projection of a weight after each update.
std::function<graph::SymbolicTensor(graph::SymbolicTensor)> make_constraint(
    const json::Value& value, const std::string& path, json::Problems& problems);

}  // namespace tessera::train
