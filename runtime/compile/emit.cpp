// Tensors, instructions, collectives and reports of one rank.
#include "runtime/compile/emit.h"

#include <algorithm>
#include <utility>

#include "runtime/compile/local_ops.h"

namespace tessera::compile {
namespace {

using graph::Phase;
using Kind = DraftNode::Kind;

class Emission {
 public:
  Emission(const Draft& draft, const std::vector<Event>& events, const MemoryPlan& memory, int rank)
      : draft_(draft),
        events_(events),
        memory_(memory),
        tensor_of_(draft.values.size(), -1),
        collective_of_(draft.nodes.size(), -1) {
    program_.mesh = draft.mesh;
    program_.rank = rank;
  }

  Program run() {
    for (const DraftId input : draft_.inputs) program_.inputs.push_back(tensor(input));
    for (const graph::ValueId id : draft_.graph->inputs) {
      program_.input_names.push_back(draft_.graph->value(id).path);
    }
    for (std::size_t i = 0; i < events_.size(); ++i) emit(i);
    for (const auto& [variable, value] : memory_.copies) copy_to_variable(variable, value);
    for (const DraftOutput& output : draft_.outputs) {
      program_.outputs.push_back({output.name, tensor(output.value)});
    }
    for (const DraftAssignment& assignment : draft_.assignments) {
      program_.assigned.push_back(assignment.variable);
    }
    program_.arena_bytes = memory_.arena_bytes;
    program_.values = draft_.reported;
    program_.decisions = draft_.decisions;
    report_memory();
    return std::move(program_);
  }

 private:
  TensorId tensor(DraftId id) {
    TensorId& known = tensor_of_[static_cast<std::size_t>(id)];
    if (known >= 0) return known;
    const DraftValue& value = draft_.value(id);
    const Place& place = memory_.places[static_cast<std::size_t>(id)];
    ProgramTensor made;
    made.space = place.space;
    made.offset = place.offset;
    made.variable = place.variable;
    made.input = place.input;
    made.local = local_of(draft_, id, program_.rank);
    made.placement = value.placement;
    made.path = value.path;
    if (place.content_of != kNoDraft) made.content_of = tensor(place.content_of);
    program_.tensors.push_back(std::move(made));
    known = static_cast<TensorId>(program_.tensors.size() - 1);
    return known;
  }

  void emit(std::size_t index) {
    const Event& event = events_[index];
    const DraftNode& node = draft_.node(event.node);
    Instruction made;
    made.kind = event.kind;
    made.phase = node.phase;
    made.path = node.path;
    if (event.kind == Instruction::Kind::compute) {
      made.op = node.op;
      made.workspace_offset = memory_.workspaces[index].offset;
      made.workspace_bytes = memory_.workspaces[index].bytes;
      for (const DraftId input : node.inputs) made.inputs.push_back(tensor(input));
      for (const DraftId output : node.outputs) made.outputs.push_back(tensor(output));
      count_flops(made);
    } else {
      int& known = collective_of_[static_cast<std::size_t>(event.node)];
      if (known < 0) known = add_collective(node);
      made.collective = known;
    }
    program_.instructions.push_back(std::move(made));
  }

  void count_flops(const Instruction& made) {
    graph::LocalCall call;
    for (const TensorId id : made.inputs) {
      call.inputs.push_back(program_.tensors[static_cast<std::size_t>(id)].local);
    }
    for (const TensorId id : made.outputs) {
      call.outputs.push_back(program_.tensors[static_cast<std::size_t>(id)].local);
    }
    const double flops = made.op->flops(call);
    if (made.phase == Phase::forward) program_.flops_forward += flops;
    if (made.phase == Phase::backward) program_.flops_backward += flops;
  }

  int add_collective(const DraftNode& node) {
    const DraftCollective& source = node.collective;
    Collective made;
    made.kind = source.kind;
    made.phase = node.phase;
    made.axes = source.axes;
    made.ranks = source.ranks;
    made.dtype = draft_.value(node.inputs.front()).type.dtype;
    made.elements = source.elements;
    made.bytes = source.elements * static_cast<std::int64_t>(size_of(made.dtype));
    made.send_counts = source.send_counts;
    made.receive_counts = source.receive_counts;
    made.for_paths = source.for_paths;
    made.reason = node.reason;
    made.label = std::string(name_of(source.kind)) + " of " + source.for_paths.front();
    // Members of a bucket lie one after another: the first in memory that is not empty stands for
    // all.
    const auto order = [this](DraftId id) {
      return std::pair(local_of(draft_, id, program_.rank).box.elements() == 0,
                       memory_.places[static_cast<std::size_t>(id)].offset);
    };
    const auto first =
        std::min_element(node.inputs.begin(), node.inputs.end(),
                         [&order](DraftId a, DraftId b) { return order(a) < order(b); });
    for (const DraftId input : node.inputs) made.members.push_back(tensor(input));
    for (const DraftId output : node.outputs) tensor(output);
    made.send = tensor(*first);
    made.receive =
        source.kind == CollectiveKind::all_reduce ? made.send : tensor(node.outputs.front());
    program_.collectives.push_back(std::move(made));
    return static_cast<int>(program_.collectives.size() - 1);
  }

  void copy_to_variable(graph::VariableId variable, DraftId value) {
    ProgramTensor target = program_.tensors[static_cast<std::size_t>(tensor(value))];
    target.space = ProgramTensor::Space::variable;
    target.offset = 0;
    target.variable = variable;
    target.input = -1;
    target.content_of = -1;
    target.path = draft_.variables()[variable].path;
    program_.tensors.push_back(std::move(target));
    Instruction made;
    made.op = make_copy();
    made.inputs = {tensor(value)};
    made.outputs = {static_cast<TensorId>(program_.tensors.size() - 1)};
    made.phase = Phase::update;
    made.path = draft_.variables()[variable].path;
    program_.instructions.push_back(std::move(made));
  }

  void report_memory() {
    program_.memory = memory_.report;
    const graph::VariableTable& table = draft_.variables();
    std::int64_t all = 0;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const graph::Variable& variable = table[static_cast<graph::VariableId>(i)];
      if (!variable.storage) continue;
      const std::int64_t bytes =
          layouts::box_of(variable.shape, *variable.storage, draft_.mesh, program_.rank)
              .elements() *
          static_cast<std::int64_t>(size_of(variable.dtype));
      all += bytes;
      if (variable.role == graph::Role::weight) program_.memory.parameters += bytes;
      if (variable.role == graph::Role::optimizer) program_.memory.optimizer += bytes;
    }
    for (const TensorId input : program_.inputs) {
      all += program_.tensors[static_cast<std::size_t>(input)].bytes();
    }
    program_.memory.peak = all + program_.arena_bytes;
  }

  const Draft& draft_;
  const std::vector<Event>& events_;
  const MemoryPlan& memory_;
  std::vector<TensorId> tensor_of_;  // by DraftId
  std::vector<int> collective_of_;   // by node
  Program program_;
};

}  // namespace

Program emit(const Draft& draft, const std::vector<Event>& events, const MemoryPlan& memory,
             int rank) {
  return Emission(draft, events, memory, rank).run();
}

}  // namespace tessera::compile
