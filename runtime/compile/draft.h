// A program while the passes work on it: nodes on placed values, before memory and order are fixed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "layouts/mesh.h"
#include "layouts/placement.h"
#include "layouts/reshard.h"
#include "runtime/compile/program.h"
#include "runtime/graph/graph.h"

namespace tessera::compile {

/// Index into Draft::values.
using DraftId = std::int32_t;
inline constexpr DraftId kNoDraft = -1;
/// Paths of gradients of variables start with it.
inline constexpr std::string_view kGradientPrefix = "gradient of ";

/// A value of the graph at one placement, or a packed buffer of a collective.
struct DraftValue {
  graph::ValueType type;
  layouts::Placement placement;  // axes of size 1 left out
  graph::Value::Source source = graph::Value::Source::node;
  graph::VariableId variable = -1;          // source variable
  int input = -1;                           // source input: position in Graph::inputs
  graph::ValueId origin = graph::kNoValue;  // the graph's value that it holds
  std::string path;
  /// Parts of this rank one after another, in the order of a collective's members: type.shape is
  /// one-dimensional and differs between ranks.
  bool flat = false;
  bool gradient = false;  // of a variable: for the memory report
};

/// What a collective needs beside its values; counts are of the compiled rank.
struct DraftCollective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  layouts::AxisList axes;  // outer first
  std::vector<int> ranks;
  std::int64_t elements = 0;
  std::vector<std::int64_t> send_counts;
  std::vector<std::int64_t> receive_counts;
  std::vector<std::string> for_paths;
};

struct DraftNode {
  enum class Kind : std::uint8_t { compute, convert, collective };
  Kind kind = Kind::compute;
  std::shared_ptr<const graph::Op> op;  // compute
  layouts::ReshardStep step;            // convert
  DraftCollective collective;           // collective: inputs are sent, outputs received, pairwise
  std::vector<DraftId> inputs;
  std::vector<DraftId> outputs;
  graph::Phase phase = graph::Phase::forward;
  std::string path;
  std::string reason;     // convert and collective: why
  bool internal = false;  // compute: made by the compiler, shapes are local
};

struct DraftAssignment {
  graph::VariableId variable = -1;
  DraftId value = kNoDraft;
};

struct DraftOutput {
  std::string name;
  DraftId value = kNoDraft;
};

struct Draft {
  const graph::Graph* graph = nullptr;
  layouts::Mesh mesh;
  std::vector<DraftValue> values;
  std::vector<DraftNode> nodes;  // in topological order
  std::vector<DraftId> inputs;   // in the order of Graph::inputs
  std::vector<DraftAssignment> assignments;
  std::vector<DraftOutput> outputs;
  std::vector<ReportedValue> reported;
  std::vector<Decision> decisions;

  DraftValue& value(DraftId id) { return values[static_cast<std::size_t>(id)]; }
  const DraftValue& value(DraftId id) const { return values[static_cast<std::size_t>(id)]; }
  DraftNode& node(std::int32_t id) { return nodes[static_cast<std::size_t>(id)]; }
  const DraftNode& node(std::int32_t id) const { return nodes[static_cast<std::size_t>(id)]; }
  DraftId add(DraftValue value);
  const graph::VariableTable& variables() const { return *graph->variables; }
};

/// Who makes and who reads each value of a draft, by index of node.
struct Links {
  std::vector<std::int32_t> producer;                // -1: a variable or an input
  std::vector<std::vector<std::int32_t>> consumers;  // each node once, in order
  std::vector<bool> held;                            // an output or an assignment
};
Links link(const Draft& draft);

/// Removes the marked nodes; the others keep their order.
void remove_nodes(Draft& draft, const std::vector<bool>& removed);

/// Removes nodes none of whose results is read.
void remove_unread(Draft& draft);

/// Placement without axes of size 1, which put no byte elsewhere.
layouts::Placement without_trivial_axes(const layouts::Placement& placement,
                                        const layouts::Mesh& mesh);

/// A packed key of a placement for maps.
std::string key_of(const layouts::Placement& placement);

/// The part of a value that `rank` holds; packed buffers as they are.
graph::LocalTensor local_of(const Draft& draft, DraftId id, int rank);

/// "model" or "batch, model".
std::string axes_text(const layouts::Mesh& mesh, const layouts::AxisList& axes);

/// Checks that nodes are in topological order and every value is made once. Throws internal with
/// the name of the pass.
void verify(const Draft& draft, const char* pass);
std::string to_string(const Draft& draft);

}  // namespace tessera::compile
