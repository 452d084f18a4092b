// Constraints: how weights are projected after each update.
#include "runtime/ops/ops.h"
#include "runtime/train/named_entry.h"
#include "runtime/train/weight_rules.h"

namespace tessera::train {
namespace {

using graph::SymbolicTensor;
using ops::operator+;
using ops::operator*;
using ops::operator/;
using Constraint = std::function<SymbolicTensor(SymbolicTensor)>;

constexpr double kEpsilon = 1e-7;  // keras.config.epsilon()

std::vector<int> read_axes(json::Arguments& arguments) {
  std::vector<int> axes;
  for (const std::int64_t axis :
       arguments.integers("axis").value_or(std::vector<std::int64_t>{0})) {
    axes.push_back(static_cast<int>(axis));
  }
  return axes;
}

SymbolicTensor norms_over(SymbolicTensor weight, const std::vector<int>& axes) {
  return ops::sqrt(ops::sum(ops::square(weight), axes, true));
}

Constraint max_norm(json::Arguments& arguments) {
  const double most = arguments.number("max_value", 2.0);
  const std::vector<int> axes = read_axes(arguments);
  return [=](SymbolicTensor weight) {
    const SymbolicTensor norms = norms_over(weight, axes);
    return weight * (ops::minimum(norms, most) / (norms + kEpsilon));
  };
}

Constraint min_max_norm(json::Arguments& arguments) {
  const double least = arguments.number("min_value", 0.0);
  const double most = arguments.number("max_value", 1.0);
  const double rate = arguments.number("rate", 1.0);
  const std::vector<int> axes = read_axes(arguments);
  return [=](SymbolicTensor weight) {
    const SymbolicTensor norms = norms_over(weight, axes);
    const SymbolicTensor wanted = rate * ops::clip(norms, least, most) + (1.0 - rate) * norms;
    return weight * (wanted / (norms + kEpsilon));
  };
}

Constraint unit_norm(json::Arguments& arguments) {
  const std::vector<int> axes = read_axes(arguments);
  return [=](SymbolicTensor weight) { return weight / (norms_over(weight, axes) + kEpsilon); };
}

Constraint non_negative(json::Arguments& /*arguments*/) {
  return [](SymbolicTensor weight) { return ops::maximum(weight, 0.0); };
}

struct Entry {
  const char* name;
  const char* alias;
  Constraint (*make)(json::Arguments&);
};
constexpr Entry kConstraints[] = {
    {"MaxNorm", "max_norm", max_norm},
    {"MinMaxNorm", "min_max_norm", min_max_norm},
    {"NonNeg", "non_neg", non_negative},
    {"UnitNorm", "unit_norm", unit_norm},
};

}  // namespace

Constraint make_constraint(const json::Value& value, const std::string& path,
                           json::Problems& problems) {
  if (value.is_null()) return {};
  const json::Identifier identifier = json::read_identifier(value, path, problems);
  const Entry* entry =
      find_entry(std::span<const Entry>(kConstraints), identifier, "constraint", path, problems);
  if (entry == nullptr) return {};
  json::Arguments arguments(*identifier.config, config_path(value, path), problems);
  Constraint constraint = entry->make(arguments);
  arguments.finish("argument");
  return constraint;
}

}  // namespace tessera::train
