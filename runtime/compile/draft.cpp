// Values, nodes and links of a draft.
#include "runtime/compile/draft.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tessera::compile {

DraftId Draft::add(DraftValue value) {
  values.push_back(std::move(value));
  return static_cast<DraftId>(values.size() - 1);
}

Links link(const Draft& draft) {
  Links links;
  links.producer.assign(draft.values.size(), -1);
  links.consumers.resize(draft.values.size());
  links.held.assign(draft.values.size(), false);
  for (std::size_t i = 0; i < draft.nodes.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    for (const DraftId input : draft.nodes[i].inputs) {
      std::vector<std::int32_t>& readers = links.consumers[static_cast<std::size_t>(input)];
      if (readers.empty() || readers.back() != id) readers.push_back(id);
    }
    for (const DraftId output : draft.nodes[i].outputs) {
      links.producer[static_cast<std::size_t>(output)] = id;
    }
  }
  for (const DraftAssignment& assignment : draft.assignments) {
    links.held[static_cast<std::size_t>(assignment.value)] = true;
  }
  for (const DraftOutput& output : draft.outputs) {
    links.held[static_cast<std::size_t>(output.value)] = true;
  }
  return links;
}

void remove_nodes(Draft& draft, const std::vector<bool>& removed) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < removed.size(); ++i) {
    if (removed[i]) continue;
    if (kept != i) draft.nodes[kept] = std::move(draft.nodes[i]);
    ++kept;
  }
  draft.nodes.resize(kept);
}

void remove_unread(Draft& draft) {
  std::vector<bool> read = link(draft).held;
  std::vector<bool> removed(draft.nodes.size(), false);
  for (std::size_t i = draft.nodes.size(); i-- > 0;) {
    const DraftNode& node = draft.nodes[i];
    removed[i] = std::none_of(node.outputs.begin(), node.outputs.end(), [&read](DraftId output) {
      return read[static_cast<std::size_t>(output)];
    });
    if (removed[i]) continue;
    for (const DraftId input : node.inputs) read[static_cast<std::size_t>(input)] = true;
  }
  remove_nodes(draft, removed);
}

layouts::Placement without_trivial_axes(const layouts::Placement& placement,
                                        const layouts::Mesh& mesh) {
  layouts::Placement result = placement;
  for (layouts::AxisList& axes : result.dims) {
    std::erase_if(axes, [&mesh](int axis) { return mesh.axis_size(axis) == 1; });
  }
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    if (mesh.axis_size(axis) == 1) result.pending &= ~(layouts::AxisSet{1} << axis);
  }
  return result;
}

std::string key_of(const layouts::Placement& placement) {
  std::string key;
  for (const layouts::AxisList& axes : placement.dims) {
    for (const int axis : axes) key.push_back(static_cast<char>('a' + axis));
    key.push_back('/');
  }
  for (layouts::AxisSet rest = placement.pending; rest != 0; rest >>= 4U) {
    key.push_back(static_cast<char>('0' + (rest & 15U)));
  }
  return key;
}

graph::LocalTensor local_of(const Draft& draft, DraftId id, int rank) {
  const DraftValue& value = draft.value(id);
  if (value.flat) {
    Shape begin = value.type.shape;
    begin[0] = 0;
    return {value.type.shape, Box{begin, value.type.shape}, value.type.dtype};
  }
  return {value.type.shape, layouts::box_of(value.type.shape, value.placement, draft.mesh, rank),
          value.type.dtype};
}

std::string axes_text(const layouts::Mesh& mesh, const layouts::AxisList& axes) {
  std::string text;
  for (const int axis : axes) {
    if (!text.empty()) text += ", ";
    text += mesh.axis_names()[static_cast<std::size_t>(axis)];
  }
  return text;
}

void verify(const Draft& draft, const char* pass) {
  const auto demand = [pass](bool condition, const std::string& what) {
    if (!condition) {
      throw Error(Error::Kind::internal, fmt::format("compile: after {}: {}", pass, what));
    }
  };
  std::vector<bool> defined(draft.values.size(), false);
  for (std::size_t i = 0; i < draft.values.size(); ++i) {
    const DraftValue& value = draft.values[i];
    defined[i] = value.source != graph::Value::Source::node;
    demand(value.flat || value.placement.dims.size() == value.type.shape.rank(),
           fmt::format("value {} ({}) has no placement of its rank", i, value.path));
  }
  for (const DraftNode& node : draft.nodes) {
    const std::string label =
        fmt::format("{} in \"{}\"", node.op ? node.op->name() : "a conversion", node.path);
    for (const DraftId input : node.inputs) {
      demand(defined[static_cast<std::size_t>(input)], label + " reads a value before it is made");
    }
    for (const DraftId output : node.outputs) {
      demand(!defined[static_cast<std::size_t>(output)], label + " makes a value a second time");
      defined[static_cast<std::size_t>(output)] = true;
    }
  }
  for (const DraftAssignment& assignment : draft.assignments) {
    demand(defined[static_cast<std::size_t>(assignment.value)], "an assigned value is not made");
  }
  for (const DraftOutput& output : draft.outputs) {
    demand(defined[static_cast<std::size_t>(output.value)], "an output is not made");
  }
}

namespace {

std::string_view kind_text(layouts::ReshardKind kind) {
  switch (kind) {
    case layouts::ReshardKind::slice:
      return "slice";
    case layouts::ReshardKind::all_gather:
      return "all_gather";
    case layouts::ReshardKind::all_reduce:
      return "all_reduce";
    case layouts::ReshardKind::reduce_scatter:
      return "reduce_scatter";
    case layouts::ReshardKind::all_to_all:
      return "all_to_all";
    case layouts::ReshardKind::owner:
      return "owner";
  }
  return "";
}

}  // namespace

std::string to_string(const Draft& draft) {
  std::string text;
  const auto show = [&draft](DraftId id) {
    const DraftValue& value = draft.value(id);
    return fmt::format("%{}{} {}{} {}", id, value.path.empty() ? "" : " \"" + value.path + "\"",
                       name_of(value.type.dtype), to_string(value.type.shape),
                       value.flat ? "packed" : layouts::to_string(value.placement, draft.mesh));
  };
  const auto list = [&show](const std::vector<DraftId>& ids) {
    std::string joined;
    for (const DraftId id : ids) joined += (joined.empty() ? "" : ", ") + show(id);
    return joined;
  };
  for (const DraftNode& node : draft.nodes) {
    std::string action;
    if (node.kind == DraftNode::Kind::compute) {
      action = fmt::format("{}{{{}}}", node.op->name(), node.op->attributes());
    } else if (node.kind == DraftNode::Kind::convert) {
      action = fmt::format("convert by {} over {}", kind_text(node.step.kind),
                           axes_text(draft.mesh, node.step.axes));
    } else {
      action = fmt::format("{} over {}", name_of(node.collective.kind),
                           axes_text(draft.mesh, node.collective.axes));
    }
    text += fmt::format("{} = {}({})  # {} {}{}\n", list(node.outputs), action, list(node.inputs),
                        graph::name_of(node.phase), node.path,
                        node.reason.empty() ? "" : "; " + node.reason);
  }
  for (const DraftAssignment& assignment : draft.assignments) {
    text += fmt::format("{} := {}\n", draft.variables()[assignment.variable].path,
                        show(assignment.value));
  }
  for (const DraftOutput& output : draft.outputs) {
    text += fmt::format("output {} = {}\n", output.name, show(output.value));
  }
  return text;
}

}  // namespace tessera::compile
