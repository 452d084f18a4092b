#include "models/activations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/arguments.h"
#include "runtime/ops/ops.h"

namespace tessera::models {

using namespace ops;  // NOLINT: formulas read as formulas

SymbolicTensor leaky_relu(SymbolicTensor x, double negative_slope) {
  return where(greater_equal(x, 0.0), x, x * negative_slope);
}

SymbolicTensor elu(SymbolicTensor x, double alpha) {
  const SymbolicTensor positive = greater(x, 0.0);
  // Large positive x must not reach exp: infinity times the zero gradient of `where` would be NaN.
  const SymbolicTensor negative_part = expm1(where(positive, 0.0, x));
  return where(positive, x, alpha == 1.0 ? negative_part : negative_part * alpha);
}

SymbolicTensor rectify(SymbolicTensor x, double negative_slope, std::optional<double> max_value,
                       double threshold) {
  if (negative_slope != 0.0 && !max_value && threshold == 0.0) {
    return leaky_relu(x, negative_slope);
  }
  SymbolicTensor result;
  if (threshold != 0.0) {
    result = where(greater(x, threshold), x, 0.0);
    if (max_value) result = clip(result, 0.0, *max_value);
  } else {
    result = max_value ? clip(x, 0.0, *max_value) : relu(x);
  }
  if (negative_slope == 0.0) return result;
  const SymbolicTensor below = threshold != 0.0 ? relu(threshold - x) : relu(-x);
  return result - below * negative_slope;
}

SymbolicTensor glu(SymbolicTensor x, int dim) {
  const auto axis = static_cast<std::size_t>(dim < 0 ? dim + static_cast<int>(x.rank()) : dim);
  const std::int64_t size = x.shape()[axis];
  if (size % 2 != 0) {
    throw Error(Error::Kind::config,
                fmt::format("glu: dimension {} of {} must be even", dim, to_string(x.shape())));
  }
  const SymbolicTensor value = slice(x, dim, 0, size / 2);
  return value * sigmoid(slice(x, dim, size / 2, size / 2));
}

SymbolicTensor sparsemax(SymbolicTensor x) {
  // The threshold is the maximum over k of (sum of the k largest - 1) / k. For every element i, k
  // and the sum are taken over the elements j that are not smaller: n * n comparisons, no sorting.
  const SymbolicTensor rows = expand_dims(x, -1);     // [..., i, 1]
  const SymbolicTensor columns = expand_dims(x, -2);  // [..., 1, j]
  const SymbolicTensor not_smaller = cast(greater_equal(columns, rows), x.dtype());
  const SymbolicTensor count = sum(not_smaller, {-1});
  const SymbolicTensor total = sum(not_smaller * columns, {-1});
  const SymbolicTensor threshold = max((total - 1.0) / count, {-1}, true);
  return relu(x - threshold);
}

SymbolicTensor threshold(SymbolicTensor x, double threshold, double value) {
  return where(greater(x, threshold), x, value);
}

namespace {

SymbolicTensor soft_shrink(SymbolicTensor x) {
  constexpr double kThreshold = 0.5;
  return where(greater(x, kThreshold), x - kThreshold,
               where(less(x, -kThreshold), x + kThreshold, 0.0));
}

SymbolicTensor sparse_plus(SymbolicTensor x) {
  return where(less_equal(x, -1.0), 0.0, where(less(x, 1.0), square(x + 1.0) * 0.25, x));
}

SymbolicTensor hard_sigmoid(SymbolicTensor x) { return clip(x * (1.0 / 6.0) + 0.5, 0.0, 1.0); }

SymbolicTensor squareplus(SymbolicTensor x) { return (x + sqrt(square(x) + 4.0)) * 0.5; }

// Constants of Klambauer et al., "Self-Normalizing Neural Networks" (2017).
SymbolicTensor selu(SymbolicTensor x) {
  return elu(x, 1.6732632423543772848) * 1.0507009873554804934;
}

using Function = SymbolicTensor (*)(SymbolicTensor);

const std::map<std::string, Function, std::less<>>& functions() {
  static const std::map<std::string, Function, std::less<>> table{
      {"celu", [](SymbolicTensor x) { return elu(x, 1.0); }},
      {"elu", [](SymbolicTensor x) { return elu(x, 1.0); }},
      {"exponential", [](SymbolicTensor x) { return exp(x); }},
      {"gelu", [](SymbolicTensor x) { return gelu(x, false); }},
      {"glu", [](SymbolicTensor x) { return glu(x, -1); }},
      {"hard_shrink", [](SymbolicTensor x) { return where(greater(abs(x), 0.5), x, 0.0); }},
      {"hard_sigmoid", hard_sigmoid},
      {"hard_silu", [](SymbolicTensor x) { return x * hard_sigmoid(x); }},
      {"hard_swish", [](SymbolicTensor x) { return x * hard_sigmoid(x); }},
      {"hard_tanh", [](SymbolicTensor x) { return clip(x, -1.0, 1.0); }},
      {"leaky_relu", [](SymbolicTensor x) { return leaky_relu(x, 0.2); }},
      {"linear", [](SymbolicTensor x) { return x; }},
      {"log_sigmoid", [](SymbolicTensor x) { return -softplus(-x); }},
      {"log_softmax", [](SymbolicTensor x) { return log_softmax(x); }},
      {"mish", [](SymbolicTensor x) { return x * tanh(softplus(x)); }},
      {"relu", [](SymbolicTensor x) { return relu(x); }},
      {"relu6", [](SymbolicTensor x) { return clip(x, 0.0, 6.0); }},
      {"selu", selu},
      {"sigmoid", [](SymbolicTensor x) { return sigmoid(x); }},
      {"silu", [](SymbolicTensor x) { return silu(x); }},
      {"soft_shrink", soft_shrink},
      {"softmax", [](SymbolicTensor x) { return softmax(x); }},
      {"softplus", [](SymbolicTensor x) { return softplus(x); }},
      {"softsign", [](SymbolicTensor x) { return x / (abs(x) + 1.0); }},
      {"sparse_plus", sparse_plus},
      {"sparse_sigmoid", [](SymbolicTensor x) { return clip(x * 0.5 + 0.5, 0.0, 1.0); }},
      {"sparsemax", [](SymbolicTensor x) { return sparsemax(x); }},
      {"squareplus", squareplus},
      {"swish", [](SymbolicTensor x) { return silu(x); }},
      {"tanh", [](SymbolicTensor x) { return tanh(x); }},
      {"tanh_shrink", [](SymbolicTensor x) { return x - tanh(x); }},
  };
  return table;
}

// An activation layer given where a function is expected; nullopt when it is none of these.
std::optional<Activation> from_layer(const json::Identifier& identifier, const std::string& path,
                                     json::Problems& problems) {
  json::Arguments config(*identifier.config, path + ".config", problems);
  config.ignore_rest();
  if (identifier.class_name == "ReLU") {
    const double slope = config.number("negative_slope", 0.0, 0.0);
    const auto most = config.optional_number("max_value", 0.0);
    const double from = config.number("threshold", 0.0, 0.0);
    return [=](SymbolicTensor x) { return rectify(x, slope, most, from); };
  }
  if (identifier.class_name == "LeakyReLU") {
    const double slope = config.number("negative_slope", config.number("alpha", 0.3));
    return [=](SymbolicTensor x) { return leaky_relu(x, slope); };
  }
  if (identifier.class_name == "ELU") {
    const double alpha = config.number("alpha", 1.0);
    return [=](SymbolicTensor x) { return elu(x, alpha); };
  }
  if (identifier.class_name == "Softmax") {
    const auto dim = static_cast<int>(config.integer("axis", -1, -8, 8));
    return [=](SymbolicTensor x) { return softmax(x, dim); };
  }
  if (identifier.class_name == "Activation") {
    return make_activation(config.value("activation"), config.path_of("activation"), problems);
  }
  return std::nullopt;
}

}  // namespace

Activation make_activation(const json::Value* value, const std::string& path,
                           json::Problems& problems) {
  if (value == nullptr || value->is_null()) return {};
  const json::Identifier identifier = json::read_identifier(*value, path, problems);
  if (identifier.class_name.empty() || identifier.class_name == "linear") return {};
  if (const auto found = functions().find(identifier.class_name); found != functions().end()) {
    return found->second;
  }
  if (value->is_object()) {
    if (auto activation = from_layer(identifier, path, problems)) return *activation;
  }
  const std::vector<std::string> names = activation_names();
  problems.add(
      {identifier.at->file ? *identifier.at->file : "", identifier.at->position, path,
       fmt::format("unknown activation \"{}\"{}; known are {}",
                   json::printable(identifier.class_name),
                   json::did_you_mean(identifier.class_name, names), fmt::join(names, ", "))});
  return {};
}

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const auto& entry : functions()) names.push_back(entry.first);
  return names;
}

}  // namespace tessera::models
