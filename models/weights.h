// Weights of layers while a model is read: what their configs say, and the list they form.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/arguments.h"
#include "runtime/graph/graph.h"
#include "runtime/train/weight_rules.h"

namespace tessera::models {

/// Index into the model's weights, in Keras's order of creation; default-constructed: no weight.
struct Weight {
  int index = -1;
  explicit operator bool() const { return index >= 0; }
};

/// What a layer's config says about one weight.
struct WeightConfig {
  json::Value initializer;  // as written, or the name of the default
  std::string path;         // of the initializer, for problems
  std::function<graph::SymbolicTensor(graph::SymbolicTensor)> regularizer;
  std::function<graph::SymbolicTensor(graph::SymbolicTensor)> constraint;
};

/// Reads "<name>_initializer", "<name>_regularizer" and "<name>_constraint".
WeightConfig read_weight(json::Arguments& config, std::string_view name,
                         std::string_view default_initializer);

/// A weight that no config describes (moving statistics): only an initializer.
WeightConfig plain_weight(std::string_view initializer);

/// Collects the weights of a whole model, nested models included. Two layers whose weights have
/// one path are a problem that names both.
class WeightStore {
 public:
  explicit WeightStore(json::Problems& problems) : problems_(&problems) {}

  struct Owner {
    std::string layer;                // as shown: "inner/dense"
    const json::Value* at = nullptr;  // where to place problems
    std::string path;                 // of its JSON
  };
  Weight add(graph::Variable variable, const WeightConfig& config, const Owner& owner,
             const train::FanAxes& axes = {});

  const std::vector<graph::Variable>& variables() const { return variables_; }
  json::Problems& problems() { return *problems_; }
  /// The same weights as variables of the graph that the first pass builds.
  graph::VariableTable& table() { return table_; }
  const std::vector<graph::VariableId>& ids() const { return ids_; }

 private:
  json::Problems* problems_;
  graph::VariableTable table_;
  std::vector<graph::VariableId> ids_;
  std::vector<graph::Variable> variables_;
  std::map<std::string, std::pair<std::string, Weight>> owners_;  // path -> layer, weight
};

}  // namespace tessera::models
