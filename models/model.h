// A Keras model read from JSON: layers, their weights, and the forward graph.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "runtime/graph/builder.h"
#include "runtime/train/step.h"

namespace tessera::models {

/// One row of the summary.
struct LayerRow {
  std::string name, class_name, output_shape, connected_to;
  std::int64_t parameters = 0;
  int depth = 0;                              // nested models
  std::vector<graph::VariableId> variables;
};

/// Sequential or Functional, Keras 3 form or Keras 2's. Immutable after `declare`.
class Model {
 public:
  /// Problems (unknown layers are named together with the list of those that exist, wrong arguments, shapes that do not fit) are collected.
  /// `policy` is the dtype policy of layers that name none or "float32" by default. Returns nullptr when problems were added.
  static std::unique_ptr<Model> read(const json::Value& value, const std::string& path, const std::string& policy, json::Problems& problems);
  virtual ~Model() = default;

  virtual const std::string& name() const = 0;
  virtual const std::vector<train::TensorSpec>& inputs() const = 0;
  virtual const std::vector<train::TensorSpec>& outputs() const = 0;
  /// Declares all weights in Keras's order of creation: paths, shapes, initializers, trainable, regularizers, constraints. Once; collects problems.
  virtual void declare(graph::VariableTable& table, json::Problems& problems) = 0;
  /// Weights in order of declaration.
  virtual const std::vector<graph::VariableId>& weights() const = 0;
  /// Paths and shapes ([batch, ...]) of all layer outputs for a batch: keys "<layer path>/output" that a LayoutMap may name.
  virtual std::vector<std::pair<std::string, Shape>> output_paths(std::int64_t batch) const = 0;
  /// Adds the forward nodes. Every layer's output is named "<layer path>/output" and pinned through `place` where that gives a placement.
  virtual train::ForwardResult forward(graph::Builder& builder, const std::vector<graph::SymbolicTensor>& inputs, bool training) const = 0;
  /// Seed of dropout and noise streams, and placements of layer outputs: set before `forward`.
  std::uint64_t seed = 0;
  std::function<std::optional<layouts::Placement>(const std::string& path, const Shape& shape)> place;

  virtual std::vector<LayerRow> rows() const = 0;
  /// The model's JSON as it was read.
  virtual const json::Value& json() const = 0;
};

/// Names of all layer classes that can be read, sorted.
std::vector<std::string> layer_classes();

}  // namespace tessera::models
