#include "models/weights.h"

#include <fmt/format.h>

namespace tessera::models {

WeightConfig read_weight(json::Arguments& config, std::string_view name,
                         std::string_view default_initializer) {
  static const json::Value kNone = json::make_null();
  const std::string prefix(name);
  const auto rule = [&](const char* suffix) -> const json::Value& {
    const json::Value* value = config.value(prefix + suffix);
    return value == nullptr ? kNone : *value;
  };
  WeightConfig result;
  const std::string key = prefix + "_initializer";
  const json::Value* initializer = config.value(key);
  result.initializer = initializer == nullptr || initializer->is_null()
                           ? json::make(std::string(default_initializer))
                           : *initializer;
  result.path = config.path_of(key);
  result.regularizer = train::make_regularizer(
      rule("_regularizer"), config.path_of(prefix + "_regularizer"), config.problems());
  result.constraint = train::make_constraint(
      rule("_constraint"), config.path_of(prefix + "_constraint"), config.problems());
  return result;
}

WeightConfig plain_weight(std::string_view initializer) {
  WeightConfig result;
  result.initializer = json::make(std::string(initializer));
  return result;
}

Weight WeightStore::add(graph::Variable variable, const WeightConfig& config, const Owner& owner,
                        const train::FanAxes& axes) {
  if (const auto found = owners_.find(variable.path); found != owners_.end()) {
    problems_->add({owner.at->file ? *owner.at->file : "", owner.at->position, owner.path,
                    fmt::format("layers \"{}\" and \"{}\" both have a variable called \"{}\"",
                                found->second.first, owner.layer, variable.path)});
    return found->second.second;
  }
  variable.initializer =
      train::make_initializer(config.initializer, config.path, variable.shape, *problems_, axes);
  variable.regularizer = config.regularizer;
  variable.constraint = config.constraint;
  const Weight weight{static_cast<int>(variables_.size())};
  owners_.emplace(variable.path, std::pair(owner.layer, weight));
  variables_.push_back(variable);
  ids_.push_back(table_.declare(std::move(variable)));
  return weight;
}

}  // namespace tessera::models
