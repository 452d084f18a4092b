// The training step as a static graph: nodes in topological order, edges are indices.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "layouts/placement.h"
#include "runtime/graph/op.h"

namespace tessera::graph {

/// Part of the step that a node (and a collective) belongs to.
enum class Phase : std::uint8_t { forward, backward, update, metrics };
std::string_view name_of(Phase phase);

struct SymbolicTensor;  // runtime/graph/builder.h

using NodeId = std::int32_t;
using VariableId = std::int32_t;

/// How a variable's first value is drawn; evaluated shard by shard, element by global index
/// (exec::initialize).
struct Initializer {
  enum class Kind : std::uint8_t {
    zeros,
    ones,
    constant,
    random_normal,
    random_uniform,
    truncated_normal,
    identity,
    orthogonal,
    values
  };
  Kind kind = Kind::zeros;
  double a = 0.0;                                    // constant value, mean, lower limit, gain
  double b = 0.0;                                    // standard deviation, upper limit
  std::optional<std::uint64_t> seed;                 // absent: the run's seed
  std::shared_ptr<const std::vector<float>> values;  // kind values: the whole tensor, row-major
};

/// What a variable is for: decides checkpoints, memory reports and which layout it gets.
enum class Role : std::uint8_t {
  weight,     // of a layer; in weights files
  optimizer,  // slot or scalar of an optimizer
  metric,     // total of a metric or loss; storage may stay pending
};

struct Variable {
  std::string path;  // "sequential/dense/kernel", "adam/iteration"
  Shape shape;
  DType dtype = DType::float32;
  Initializer initializer;
  bool trainable = true;
  Role role = Role::weight;
  VariableId slot_of = -1;  // optimizer slots: the variable whose layout is inherited
  /// How slots with another shape inherit: slot dimension i is dimension slot_dims[i] of the
  /// variable (-1: none). Empty: the same.
  std::vector<int> slot_dims;
  /// Set by layout binding; metric variables get theirs from the compiler.
  std::optional<layouts::Placement> storage;
  std::optional<layouts::Placement> compute;  // where it differs from storage (ZeRO 3)
  /// Penalty added to the loss (a scalar), and projection applied after each update; absent: none.
  /// Set by layers.
  std::function<SymbolicTensor(SymbolicTensor)> regularizer;
  std::function<SymbolicTensor(SymbolicTensor)> constraint;
};

/// Variables of a run: shared by all its graphs (train, evaluate, predict; full and last batch).
/// Ids are stable.
class VariableTable {
 public:
  /// Adds a variable, or returns the id of the one with this path when shape and dtype agree (else
  /// throws config).
  VariableId declare(Variable variable);
  std::optional<VariableId> find(std::string_view path) const;
  Variable& operator[](VariableId id) { return variables_[static_cast<std::size_t>(id)]; }
  const Variable& operator[](VariableId id) const {
    return variables_[static_cast<std::size_t>(id)];
  }
  std::size_t size() const { return variables_.size(); }

 private:
  std::vector<Variable> variables_;
  std::map<std::string, VariableId, std::less<>> by_path_;
};

/// A value: result of a node, an input of the step, or a variable as it is when the step starts.
struct Value {
  enum class Source : std::uint8_t { node, input, variable };
  Source source = Source::node;
  ValueType type;
  NodeId producer = -1;      // source node
  int output = 0;            // source node: which result
  VariableId variable = -1;  // source variable
  /// For reports: "dense/output", an input's name, a variable's path, "gradient of dense/kernel".
  std::string path;
  /// Pinned placement: the value is converted to it right after it is produced, and every use sees
  /// it there.
  std::optional<layouts::Placement> pin;
};

struct Node {
  std::shared_ptr<const Op> op;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::string path;  // layer or purpose: "sequential/dense", "loss", "adam"
  Phase phase = Phase::forward;
};

/// New value of a variable at the end of the step.
struct Assignment {
  VariableId variable = -1;
  ValueId value = kNoValue;
};

/// A named result of the step. Read by the host after it.
struct Output {
  std::string name;  // "loss", "predictions/0"
  ValueId value = kNoValue;
};

/// One step. `variables` outlives the graph.
struct Graph {
  explicit Graph(VariableTable& table) : variables(&table) {}

  VariableTable* variables;
  std::deque<Value> values;  // a deque: references to shapes stay valid while nodes are added
  std::vector<Node> nodes;
  std::vector<ValueId> inputs;  // values with Source::input, in the order the executor takes them
  std::vector<Assignment> assignments;
  std::vector<Output> outputs;

  const Value& value(ValueId id) const { return values[static_cast<std::size_t>(id)]; }
  Value& value(ValueId id) { return values[static_cast<std::size_t>(id)]; }
  const ValueType& type(ValueId id) const { return value(id).type; }
};

/// Checks that nodes are in topological order, ids are in range, types are what `infer` says,
/// assignments fit. Throws internal.
void verify(const Graph& graph);
/// One line a node: for TESSERA_DUMP=graph and tests.
std::string to_string(const Graph& graph);

}  // namespace tessera::graph
