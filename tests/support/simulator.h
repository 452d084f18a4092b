// Runs the programs of all ranks in one process, instruction by instruction, with collectives made
// across the ranks' memories: what the compiler makes, without MPI and without the executor.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/compile/compile.h"
#include "runtime/compile/program.h"
#include "runtime/graph/graph.h"
#include "tests/support/buffer.h"

namespace tessera::testing {

/// Use:
///     Simulator simulator(graph, mesh);
///     simulator.set_input("x", whole);
///     simulator.set_variable(kernel, whole);
///     simulator.run();
///     simulator.output("loss");      // whole tensors, sums made
///     simulator.variable(kernel);
/// All values go in and out whole; copies that ranks hold are compared bit by bit. Memory that
/// holds nothing is filled with NaN patterns, and what a collective sends must stay as it was until
/// the wait.
class Simulator {
 public:
  /// Compiles for every rank. Throws internal when hashes, instructions or collectives of two ranks
  /// differ.
  Simulator(const graph::Graph& graph, const layouts::Mesh& mesh,
            const compile::Options& options = {});
  ~Simulator();

  void set_input(std::string_view name, const std::vector<double>& values);
  void set_variable(graph::VariableId id, const std::vector<double>& values);
  void run(std::uint64_t step = 0);
  std::vector<double> output(std::string_view name) const;
  std::vector<double> variable(graph::VariableId id) const;

  const compile::Program& program(int rank = 0) const {
    return programs_[static_cast<std::size_t>(rank)];
  }

 private:
  struct Rank;

  void execute(std::size_t instruction, std::uint64_t step);
  void start(std::size_t index);
  void wait(std::size_t index);
  void exchange(std::size_t index, int rank);
  std::vector<double> assemble(const Shape& shape, const layouts::Placement& placement,
                               const std::vector<std::vector<double>>& parts) const;

  const graph::Graph& graph_;
  layouts::Mesh mesh_;
  std::vector<compile::Program> programs_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace tessera::testing
