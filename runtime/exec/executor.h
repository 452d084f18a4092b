// Runs programs: memory of a rank's variables, the arena, and the walk over instructions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "kernels/device.h"
#include "layouts/mesh.h"
#include "runtime/compile/program.h"
#include "runtime/graph/graph.h"

namespace tessera::exec {

/// This rank's parts of all variables. Placements must be known. Memory is allocated once, aligned
/// to 64 bytes, zeroed.
class Storage {
 public:
  Storage(const graph::VariableTable& table, const layouts::Mesh& mesh, int rank);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// Adds variables that were declared (or placed) after construction.
  void extend();
  const graph::VariableTable& table() const { return *table_; }
  const layouts::Mesh& mesh() const { return mesh_; }
  int rank() const { return rank_; }
  void* data(graph::VariableId id);
  const void* data(graph::VariableId id) const;
  /// The part of the variable that lies here.
  const Box& box(graph::VariableId id) const;
  std::int64_t local_bytes() const;

 private:
  struct Part;
  const Part& part(graph::VariableId id) const;

  const graph::VariableTable* table_;
  layouts::Mesh mesh_;
  int rank_;
  std::vector<Part> parts_;
};

/// Scratch memory that several programs use in turn: as large as the largest.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  /// Makes it at least this large. Contents are lost when it grows; programs find their new places
  /// at their next run.
  void reserve(std::int64_t bytes);
  std::byte* data() { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// One program, prepared: kernels chosen, addresses resolved, communicators made. Construction is
/// collective where the program has collectives; the first one compares the program's hash over all
/// ranks and throws rank_lost naming the ranks that differ.
class Executor {
 public:
  /// All arguments but the device outlive the executor.
  Executor(const compile::Program& program, Storage& storage, Arena& arena, comm::World& world,
           kernels::Device device);
  Executor(compile::Program&&, Storage&, Arena&, comm::World&, kernels::Device) = delete;
  ~Executor();

  /// Local parts of the inputs, in the order of Program::inputs.
  void run(std::span<const void* const> inputs, const graph::StepState& step);
  /// Local part of a named output, valid until the next run of any program in this arena. Throws
  /// internal when there is none.
  const void* output(std::string_view name) const;
  const compile::Program& program() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

// ---- whole tensors ----

/// Fills variables with role `role` from their initializers, element by element by global index:
/// the same values on every mesh.
void initialize(Storage& storage, graph::VariableId id, std::uint64_t seed);

/// The value of a metric variable: terms of pending sums are added over the job. Collective. One
/// double per element.
std::vector<double> read_whole(Storage& storage, graph::VariableId id, comm::World& world);
/// Writes a whole tensor (given in full on every rank) into the local parts; pending variables keep
/// it on one rank.
void write_whole(Storage& storage, graph::VariableId id, std::span<const double> values);

}  // namespace tessera::exec
