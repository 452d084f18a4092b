// Each reshard step as nodes of one rank.
#include "runtime/compile/reshard.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "runtime/compile/local_ops.h"

namespace tessera::compile {
namespace {

using layouts::Placement;
using layouts::ReshardKind;
using layouts::ReshardStep;

/// A dense part at `offset` of a packed buffer, as one side of a copy: strides of the part,
/// shifted.
BoxCopy to_packed(const Box& source, const Box& part, std::int64_t offset) {
  BoxCopy copy = copy_between(source, part, part);
  copy.target_offset = offset;
  return copy;
}

BoxCopy from_packed(const Box& part, const Box& target, std::int64_t offset) {
  BoxCopy copy = copy_between(part, target, part);
  copy.source_offset = offset;
  return copy;
}

/// Are parts along `dim` of this box dense? True when all outer dimensions have one element at
/// most.
bool is_outermost(const Box& box, int dim) {
  std::int64_t outer = 1;
  for (int i = 0; i < dim; ++i) outer *= box.size[static_cast<std::size_t>(i)];
  return outer <= 1;
}

class Lowering {
 public:
  Lowering(Draft& draft, int rank) : draft_(draft), rank_(rank) {}

  void run() {
    const Links links = link(draft_);
    const std::vector<DraftNode> nodes = std::exchange(draft_.nodes, {});
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].kind != DraftNode::Kind::convert) {
        draft_.nodes.push_back(nodes[i]);
        continue;
      }
      input_is_mine_ = is_only_reader(links, nodes, nodes[i].inputs.front());
      lower(nodes[i]);
    }
    keep_old_values();
  }

 private:
  /// Outputs and assignments that are the old value of a variable which the step overwrites get a
  /// copy.
  void keep_old_values() {
    std::set<graph::VariableId> overwritten;
    for (const DraftAssignment& assignment : draft_.assignments) {
      overwritten.insert(assignment.variable);
    }
    const Links links = link(draft_);
    const auto keep = [&](DraftId& id) {
      DraftId root = id;
      while (links.producer[static_cast<std::size_t>(root)] >= 0) {
        const DraftNode& producer = draft_.node(links.producer[static_cast<std::size_t>(root)]);
        if (producer.kind != DraftNode::Kind::compute || !producer.op->is_view()) return;
        root = producer.inputs.front();
      }
      const DraftValue& value = draft_.value(root);
      if (value.source != graph::Value::Source::variable || !overwritten.contains(value.variable)) {
        return;
      }
      DraftNode node;
      node.op = make_copy();
      node.path = value.path;
      node.phase = graph::Phase::update;
      node.internal = true;
      DraftValue copy = draft_.value(id);
      copy.source = graph::Value::Source::node;
      node.inputs = {id};
      node.outputs = {draft_.add(std::move(copy))};
      id = node.outputs.front();
      draft_.nodes.push_back(std::move(node));
    };
    for (DraftAssignment& assignment : draft_.assignments) keep(assignment.value);
    for (DraftOutput& output : draft_.outputs) keep(output.value);
  }

  /// Nobody else reads the memory of this value, seen through views, and it belongs to a node.
  bool is_only_reader(const Links& links, const std::vector<DraftNode>& nodes, DraftId id) const {
    while (true) {
      const auto index = static_cast<std::size_t>(id);
      if (links.consumers[index].size() > 1 || links.held[index]) return false;
      if (links.producer[index] < 0) return false;
      const DraftNode& producer = nodes[static_cast<std::size_t>(links.producer[index])];
      if (producer.kind != DraftNode::Kind::compute || !producer.op->is_view()) return true;
      id = producer.inputs.front();
    }
  }

  void lower(const DraftNode& node) {
    const DraftId input = node.inputs.front();
    const DraftId output = node.outputs.front();
    shape_ = draft_.value(input).type.shape;
    // Rank 0 holds the largest part of every dimension, and decides what all ranks do.
    largest_from_ = layouts::box_of(shape_, node.step.from, draft_.mesh, 0);
    largest_to_ = layouts::box_of(shape_, node.step.to, draft_.mesh, 0);
    from_ = layouts::box_of(shape_, node.step.from, draft_.mesh, rank_);
    to_ = layouts::box_of(shape_, node.step.to, draft_.mesh, rank_);
    group_ = draft_.mesh.group(rank_, node.step.axes);
    switch (node.step.kind) {
      case ReshardKind::slice:
        add_local(node, make_move("slice", {copy_between(from_, to_, to_)}), input, output);
        break;
      case ReshardKind::owner:
        add_local(node, make_owner(group_.front() == rank_), input, output);
        break;
      case ReshardKind::all_reduce:
        lower_all_reduce(node, input, output);
        break;
      case ReshardKind::all_gather:
        lower_all_gather(node, input, output);
        break;
      case ReshardKind::reduce_scatter:
        lower_reduce_scatter(node, input, output);
        break;
      case ReshardKind::all_to_all:
        lower_all_to_all(node, input, output);
        break;
    }
  }

  void lower_all_reduce(const DraftNode& node, DraftId input, DraftId output) {
    // The sum is made in place: what somebody else reads, or what belongs to no node, is copied
    // first.
    if (!input_is_mine_) {
      DraftValue copy = draft_.value(input);
      copy.source = graph::Value::Source::node;
      const DraftId copied = draft_.add(std::move(copy));
      add_local(node, make_copy(), input, copied);
      input = copied;
    }
    DraftCollective collective;
    collective.kind = CollectiveKind::all_reduce;
    collective.elements = from_.elements();
    add_collective(node, std::move(collective), input, output);
  }

  void lower_all_gather(const DraftNode& node, DraftId input, DraftId output) {
    DraftCollective collective;
    collective.kind = CollectiveKind::all_gather;
    collective.elements = to_.elements();
    std::vector<BoxCopy> copies;
    std::int64_t offset = 0;
    for (const int member : group_) {
      const Box part = layouts::box_of(shape_, node.step.from, draft_.mesh, member);
      collective.receive_counts.push_back(part.elements());
      copies.push_back(from_packed(part, to_, offset));
      offset += part.elements();
    }
    if (is_outermost(largest_to_, node.step.dim)) {
      add_collective(node, std::move(collective), input, output);
      return;
    }
    const DraftId packed = add_flat(output, offset);
    add_collective(node, std::move(collective), input, packed);
    add_local(node, make_move("unpack", std::move(copies)), packed, output);
  }

  void lower_reduce_scatter(const DraftNode& node, DraftId input, DraftId output) {
    DraftCollective collective;
    collective.kind = CollectiveKind::reduce_scatter;
    collective.elements = from_.elements();
    std::vector<BoxCopy> copies;
    std::int64_t offset = 0;
    for (const int member : group_) {
      const Box part = layouts::box_of(shape_, node.step.to, draft_.mesh, member);
      collective.receive_counts.push_back(part.elements());
      copies.push_back(to_packed(from_, part, offset));
      offset += part.elements();
    }
    if (!is_outermost(largest_from_, node.step.dim)) {
      const DraftId packed = add_flat(input, offset);
      add_local(node, make_move("pack", std::move(copies)), input, packed);
      input = packed;
    }
    add_collective(node, std::move(collective), input, output);
  }

  void lower_all_to_all(const DraftNode& node, DraftId input, DraftId output) {
    DraftCollective collective;
    collective.kind = CollectiveKind::all_to_all;
    std::vector<BoxCopy> sent;
    std::vector<BoxCopy> received;
    std::int64_t send_offset = 0;
    std::int64_t receive_offset = 0;
    for (const int member : group_) {
      const Box theirs_from = layouts::box_of(shape_, node.step.from, draft_.mesh, member);
      const Box theirs_to = layouts::box_of(shape_, node.step.to, draft_.mesh, member);
      const Box out = intersection(from_, theirs_to);
      const Box in = intersection(theirs_from, to_);
      collective.send_counts.push_back(out.elements());
      collective.receive_counts.push_back(in.elements());
      collective.elements += theirs_from.elements();
      sent.push_back(to_packed(from_, out, send_offset));
      received.push_back(from_packed(in, to_, receive_offset));
      send_offset += out.elements();
      receive_offset += in.elements();
    }
    if (!is_outermost(largest_from_, node.step.to_dim)) {
      const DraftId packed = add_flat(input, send_offset);
      add_local(node, make_move("pack", std::move(sent)), input, packed);
      input = packed;
    }
    const bool dense = is_outermost(largest_to_, node.step.dim);
    const DraftId arrived = dense ? output : add_flat(output, receive_offset);
    add_collective(node, std::move(collective), input, arrived);
    if (!dense) add_local(node, make_move("unpack", std::move(received)), arrived, output);
  }

  DraftId add_flat(DraftId like, std::int64_t elements) {
    DraftValue value = draft_.value(like);
    value.source = graph::Value::Source::node;
    value.type.shape = Shape{elements};
    value.placement = {};
    value.flat = true;
    return draft_.add(std::move(value));
  }

  void add_local(const DraftNode& conversion, std::shared_ptr<const graph::Op> op, DraftId input,
                 DraftId output) {
    DraftNode node;
    node.op = std::move(op);
    node.inputs = {input};
    node.outputs = {output};
    node.phase = conversion.phase;
    node.path = conversion.path;
    node.reason = conversion.reason;
    node.internal = true;
    draft_.nodes.push_back(std::move(node));
  }

  void add_collective(const DraftNode& conversion, DraftCollective collective, DraftId input,
                      DraftId output) {
    collective.axes = conversion.step.axes;
    collective.ranks = group_;
    const std::string& path = draft_.value(output).path;
    const bool gradient = path.starts_with(kGradientPrefix);
    collective.for_paths = {path.empty() ? conversion.path
                                         : path.substr(gradient ? kGradientPrefix.size() : 0)};
    DraftNode node;
    node.kind = DraftNode::Kind::collective;
    node.collective = std::move(collective);
    node.inputs = {input};
    node.outputs = {output};
    node.phase = conversion.phase;
    node.path = conversion.path;
    node.reason = conversion.reason;
    draft_.nodes.push_back(std::move(node));
  }

  Draft& draft_;
  const int rank_;
  // Of the conversion at hand:
  Shape shape_;
  Box from_, to_, largest_from_, largest_to_;
  std::vector<int> group_;
  bool input_is_mine_ = false;
};

}  // namespace

void lower_conversions(Draft& draft, int rank) {
  Lowering(draft, rank).run();
  verify(draft, "resharding");
}

}  // namespace tessera::compile
