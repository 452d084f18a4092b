// Groups of element-wise nodes, and the programs that they become.
#include "runtime/compile/fuse.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "runtime/ops/map.h"
#include "runtime/ops/source.h"

namespace tessera::compile {
namespace {

using kernels::MapCode;
using kernels::MapOperand;
using kernels::MapProgram;
using kernels::MapStep;
using ops::MapOp;

constexpr std::size_t kMaxInputs = 16;
constexpr std::size_t kMaxSteps = 64;
constexpr std::size_t kMaxOutputs = 8;
/// Groups further apart than this many nodes stay apart: merging them would keep operands alive in
/// between.
constexpr std::int32_t kMaxDistance = 64;
/// Below this many elements a call costs more than its work.
constexpr std::int64_t kTinyElements = 64;

struct Group {
  std::vector<std::int32_t> members;  // nodes, in order
  std::int32_t position = 0;          // the member where all of it runs
  std::size_t steps = 0;
};

class Fusion {
 public:
  explicit Fusion(Draft& draft)
      : draft_(draft),
        links_(link(draft)),
        maps_(draft.nodes.size()),
        group_of_(draft.nodes.size(), -1) {
    for (std::size_t i = 0; i < draft.nodes.size(); ++i) {
      maps_[i] = dynamic_cast<const MapOp*>(draft.nodes[i].op.get());
      if (maps_[i] == nullptr) continue;
      group_of_[i] = static_cast<int>(groups_.size());
      const auto id = static_cast<std::int32_t>(i);
      groups_.push_back({{id}, id, maps_[i]->program().steps.size()});
    }
  }

  void run() {
    for (std::size_t i = 0; i < draft_.nodes.size(); ++i) {
      if (maps_[i] == nullptr) continue;
      for (const DraftId input : draft_.nodes[i].inputs) {
        const std::int32_t producer = links_.producer[static_cast<std::size_t>(input)];
        if (producer >= 0) merge_if_possible(group_of(producer), group_of_[i]);
      }
    }
    join_tiny_neighbours();
    rebuild();
    remove_unread(draft_);  // constants that only fused nodes read
  }

 private:
  int group_of(std::int32_t node) const { return group_of_[static_cast<std::size_t>(node)]; }
  const Group& group(int id) const { return groups_[static_cast<std::size_t>(id)]; }
  const DraftValue& result_of(int id) const {
    return draft_.value(draft_.node(group(id).members.front()).outputs.front());
  }
  /// Where a node runs: its own place, or its group's.
  std::int32_t position_of(std::int32_t node) const {
    const int id = group_of(node);
    return id < 0 ? node : group(id).position;
  }

  void join_tiny_neighbours() {
    int last = -1;
    for (std::size_t i = 0; i < draft_.nodes.size(); ++i) {
      const int here = group_of_[i];
      if (here < 0 || result_of(here).type.shape.elements() > kTinyElements) continue;
      if (last >= 0) merge_if_possible(last, here);
      last = group_of_[i];
    }
  }

  void merge_if_possible(int a, int b) {
    if (a < 0 || b < 0 || a == b) return;
    if (group(b).position < group(a).position) std::swap(a, b);
    const std::int32_t first = group(a).position;
    const std::int32_t second = group(b).position;
    if (!are_alike(a, b) || second - first > kMaxDistance) return;
    Group merged;
    merged.steps = group(a).steps + group(b).steps;
    if (merged.steps > kMaxSteps) return;
    std::merge(group(a).members.begin(), group(a).members.end(), group(b).members.begin(),
               group(b).members.end(), std::back_inserter(merged.members));
    if (!edges_allow(merged, a, b)) return;
    const auto [after, before] = bounds_of(merged, a, b);
    if (after < second && second < before) {
      merged.position = second;
    } else if (after < first && first < before) {
      merged.position = first;
    } else {
      return;
    }
    for (const std::int32_t member : group(b).members) {
      group_of_[static_cast<std::size_t>(member)] = a;
    }
    groups_[static_cast<std::size_t>(a)] = std::move(merged);
    groups_[static_cast<std::size_t>(b)].members.clear();
  }

  bool are_alike(int a, int b) const {
    const DraftNode& first = draft_.node(group(a).members.front());
    const DraftNode& second = draft_.node(group(b).members.front());
    const DraftValue& x = result_of(a);
    const DraftValue& y = result_of(b);
    return first.phase == second.phase && x.type.shape == y.type.shape &&
           x.placement.dims == y.placement.dims && wide(a) == wide(b);
  }

  bool wide(int id) const {
    return maps_[static_cast<std::size_t>(group(id).members.front())]->program().wide;
  }

  /// Values that pass inside must mean the same unrounded, and operands and results must not be too
  /// many.
  bool edges_allow(const Group& merged, int a, int b) const {
    std::vector<DraftId> inputs;
    std::size_t outputs = 0;
    for (const std::int32_t member : merged.members) {
      for (const DraftId input : draft_.node(member).inputs) {
        const std::int32_t producer = links_.producer[static_cast<std::size_t>(input)];
        const int from = producer < 0 ? -1 : group_of(producer);
        if (from == a || from == b) {
          if (!may_stay_inside(producer, input, wide(a))) return false;
        } else if (!constant_of(input)) {
          inputs.push_back(input);
        }
      }
      for (const DraftId output : draft_.node(member).outputs) {
        if (is_read_outside(output, a, b)) ++outputs;
      }
    }
    std::sort(inputs.begin(), inputs.end());
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    return inputs.size() <= kMaxInputs && outputs <= kMaxOutputs;
  }

  bool is_read_outside(DraftId id, int a, int b) const {
    const auto index = static_cast<std::size_t>(id);
    return links_.held[index] ||
           std::any_of(
               links_.consumers[index].begin(), links_.consumers[index].end(),
               [&](std::int32_t reader) { return group_of(reader) != a && group_of(reader) != b; });
  }

  bool may_stay_inside(std::int32_t producer, DraftId id, bool is_wide) const {
    const MapOp& map = *maps_[static_cast<std::size_t>(producer)];
    const std::vector<DraftId>& outputs = draft_.node(producer).outputs;
    const auto index =
        static_cast<std::size_t>(std::find(outputs.begin(), outputs.end(), id) - outputs.begin());
    const MapCode code =
        map.program().steps[static_cast<std::size_t>(map.program().results[index])].code;
    switch (draft_.value(id).type.dtype) {
      case DType::float32:
        return !is_wide;
      case DType::float64:
        return true;
      case DType::bfloat16:
      case DType::float16:
        return code != MapCode::copy;  // a cast that somebody asked for rounds
      case DType::boolean:
        return kernels::gives_boolean(code);
      default:
        return false;
    }
  }

  /// The merged node must run after the first and before the second of these positions.
  std::pair<std::int32_t, std::int32_t> bounds_of(const Group& merged, int a, int b) const {
    std::int32_t after = -1;
    std::int32_t before = std::numeric_limits<std::int32_t>::max();
    for (const std::int32_t member : merged.members) {
      const DraftNode& node = draft_.node(member);
      for (const DraftId input : node.inputs) {
        const std::int32_t producer = links_.producer[static_cast<std::size_t>(input)];
        if (producer < 0 || group_of(producer) == a || group_of(producer) == b) continue;
        after = std::max(after, position_of(producer));
      }
      for (const DraftId output : node.outputs) {
        for (const std::int32_t reader : links_.consumers[static_cast<std::size_t>(output)]) {
          if (group_of(reader) == a || group_of(reader) == b) continue;
          before = std::min(before, position_of(reader));
        }
      }
    }
    return {after, before};
  }

  std::optional<double> constant_of(DraftId id) const {
    const std::int32_t producer = links_.producer[static_cast<std::size_t>(id)];
    if (producer < 0) return std::nullopt;
    const auto* full = dynamic_cast<const ops::FullOp*>(draft_.node(producer).op.get());
    return full == nullptr ? std::nullopt : std::optional(full->value());
  }

  void rebuild() {
    std::vector<DraftNode> nodes;
    for (std::size_t i = 0; i < draft_.nodes.size(); ++i) {
      const int id = group_of_[i];
      if (id < 0) {
        nodes.push_back(std::move(draft_.nodes[i]));
      } else if (group(id).position == static_cast<std::int32_t>(i)) {
        nodes.push_back(group(id).members.size() == 1 ? draft_.nodes[i] : fused(id));
      }
    }
    draft_.nodes = std::move(nodes);
  }

  DraftNode fused(int id) const {
    const Group& here = group(id);
    DraftNode node;
    node.phase = draft_.node(here.members.front()).phase;
    node.path = draft_.node(here.members.back()).path;
    MapProgram program;
    program.wide = wide(id);
    std::map<DraftId, std::int16_t> step_of;
    std::vector<DType> dtypes;
    for (const std::int32_t member : here.members) {
      const MapProgram& part = maps_[static_cast<std::size_t>(member)]->program();
      const DraftNode& source = draft_.node(member);
      const auto base = static_cast<std::int16_t>(program.steps.size());
      for (MapStep step : part.steps) {
        for (MapOperand& operand : step.operands) rebase(operand, source, base, step_of, node);
        program.steps.push_back(step);
      }
      for (std::size_t i = 0; i < source.outputs.size(); ++i) {
        const auto step = static_cast<std::int16_t>(base + part.results[i]);
        step_of[source.outputs[i]] = step;
        if (!is_read_outside(source.outputs[i], id, id)) continue;
        program.results.push_back(step);
        node.outputs.push_back(source.outputs[i]);
        dtypes.push_back(draft_.value(source.outputs[i]).type.dtype);
      }
    }
    node.op = std::make_shared<const MapOp>(std::move(program), std::move(dtypes));
    return node;
  }

  void rebase(MapOperand& operand, const DraftNode& source, std::int16_t base,
              const std::map<DraftId, std::int16_t>& step_of, DraftNode& node) const {
    if (operand.kind == MapOperand::Kind::constant) return;
    if (operand.kind == MapOperand::Kind::step) {
      operand.index = static_cast<std::int16_t>(operand.index + base);
      return;
    }
    const DraftId input = source.inputs[static_cast<std::size_t>(operand.index)];
    if (const auto step = step_of.find(input); step != step_of.end()) {
      operand = {MapOperand::Kind::step, step->second, 0.0};
    } else if (const std::optional<double> constant = constant_of(input)) {
      operand = {MapOperand::Kind::constant, 0, *constant};
    } else {
      auto known = std::find(node.inputs.begin(), node.inputs.end(), input);
      if (known == node.inputs.end()) known = node.inputs.insert(known, input);
      operand.index = static_cast<std::int16_t>(known - node.inputs.begin());
    }
  }

  Draft& draft_;
  const Links links_;
  std::vector<const MapOp*> maps_;  // by node; null: not element-wise
  std::vector<int> group_of_;       // by node
  std::vector<Group> groups_;
};

}  // namespace

void fuse(Draft& draft) {
  Fusion(draft).run();
  verify(draft, "fusion");
}

}  // namespace tessera::compile
