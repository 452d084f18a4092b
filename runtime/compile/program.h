// The flat program of one rank: what the compiler makes, the executor walks, and `plan` prints.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layouts/mesh.h"
#include "layouts/placement.h"
#include "runtime/graph/graph.h"

namespace tessera::compile {

/// Index into Program::tensors.
using TensorId = std::int32_t;

/// One local tensor and where it lies.
struct ProgramTensor {
  enum class Space : std::uint8_t { arena, variable, input };
  Space space = Space::arena;
  std::int64_t offset = 0;           // bytes from the start of the arena
  graph::VariableId variable = -1;   // space variable
  int input = -1;                    // space input: position in Program::inputs
  graph::LocalTensor local;          // global shape, this rank's box, dtype
  layouts::Placement placement;
  std::string path;                  // for dumps and messages; may be empty
  TensorId content_of = -1;          // holds what this tensor holds: a reshape of it, or the sum made in place of its terms
  std::int64_t bytes() const;
};

enum class CollectiveKind : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_receive };
std::string_view name_of(CollectiveKind kind);

/// One collective of a step as `plan` prints it and the executor issues it. Buffers are flat: packing and unpacking are instructions of
/// their own where the layout in memory asks for them.
struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  graph::Phase phase = graph::Phase::forward;
  layouts::AxisList axes;                      // outer first
  std::vector<int> ranks;                      // the group of this rank, in that order
  DType dtype = DType::float32;
  std::int64_t elements = 0;                   // of the logical tensor as this group sees it: what an all_reduce moves, the whole of an all_gather
  std::int64_t bytes = 0;                      // elements times size
  TensorId send = -1;                          // all_reduce: in place, equal to `receive`; a bucket's first tensor
  TensorId receive = -1;
  std::vector<TensorId> members;               // what it sends: one tensor, or all of a bucket, which lie one after another
  std::vector<std::int64_t> send_counts;       // all_to_all; all_gather and reduce_scatter: counts per member in `receive_counts`
  std::vector<std::int64_t> receive_counts;
  std::vector<std::string> for_paths;          // what it carries: variables of a bucket, or a value's path
  std::string reason;                          // "sum over model: contraction dimension is sharded"
  std::string label;                           // kind and first path: for messages
};

struct Instruction {
  enum class Kind : std::uint8_t { compute, start, wait };
  Kind kind = Kind::compute;
  // compute
  std::shared_ptr<const graph::Op> op;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  std::int64_t workspace_offset = 0;           // in the arena; meaningful when workspace_bytes > 0
  std::int64_t workspace_bytes = 0;
  graph::Phase phase = graph::Phase::forward;
  std::string path;
  // start and wait
  int collective = -1;                         // index into Program::collectives
};

struct ProgramOutput {
  std::string name;
  TensorId tensor = -1;
};

/// A named value for reports: layer outputs and what else has a path, gradients left out.
struct ReportedValue {
  std::string path;
  Shape shape;
  layouts::Placement placement;
};

/// Why a node's operands were placed as they are: what `plan` can explain.
struct Decision {
  std::string path;      // of the node
  std::string op;
  std::string chosen;    // e.g. "k cut over model"
  std::string reason;    // e.g. "0 bytes to convert"
  std::string runner_up; // e.g. "n cut over model: 8192 bytes"
};

/// Bytes of this rank. Gradients, activations (everything else in the arena) and workspace: the most at any one time, each by itself, so
/// that they do not add up to the arena. Peak: variables, inputs and arena together.
struct MemoryReport {
  std::int64_t parameters = 0, gradients = 0, optimizer = 0, activations = 0, workspace = 0, peak = 0;
};

struct Program {
  layouts::Mesh mesh;
  int rank = 0;
  std::vector<ProgramTensor> tensors;
  std::vector<Instruction> instructions;
  std::vector<Collective> collectives;         // in the order in which they start
  std::vector<TensorId> inputs;                // in the order of Graph::inputs
  std::vector<std::string> input_names;
  std::vector<ProgramOutput> outputs;
  std::vector<graph::VariableId> assigned;     // variables that the program writes (their buffers, in place)
  std::int64_t arena_bytes = 0;
  std::uint64_t hash = 0;                      // of everything that must agree between ranks: the same on all ranks
  // for reports
  std::vector<ReportedValue> values;
  std::vector<Decision> decisions;
  MemoryReport memory;
  double flops_forward = 0;
  double flops_backward = 0;
};

std::string to_string(const Program& program);

}  // namespace tessera::compile
