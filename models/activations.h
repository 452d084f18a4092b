// Keras's activation functions as formulas over graph values.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "runtime/graph/builder.h"

namespace tessera::models {

using graph::SymbolicTensor;

/// Empty: the identity ("linear", null).
using Activation = std::function<SymbolicTensor(SymbolicTensor)>;

/// From a name ("relu"), a serialised function, or an activation layer without weights
/// ({"class_name": "LeakyReLU", "config": {...}}); null and a null pointer give the identity.
/// Unknown names are problems.
Activation make_activation(const json::Value* value, const std::string& path,
                           json::Problems& problems);

/// Names that `make_activation` knows, sorted.
std::vector<std::string> activation_names();

/// x above `threshold`, slope * (x - threshold) below it, cut at `max_value`: Keras's ReLU layer.
SymbolicTensor rectify(SymbolicTensor x, double negative_slope, std::optional<double> max_value,
                       double threshold);
SymbolicTensor leaky_relu(SymbolicTensor x, double negative_slope);
/// x above 0, alpha * (exp(x) - 1) below.
SymbolicTensor elu(SymbolicTensor x, double alpha);
/// The first half along `dim` times the sigmoid of the second.
SymbolicTensor glu(SymbolicTensor x, int dim);
/// Projection onto the probability simplex along the last dimension (Martins and Astudillo, 2016).
SymbolicTensor sparsemax(SymbolicTensor x);
/// x, but `value` where x is not above `threshold`.
SymbolicTensor threshold(SymbolicTensor x, double threshold, double value);

}  // namespace tessera::models
