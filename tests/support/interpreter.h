// Runs a graph as it stands: unsharded, on one rank, one node after another. The reference that
// compiled programs, layers, losses and optimizers are tested against.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "runtime/graph/graph.h"
#include "tests/support/buffer.h"

namespace tessera::testing {

/// Use:
///     graph::VariableTable table;
///     graph::Graph graph(table);
///     graph::Builder builder(graph);
///     ... add nodes, builder.output("loss", loss), builder.assign(kernel, kernel - 0.1 * gradient)
///     ... Interpreter interpreter(graph); interpreter.set_input("x", {1, 2, 3});
///     interpreter.set_variable(kernel, {4, 5});
///     interpreter.run();
///     interpreter.output("loss");    // results of this run
///     interpreter.variable(kernel);  // after the assignments of this run
/// Values go in and out as doubles in row-major order whatever the dtype of the tensor. The graph
/// must outlive the interpreter and must not grow while it is used. Inputs and variables keep their
/// values between runs.
class Interpreter {
 public:
  /// Verifies the graph and prepares every node with full boxes. Variables start as their
  /// initializer says where that needs no random numbers (zeros, ones, constant, identity, values);
  /// the others must be set before `run`.
  explicit Interpreter(const graph::Graph& graph, int threads = 1);

  /// Throws internal when there is no such input or the number of values differs from its elements.
  void set_input(std::string_view name, const std::vector<double>& values);
  void set_variable(graph::VariableId id, const std::vector<double>& values);

  /// One step: runs all nodes, then applies all assignments at once. `step` counts random streams.
  /// Throws internal when an input or a variable that the graph reads has no value.
  void run(std::uint64_t step = 0);

  /// Any value of the graph as the last run left it (variables: as they were before its
  /// assignments).
  std::vector<double> value(graph::ValueId id) const;
  std::vector<double> output(std::string_view name) const;
  std::vector<double> variable(graph::VariableId id) const;
  /// The same, bit by bit.
  const Buffer& buffer(graph::ValueId id) const { return values_[static_cast<std::size_t>(id)]; }

 private:
  struct Call {
    graph::Kernel kernel;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
  };
  struct Storage {
    Buffer buffer;
    bool known = false;
  };

  Storage& storage(graph::VariableId id);
  void prepare(const graph::Node& node, int threads);

  const graph::Graph& graph_;
  std::vector<Buffer> values_;  // by ValueId; their memory never moves
  std::vector<bool> set_;       // by ValueId: inputs that have a value
  std::map<graph::VariableId, Storage> variables_;
  std::vector<Call> calls_;
  Buffer workspace_;
};

}  // namespace tessera::testing
