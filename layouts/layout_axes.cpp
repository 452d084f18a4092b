// Layouts as arrays of axis names: reading, checking, and turning them into placements.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "layouts/layout_map.h"

namespace tessera::layouts {
namespace {

std::string quoted(const std::string& name) { return fmt::format("\"{}\"", name); }

}  // namespace

std::string to_string(const LayoutAxes& axes) {
  std::vector<std::string> entries;
  for (const auto& names : axes) {
    std::vector<std::string> list;
    list.reserve(names.size());
    for (const std::string& name : names) list.push_back(quoted(name));
    if (list.empty()) {
      entries.emplace_back("null");
    } else if (list.size() == 1) {
      entries.push_back(list.front());
    } else {
      entries.push_back(fmt::format("[{}]", fmt::join(list, ", ")));
    }
  }
  return fmt::format("[{}]", fmt::join(entries, ", "));
}

std::string unknown_axis(std::string_view name, const Mesh& mesh) {
  return fmt::format("no axis \"{}\" in the mesh (its axes: {}){}", name,
                     fmt::join(mesh.axis_names(), ", "),
                     json::did_you_mean(name, mesh.axis_names()));
}

std::vector<std::string> axis_faults(const LayoutAxes& axes, const Mesh& mesh) {
  std::vector<std::string> faults;
  std::set<std::string> seen;
  for (const auto& names : axes) {
    for (const std::string& name : names) {
      if (!mesh.find_axis(name)) {
        faults.push_back("Invalid axis names for Layout: " + unknown_axis(name, mesh));
      }
      if (!seen.insert(name).second) {
        faults.push_back(
            fmt::format("axis \"{}\" stands twice in the layout {}; it can cut one dimension only",
                        name, to_string(axes)));
      }
    }
  }
  return faults;
}

Placement placement_of(const LayoutAxes& axes, std::size_t rank, const Mesh& mesh) {
  check(axes.size() <= rank, "layout is longer than the rank of its tensor");
  Placement placement = Placement::replicated(rank);
  for (std::size_t dim = 0; dim < axes.size(); ++dim) {
    for (const std::string& name : axes[dim]) {
      const std::optional<int> axis = mesh.find_axis(name);
      check(axis.has_value(), "layout names an axis that the mesh has not");
      placement.dims[dim].push_back(*axis);
    }
  }
  return placement;
}

LayoutAxes axes_of(const Placement& placement, const Mesh& mesh) {
  LayoutAxes axes(placement.dims.size());
  for (std::size_t dim = 0; dim < axes.size(); ++dim) {
    for (const int axis : placement.dims[dim]) {
      axes[dim].push_back(mesh.axis_names()[static_cast<std::size_t>(axis)]);
    }
  }
  return axes;
}

std::optional<LayoutAxes> read_layout(const json::Value& value, const std::string& path,
                                      json::Problems& problems) {
  const auto refuse = [&](const json::Value& at, const std::string& message) {
    problems.add({at.file ? *at.file : "", at.position, path, message});
    return std::nullopt;
  };
  if (value.is_string()) {
    return refuse(value,
                  fmt::format("expected an array of axes with one entry per dimension, got the "
                              "string \"{0}\"; write [\"{0}\"]",
                              value.string));
  }
  if (!value.is_array()) {
    return refuse(value, "expected an array of axes with one entry per dimension");
  }
  LayoutAxes axes;
  for (const json::Value& entry : value.array) {
    std::vector<std::string> names;
    const bool is_list =
        entry.is_array() && std::all_of(entry.array.begin(), entry.array.end(),
                                        [](const json::Value& name) { return name.is_string(); });
    if (!entry.is_null() && !entry.is_string() && !is_list) {
      return refuse(entry, "expected null, the name of an axis, or an array of names");
    }
    if (entry.is_string()) names.push_back(entry.string);
    for (const json::Value& name : entry.array) names.push_back(name.string);
    axes.push_back(std::move(names));
  }
  return axes;
}

void read_rules(const json::Value& object, const std::string& path, LayoutMap& map,
                json::Problems& problems) {
  for (const json::Member& member : object.object) {
    const std::string rule_path = json::child_path(path, member.key);
    auto axes = read_layout(member.value, rule_path, problems);
    if (!axes) axes.emplace();  // the key is checked all the same
    const json::Value& value = member.value;
    const bool placed = member.key_position.line > 0;
    map.insert(Rule{member.key,
                    *std::move(axes),
                    {value.file ? *value.file : "", placed ? member.key_position : value.position,
                     rule_path}},
               problems);
  }
}

}  // namespace tessera::layouts
