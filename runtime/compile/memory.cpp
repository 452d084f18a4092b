// Buffers, lifetimes and offsets.
#include "runtime/compile/memory.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "runtime/compile/arena.h"

namespace tessera::compile {
namespace {

using Kind = DraftNode::Kind;
using Space = ProgramTensor::Space;

struct Buffer {
  Space space = Space::arena;
  graph::VariableId variable = -1;
  int input = -1;
  std::int64_t bytes = 0;
  std::int32_t first = -1;  // event of the first write
  std::int32_t last = -1;   // event of the last use
  bool held = false;        // an output: lives to the end
  bool gradient = false;
  int bucket = -1;
  std::int64_t offset = 0;  // in its block
};

class Planner {
 public:
  Planner(const Draft& draft, const std::vector<Event>& events, int rank)
      : draft_(draft),
        events_(events),
        rank_(rank),
        end_(static_cast<std::int32_t>(events.size())),
        buffer_of_(draft.values.size(), -1),
        content_of_(draft.values.size(), kNoDraft),
        workspaces_(events.size(), 0) {}

  MemoryPlan run() {
    make_buffers();
    find_lifetimes();
    lay_out_buckets();
    bind_assignments();
    for (std::int32_t event = 0; event < end_; ++event) reuse_operands(event);
    find_workspaces();
    place();
    report();
    return std::move(plan_);
  }

 private:
  Buffer& buffer(DraftId id) {
    return buffers_[static_cast<std::size_t>(buffer_of_[static_cast<std::size_t>(id)])];
  }
  const DraftNode& node_of(std::int32_t event) const {
    return draft_.node(events_[static_cast<std::size_t>(event)].node);
  }
  std::int64_t bytes_of(DraftId id) const { return local_of(draft_, id, rank_).bytes(); }

  void make_buffers() {
    std::map<graph::VariableId, int> variables;
    for (std::size_t i = 0; i < draft_.values.size(); ++i) {
      const DraftValue& value = draft_.values[i];
      if (value.source == graph::Value::Source::node) continue;
      if (value.source == graph::Value::Source::variable) {
        const auto known = variables.find(value.variable);
        if (known != variables.end()) {
          buffer_of_[i] = known->second;
          continue;
        }
        variables.emplace(value.variable, static_cast<int>(buffers_.size()));
      }
      Buffer made = fresh(static_cast<DraftId>(i));
      made.space = value.source == graph::Value::Source::input ? Space::input : Space::variable;
      made.variable = value.variable;
      made.input = value.input;
      buffer_of_[i] = static_cast<int>(buffers_.size());
      buffers_.push_back(made);
    }
    variable_buffers_ = std::move(variables);
    for (const DraftNode& node : draft_.nodes) make_buffers_of(node);
  }

  Buffer fresh(DraftId id) const {
    Buffer made;
    made.bytes = bytes_of(id);
    made.gradient = draft_.value(id).gradient;
    return made;
  }

  void make_buffers_of(const DraftNode& node) {
    const bool view = node.kind == Kind::compute && node.op->is_view();
    const bool in_place =
        node.kind == Kind::collective && node.collective.kind == CollectiveKind::all_reduce;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const auto output = static_cast<std::size_t>(node.outputs[i]);
      if (view || in_place) {
        buffer_of_[output] = buffer_of_[static_cast<std::size_t>(node.inputs[i])];
        content_of_[output] = node.inputs[i];
        Buffer& shared = buffer(node.inputs[i]);
        shared.gradient = shared.gradient || draft_.value(node.outputs[i]).gradient;
      } else {
        buffer_of_[output] = static_cast<int>(buffers_.size());
        buffers_.push_back(fresh(node.outputs[i]));
      }
    }
  }

  void find_lifetimes() {
    for (std::int32_t event = 0; event < end_; ++event) {
      const DraftNode& node = node_of(event);
      for (const DraftId input : node.inputs) {
        buffer(input).last = std::max(buffer(input).last, event);
      }
      for (const DraftId output : node.outputs) {
        Buffer& made = buffer(output);
        if (made.first < 0) made.first = event;
        made.last = std::max(made.last, event);
      }
    }
    for (const DraftOutput& output : draft_.outputs) {
      buffer(output.value).held = true;
      buffer(output.value).last = end_;
    }
  }

  void lay_out_buckets() {
    for (const DraftNode& node : draft_.nodes) {
      if (node.kind != Kind::collective || node.inputs.size() < 2) continue;
      // Members that keep the alignment of what follows come first.
      std::vector<DraftId> members = node.inputs;
      std::stable_partition(members.begin(), members.end(),
                            [this](DraftId id) { return buffer(id).bytes % kArenaAlignment == 0; });
      std::int64_t offset = 0;
      for (const DraftId member : members) {
        Buffer& part = buffer(member);
        check(part.bucket < 0, "memory: a value is in two buckets");
        part.bucket = buckets_;
        part.offset = offset;
        offset += part.bytes;
      }
      ++buckets_;
    }
  }

  /// New values go straight into the variable's buffer where that is safe, else they are copied at
  /// the end.
  void bind_assignments() {
    // A copy at the end reads its source then, which may itself be the old value of a variable.
    std::map<graph::VariableId, DraftId> direct;
    std::map<int, graph::VariableId> taken;
    for (const DraftAssignment& assignment : draft_.assignments) {
      const int source = buffer_of_[static_cast<std::size_t>(assignment.value)];
      if (may_bind(assignment) && !taken.contains(source)) {
        taken.emplace(source, assignment.variable);
        direct.emplace(assignment.variable, assignment.value);
      } else {
        plan_.copies.emplace_back(assignment.variable, assignment.value);
        buffer(assignment.value).last = end_;
      }
    }
    for (const auto& [variable, value] : direct) {
      Buffer& made = buffer(value);
      made.space = Space::variable;
      made.variable = variable;
      made.last = end_;
    }
  }

  bool may_bind(const DraftAssignment& assignment) {
    const Buffer& made = buffer(assignment.value);
    if (made.space != Space::arena || made.bucket >= 0 || made.first < 0) return false;
    const auto found = variable_buffers_.find(assignment.variable);
    if (found == variable_buffers_.end()) return true;
    const Buffer& old = buffers_[static_cast<std::size_t>(found->second)];
    if (old.held || is_copied_at_the_end(found->second)) return false;
    if (old.last < made.first) return true;
    return old.last == made.first && old.bytes == made.bytes &&
           may_replace(made.first, buffer_of_[static_cast<std::size_t>(assignment.value)],
                       found->second);
  }

  bool is_copied_at_the_end(int index) const {
    return std::any_of(draft_.assignments.begin(), draft_.assignments.end(),
                       [&](const DraftAssignment& assignment) {
                         return buffer_of_[static_cast<std::size_t>(assignment.value)] == index;
                       });
  }

  /// May the node of this event write buffer `result` over buffer `operand`?
  bool may_replace(std::int32_t event, int result, int operand) const {
    if (events_[static_cast<std::size_t>(event)].kind != Instruction::Kind::compute) return false;
    const DraftNode& node = node_of(event);
    for (std::size_t o = 0; o < node.outputs.size(); ++o) {
      if (buffer_of_[static_cast<std::size_t>(node.outputs[o])] != result) continue;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (buffer_of_[static_cast<std::size_t>(node.inputs[i])] != operand) continue;
        if (!same_part(node.outputs[o], node.inputs[i])) return false;
        if (!node.op->may_overwrite(o, i)) return false;
      }
    }
    return true;
  }

  /// One local shape on every rank, so that all ranks decide alike.
  bool same_part(DraftId a, DraftId b) const {
    const DraftValue& first = draft_.value(a);
    const DraftValue& second = draft_.value(b);
    return !first.flat && !second.flat && first.type.shape == second.type.shape &&
           first.placement.dims == second.placement.dims &&
           size_of(first.type.dtype) == size_of(second.type.dtype);
  }

  void reuse_operands(std::int32_t event) {
    if (events_[static_cast<std::size_t>(event)].kind != Instruction::Kind::compute) return;
    const DraftNode& node = node_of(event);
    for (const DraftId output : node.outputs) {
      const int made = buffer_of_[static_cast<std::size_t>(output)];
      const Buffer& result = buffers_[static_cast<std::size_t>(made)];
      if (result.space != Space::arena || result.first != event || result.bucket >= 0) continue;
      for (const DraftId input : node.inputs) {
        const int ending = buffer_of_[static_cast<std::size_t>(input)];
        const Buffer& operand = buffers_[static_cast<std::size_t>(ending)];
        if (ending == made || operand.space != Space::arena || operand.last != event ||
            operand.held || operand.bytes != result.bytes || !may_replace(event, made, ending)) {
          continue;
        }
        merge(made, ending);
        break;
      }
    }
  }

  void merge(int from, int into) {
    const Buffer& gone = buffers_[static_cast<std::size_t>(from)];
    Buffer& kept = buffers_[static_cast<std::size_t>(into)];
    kept.last = gone.last;
    kept.held = gone.held;
    kept.gradient = kept.gradient || gone.gradient;
    std::replace(buffer_of_.begin(), buffer_of_.end(), from, into);
  }

  void find_workspaces() {
    for (std::int32_t event = 0; event < end_; ++event) {
      const Event& here = events_[static_cast<std::size_t>(event)];
      if (here.kind != Instruction::Kind::compute) continue;
      const DraftNode& node = node_of(event);
      graph::LocalCall call;
      for (const DraftId input : node.inputs) call.inputs.push_back(local_of(draft_, input, rank_));
      for (const DraftId id : node.outputs) call.outputs.push_back(local_of(draft_, id, rank_));
      workspaces_[static_cast<std::size_t>(event)] = node.op->workspace_bytes(call);
    }
  }

  /// One block a bucket, one a buffer that is in none, one a workspace.
  void place() {
    std::vector<Block> blocks(static_cast<std::size_t>(buckets_), Block{0, end_, -1, 0});
    std::vector<int> block_of(buffers_.size(), -1);
    const std::vector<bool> used = find_used();
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const Buffer& here = buffers_[i];
      if (!used[i]) continue;
      if (here.bucket < 0) {
        block_of[i] = static_cast<int>(blocks.size());
        blocks.push_back({here.bytes, here.first, here.last, 0});
        continue;
      }
      block_of[i] = here.bucket;
      Block& block = blocks[static_cast<std::size_t>(here.bucket)];
      block.bytes = std::max(block.bytes, here.offset + here.bytes);
      block.first = std::min(block.first, here.first);
      block.last = std::max(block.last, here.last);
    }
    const std::size_t scratch = blocks.size();
    for (std::int32_t event = 0; event < end_; ++event) {
      blocks.push_back({workspaces_[static_cast<std::size_t>(event)], event, event, 0});
    }
    plan_.arena_bytes = place_blocks(blocks);
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (block_of[i] >= 0) {
        buffers_[i].offset += blocks[static_cast<std::size_t>(block_of[i])].offset;
      }
    }
    for (std::size_t event = 0; event < workspaces_.size(); ++event) {
      plan_.workspaces.push_back({blocks[scratch + event].offset, workspaces_[event]});
    }
    for (std::size_t i = 0; i < draft_.values.size(); ++i) {
      plan_.places.emplace_back();
      if (buffer_of_[i] < 0) continue;  // made inside a fused node
      const Buffer& here = buffers_[static_cast<std::size_t>(buffer_of_[i])];
      plan_.places.back() = {here.space, here.space == Space::arena ? here.offset : 0,
                             here.variable, here.input, content_of_[i]};
    }
  }

  /// Buffers of the arena that hold something: not those that were merged into others.
  std::vector<bool> find_used() const {
    std::vector<bool> used(buffers_.size(), false);
    for (const int index : buffer_of_) {
      if (index >= 0) used[static_cast<std::size_t>(index)] = true;
    }
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      used[i] = used[i] && buffers_[i].space == Space::arena && buffers_[i].first >= 0;
    }
    return used;
  }

  void report() {
    const auto events = static_cast<std::size_t>(end_) + 1;
    std::vector<std::int64_t> gradients(events + 1, 0);
    std::vector<std::int64_t> others(events + 1, 0);
    const std::vector<bool> used = find_used();
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const Buffer& here = buffers_[i];
      if (!used[i]) continue;
      std::vector<std::int64_t>& kind = here.gradient || here.bucket >= 0 ? gradients : others;
      kind[static_cast<std::size_t>(here.first)] += here.bytes;
      kind[static_cast<std::size_t>(here.last) + 1] -= here.bytes;
    }
    std::int64_t gradient = 0;
    std::int64_t other = 0;
    for (std::size_t event = 0; event < events; ++event) {
      gradient += gradients[event];
      other += others[event];
      plan_.report.gradients = std::max(plan_.report.gradients, gradient);
      plan_.report.activations = std::max(plan_.report.activations, other);
    }
    for (const std::int64_t bytes : workspaces_) {
      plan_.report.workspace = std::max(plan_.report.workspace, bytes);
    }
  }

  const Draft& draft_;
  const std::vector<Event>& events_;
  const int rank_;
  const std::int32_t end_;
  std::vector<Buffer> buffers_;
  std::vector<int> buffer_of_;       // by DraftId
  std::vector<DraftId> content_of_;  // by DraftId
  std::map<graph::VariableId, int> variable_buffers_;
  std::vector<std::int64_t> workspaces_;  // by event
  int buckets_ = 0;
  MemoryPlan plan_;
};

}  // namespace

MemoryPlan plan_memory(const Draft& draft, const std::vector<Event>& events, int rank) {
  return Planner(draft, events, rank).run();
}

}  // namespace tessera::compile
