// JSON and text of plans.
#include "runtime/compile/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/compile/draft.h"

namespace tessera::compile {
namespace {

using graph::Variable;
using graph::VariableId;
using graph::VariableTable;
using json::Value;
using layouts::AxisList;
using layouts::Mesh;
using layouts::Placement;

std::string axis_name(const Mesh& mesh, int axis) {
  return mesh.axis_names()[static_cast<std::size_t>(axis)];
}

Value names_of(const Mesh& mesh, const AxisList& axes) {
  std::vector<Value> names;
  for (const int axis : axes) names.push_back(json::make(axis_name(mesh, axis)));
  return json::make_array(std::move(names));
}

/// One entry per dimension: null, a name, or names.
Value layout_of(const Mesh& mesh, const Placement& placement) {
  std::vector<Value> entries;
  for (const AxisList& axes : placement.dims) {
    if (axes.empty()) {
      entries.push_back(json::make_null());
    } else if (axes.size() == 1) {
      entries.push_back(json::make(axis_name(mesh, axes.front())));
    } else {
      entries.push_back(names_of(mesh, axes));
    }
  }
  return json::make_array(std::move(entries));
}

Value sizes_of(const Shape& shape) {
  std::vector<Value> sizes;
  for (const std::int64_t size : shape) sizes.push_back(json::make(size));
  return json::make_array(std::move(sizes));
}

Value texts(const std::vector<std::string>& lines) {
  std::vector<Value> values;
  for (const std::string& line : lines) values.push_back(json::make(line));
  return json::make_array(std::move(values));
}

AxisList axes_in(layouts::AxisSet axes) {
  AxisList list;
  for (int axis = 0; axis < Mesh::kMaxAxes; ++axis) {
    if (((axes >> axis) & 1U) != 0) list.push_back(axis);
  }
  return list;
}

const std::optional<std::string>* rule_of(const PlanContext& context, VariableId id) {
  const auto index = static_cast<std::size_t>(id);
  return index < context.rules.size() && context.rules[index] ? &context.rules[index] : nullptr;
}

/// Variables that a plan lists: placed, and no totals of metrics.
std::vector<VariableId> listed(const VariableTable& table) {
  std::vector<VariableId> ids;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto id = static_cast<VariableId>(i);
    if (table[id].storage && table[id].role != graph::Role::metric) ids.push_back(id);
  }
  return ids;
}

bool is_used_otherwise(const Variable& variable, const Mesh& mesh) {
  return variable.compute && !layouts::same_placement(*variable.compute, *variable.storage, mesh);
}

std::int64_t bytes_of(const Variable& variable, const Shape& shape) {
  return shape.elements() * static_cast<std::int64_t>(size_of(variable.dtype));
}

Value variable_json(const Program& program, const Variable& variable, VariableId id,
                    const PlanContext& context) {
  const Box box = layouts::box_of(variable.shape, *variable.storage, program.mesh, program.rank);
  const std::optional<std::string>* rule = rule_of(context, id);
  std::vector<std::pair<std::string, Value>> members{
      {"path", json::make(variable.path)},
      {"shape", sizes_of(variable.shape)},
      {"dtype", json::make(std::string(name_of(variable.dtype)))},
      {"trainable", json::make(variable.trainable && variable.role == graph::Role::weight)},
      {"layout", layout_of(program.mesh, *variable.storage)},
      {"rule", rule == nullptr ? json::make_null() : json::make(**rule)}};
  if (is_used_otherwise(variable, program.mesh)) {
    members.emplace_back("compute_layout", layout_of(program.mesh, *variable.compute));
  }
  members.emplace_back("local_shape", sizes_of(box.size));
  members.emplace_back("offset", sizes_of(box.begin));
  members.emplace_back("bytes", json::make(bytes_of(variable, variable.shape)));
  members.emplace_back("local_bytes", json::make(bytes_of(variable, box.size)));
  return json::make_object(std::move(members));
}

Value collective_json(const Program& program, const Collective& collective) {
  return json::make_object({
      {"phase", json::make(std::string(graph::name_of(collective.phase)))},
      {"kind", json::make(std::string(name_of(collective.kind)))},
      {"axes", names_of(program.mesh, collective.axes)},
      {"group_size", json::make(static_cast<std::int64_t>(collective.ranks.size()))},
      {"dtype", json::make(std::string(name_of(collective.dtype)))},
      {"elements", json::make(collective.elements)},
      {"bytes", json::make(collective.bytes)},
      {"for", texts(collective.for_paths)},
      {"reason", json::make(collective.reason)},
  });
}

Value mesh_json(const Mesh& mesh) {
  std::vector<Value> shape;
  for (const std::int64_t size : mesh.shape()) shape.push_back(json::make(size));
  return json::make_object(
      {{"shape", json::make_array(std::move(shape))}, {"axis_names", texts(mesh.axis_names())}});
}

Value memory_json(const MemoryReport& memory) {
  return json::make_object({{"parameters", json::make(memory.parameters)},
                            {"gradients", json::make(memory.gradients)},
                            {"optimizer", json::make(memory.optimizer)},
                            {"activations", json::make(memory.activations)},
                            {"workspace", json::make(memory.workspace)},
                            {"peak", json::make(memory.peak)}});
}

std::vector<std::string> warnings_of(const Program& program, const VariableTable& table,
                                     const PlanContext& context) {
  std::vector<std::string> warnings = uneven_cuts(table, program.mesh);
  warnings.insert(warnings.end(), context.warnings.begin(), context.warnings.end());
  return warnings;
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  const auto size = static_cast<double>(bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", size / 1e3);
  if (bytes < 10'000'000'000) return fmt::format("{:.1f} MB", size / 1e6);
  return fmt::format("{:.1f} GB", size / 1e9);
}

std::string variables_text(const Program& program, const VariableTable& table,
                           const PlanContext& context) {
  std::string text = "variables\n";
  const std::vector<VariableId> ids = listed(table);
  std::size_t width = 0;
  for (const VariableId id : ids) width = std::max(width, table[id].path.size());
  for (const VariableId id : ids) {
    const Variable& variable = table[id];
    const Box box = layouts::box_of(variable.shape, *variable.storage, program.mesh, program.rank);
    text +=
        fmt::format("  {:<{}}  {} {} {} -> {}, {}", variable.path, width, name_of(variable.dtype),
                    to_string(variable.shape), layouts::to_string(*variable.storage, program.mesh),
                    to_string(box.size), bytes_text(bytes_of(variable, box.size)));
    if (is_used_otherwise(variable, program.mesh)) {
      text += fmt::format(", used as {}", layouts::to_string(*variable.compute, program.mesh));
    }
    const std::optional<std::string>* rule = rule_of(context, id);
    if (rule != nullptr) text += fmt::format("  by \"{}\"", **rule);
    text += '\n';
  }
  return text;
}

std::string collectives_text(const Program& program) {
  if (program.collectives.empty()) return "collectives of one step: none\n";
  std::string text = "collectives of one step, in order\n";
  for (const Collective& collective : program.collectives) {
    text += fmt::format("  {:<8} {:<14} over {} ({} ranks)  {}  {}  for {}\n{:27}{}\n",
                        graph::name_of(collective.phase), name_of(collective.kind),
                        axes_text(program.mesh, collective.axes), collective.ranks.size(),
                        name_of(collective.dtype), bytes_text(collective.bytes),
                        fmt::join(collective.for_paths, ", "), "", collective.reason);
  }
  return text;
}

std::string memory_text(const Program& program) {
  const MemoryReport& memory = program.memory;
  return fmt::format(
      "memory of rank {}\n  parameters {}, optimizer {}, gradients {}, activations {}, workspace "
      "{}; "
      "peak {}\n",
      program.rank, bytes_text(memory.parameters), bytes_text(memory.optimizer),
      bytes_text(memory.gradients), bytes_text(memory.activations), bytes_text(memory.workspace),
      bytes_text(memory.peak));
}

std::string decisions_text(const Program& program) {
  std::string text = "decisions\n";
  for (const Decision& decision : program.decisions) {
    text += fmt::format("  {} {}: {} ({})", decision.path, decision.op, decision.chosen,
                        decision.reason);
    if (!decision.runner_up.empty()) text += fmt::format("; else {}", decision.runner_up);
    text += '\n';
  }
  return text;
}

}  // namespace

std::vector<std::string> uneven_cuts(const VariableTable& table, const Mesh& mesh) {
  std::vector<std::string> lines;
  for (const VariableId id : listed(table)) {
    const Variable& variable = table[id];
    for (std::size_t dim = 0; dim < variable.shape.rank(); ++dim) {
      const AxisList& axes = variable.storage->dims[dim];
      std::int64_t parts = 1;
      for (const int axis : axes) parts *= mesh.axis_size(axis);
      const std::int64_t size = variable.shape[dim];
      if (size % parts == 0) continue;
      lines.push_back(fmt::format(
          "{}: dimension {} of size {} does not divide by {} over {}: parts of {} and {}",
          variable.path, dim, size, parts, axes_text(mesh, axes), (size + parts - 1) / parts,
          size / parts));
    }
  }
  return lines;
}

Value plan_json(const Program& program, const VariableTable& table, const PlanContext& context) {
  std::vector<Value> variables;
  for (const VariableId id : listed(table)) {
    variables.push_back(variable_json(program, table[id], id, context));
  }
  std::vector<Value> outputs;
  for (const ReportedValue& value : program.values) {
    outputs.push_back(
        json::make_object({{"path", json::make(value.path)},
                           {"shape", sizes_of(value.shape)},
                           {"layout", layout_of(program.mesh, value.placement)},
                           {"partial", names_of(program.mesh, axes_in(value.placement.pending))}}));
  }
  std::vector<Value> collectives;
  for (const Collective& collective : program.collectives) {
    collectives.push_back(collective_json(program, collective));
  }
  return json::make_object({
      {"format", json::make("tessera-plan")},
      {"version", json::make(std::int64_t{1})},
      {"hash", json::make(fmt::format("{:016x}", program.hash))},
      {"ranks", json::make(static_cast<std::int64_t>(program.mesh.size()))},
      {"mesh", mesh_json(program.mesh)},
      {"variables", json::make_array(std::move(variables))},
      {"outputs", json::make_array(std::move(outputs))},
      {"collectives", json::make_array(std::move(collectives))},
      {"memory", memory_json(program.memory)},
      {"flops", json::make_object({{"forward", json::make(program.flops_forward)},
                                   {"backward", json::make(program.flops_backward)}})},
      {"warnings", texts(warnings_of(program, table, context))},
  });
}

std::string plan_text(const Program& program, const VariableTable& table,
                      const PlanContext& context, bool with_decisions) {
  std::vector<std::string> axes;
  for (int axis = 0; axis < program.mesh.axes(); ++axis) {
    axes.push_back(
        fmt::format("{} {}", axis_name(program.mesh, axis), program.mesh.axis_size(axis)));
  }
  std::string text =
      fmt::format("plan {:016x}: {} rank{}, mesh {}\n\n", program.hash, program.mesh.size(),
                  program.mesh.size() == 1 ? "" : "s", fmt::join(axes, " x "));
  text += variables_text(program, table, context) + '\n';
  text += collectives_text(program) + '\n';
  text += memory_text(program);
  text += fmt::format("flops of a step: {:.3g} forward, {:.3g} backward\n", program.flops_forward,
                      program.flops_backward);
  if (with_decisions) text += '\n' + decisions_text(program);
  for (const std::string& line : warnings_of(program, table, context)) {
    text += fmt::format("warning: {}\n", line);
  }
  return text;
}

}  // namespace tessera::compile
