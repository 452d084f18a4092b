// Adds nodes to a graph. Gradients: runtime/ops/gradients.h (the walk adds nodes, so it stands
// above the ops).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/graph.h"

namespace tessera::graph {

/// A value while a graph is built, with the builder it belongs to: formulas read as formulas.
/// Operators and functions on it are in runtime/ops/ops.h. Default-constructed: no value.
struct SymbolicTensor {
  Builder* builder = nullptr;
  ValueId id = kNoValue;

  explicit operator bool() const { return builder != nullptr && id != kNoValue; }
  const Shape& shape() const;
  DType dtype() const;
  std::size_t rank() const { return shape().rank(); }
};

/// Appends nodes. An equal node (same op, attributes, inputs and phase, in the forward phase also
/// the same path, which reports name) is not added twice.
class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {
    for (const Assignment& known : graph.assignments)
      assigned_.emplace(known.variable, assigned_.size());
  }

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }

  SymbolicTensor input(std::string name, Shape shape, DType dtype);
  /// The variable as it is when the step starts; one value per variable however often it is asked
  /// for.
  SymbolicTensor variable(VariableId id);
  /// Adds a node; `infer` gives the results' types.
  std::vector<SymbolicTensor> add(std::shared_ptr<const Op> op,
                                  std::span<const SymbolicTensor> inputs);
  SymbolicTensor add_one(std::shared_ptr<const Op> op, std::span<const SymbolicTensor> inputs);
  SymbolicTensor wrap(ValueId id) { return {this, id}; }

  /// The variable's value at the end of the step: of several the last.
  void assign(VariableId variable, SymbolicTensor value);
  void output(std::string name, SymbolicTensor value);
  /// Names a value for reports and layouts ("dense/output").
  void name(SymbolicTensor value, std::string path);
  void pin(SymbolicTensor value, layouts::Placement placement);

  /// Path and phase given to the nodes that are added while a Scope lives. Paths nest with '/'.
  struct AbsolutePath {
    std::string_view path;
  };
  class Scope {
   public:
    Scope(Builder& builder, std::string_view name);
    Scope(Builder& builder, AbsolutePath path);  // replaces the path instead of extending it
    Scope(Builder& builder, Phase phase);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Builder& builder_;
    std::string path_;
    Phase phase_;
  };
  const std::string& path() const { return path_; }
  Phase phase() const { return phase_; }

 private:
  friend class Scope;
  Graph& graph_;
  std::string path_;
  Phase phase_ = Phase::forward;
  std::map<std::string, NodeId> known_;         // key of a node -> node
  std::map<VariableId, ValueId> variables_;     // values of variables
  std::map<VariableId, std::size_t> assigned_;  // position among the graph's assignments
};

}  // namespace tessera::graph
