// Applies the rules of a layout map to a model.
#include "layouts/binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace tessera::layouts {
namespace {

constexpr std::size_t kMostShownParts = 8;
constexpr int kMostShownPaths = 4;                  // of one fault of one rule
constexpr std::int64_t kMostTriedFactor = 1 << 20;  // advice is not worth more time

AxisSet set_of(const AxisList& axes) {
  AxisSet result = 0;
  for (const int axis : axes) result |= AxisSet{1} << axis;
  return result;
}

/// Numbers of parts near `parts` that divide `size` evenly: the next one below and above.
std::string nearest_divisors(std::int64_t size, std::int64_t parts) {
  std::int64_t below = 1;
  std::int64_t above = size;
  for (std::int64_t factor = 1; factor <= size / factor && factor <= kMostTriedFactor; ++factor) {
    if (size % factor != 0) continue;
    for (const std::int64_t divisor : {factor, size / factor}) {
      if (divisor < parts) below = std::max(below, divisor);
      if (divisor > parts) above = std::min(above, divisor);
    }
  }
  return above > parts ? fmt::format("{} and {}", below, above) : fmt::format("{}", below);
}

class Binder {
 public:
  Binder(const Distribution& distribution, json::Problems& problems)
      : distribution_(distribution),
        map_(distribution.map()),
        mesh_(distribution.mesh()),
        problems_(problems),
        used_(map_.size(), false) {}

  Bound bind(const Bindable& item, bool is_output) {
    const LayoutMap::Found found = map_.find(item.path, is_output);
    if (found.exact) used_[*found.exact] = true;
    for (const std::size_t rule : found.patterns) used_[rule] = true;

    Bound bound;
    bound.rule = found.rule();
    bound.compute = Placement::replicated(item.shape.rank());
    if (found.ambiguous()) {
      report_path(found.patterns.back(), "ambiguous", map_.ambiguity(item.path, found));
    }
    if (bound.rule) apply(*bound.rule, item, is_output, bound.compute);
    bound.storage =
        is_output ? bound.compute : distribution_.parameter_storage(item.shape, bound.compute);
    return bound;
  }

  void judge_unused(const std::vector<std::string>& variables,
                    const std::vector<std::string>& outputs) {
    for (std::size_t rule = 0; rule < map_.size(); ++rule) {
      if (used_[rule]) continue;
      const std::string message =
          fmt::format("rule \"{}\" matches no variable and no layer output{}",
                      map_.rules()[rule].key, map_.hint_for_unused(rule, variables, outputs));
      if (distribution_.allow_unused_rules) {
        warnings_.push_back(message);
      } else {
        report(rule, message);
      }
    }
  }

  /// Faults that are the same for many paths were shown for some: tells about the others.
  void report_repetitions() {
    for (const auto& [fault, count] : repeated_) {
      if (count <= kMostShownPaths) continue;
      report(fault.first, fmt::format("rule \"{}\": the same for {} more paths",
                                      map_.rules()[fault.first].key, count - kMostShownPaths));
    }
  }

  std::vector<std::string> take_warnings() { return std::move(warnings_); }

 private:
  void report(std::size_t rule, std::string message) {
    const RuleSource& source = map_.rules()[rule].source;
    problems_.add({source.file, source.at, source.path, std::move(message)});
  }

  void report_path(std::size_t rule, const std::string& fault, std::string message) {
    if (++repeated_[{rule, fault}] <= kMostShownPaths) report(rule, std::move(message));
  }

  void apply(std::size_t rule_index, const Bindable& item, bool is_output, Placement& placement) {
    const Rule& rule = map_.rules()[rule_index];
    const char* const kind = is_output ? "layer output" : "variable";
    if (rule.axes.size() > item.shape.rank()) {
      report_path(
          rule_index, "too long",
          fmt::format("rule \"{}\" has {} entries in its layout {}, but {} \"{}\" of shape {} has "
                      "{} dimensions",
                      rule.key, rule.axes.size(), to_string(rule.axes), kind, item.path,
                      to_string(item.shape), item.shape.rank()));
      return;
    }
    placement = placement_of(rule.axes, item.shape.rank(), mesh_);
    for (std::size_t dim = 0; dim < item.shape.rank(); ++dim) {
      const std::int64_t size = item.shape[dim];
      const std::int64_t parts = mesh_.group_size(set_of(placement.dims[dim]));
      if (size % parts == 0) continue;
      const std::string where = fmt::format(
          "{} \"{}\" of shape {}: dimension {} (size {}) does not divide by {} (rule \"{}\")", kind,
          item.path, to_string(item.shape), dim, size, axes_text(placement.dims[dim], parts),
          rule.key);
      if (distribution_.require_divisible) {
        report_path(rule_index, "uneven",
                    fmt::format("{}; the nearest numbers of parts that divide it are {}", where,
                                nearest_divisors(size, parts)));
      } else {
        warnings_.push_back(fmt::format("{}; it is cut in {}", where,
                                        part_sizes(size, placement.dims[dim], mesh_)));
      }
    }
  }

  std::string axes_text(const AxisList& axes, std::int64_t parts) const {
    if (axes.size() == 1) {
      return fmt::format("axis \"{}\" (size {})",
                         mesh_.axis_names()[static_cast<std::size_t>(axes.front())], parts);
    }
    std::vector<std::string> names;
    for (const int axis : axes) {
      names.push_back(fmt::format("\"{}\"", mesh_.axis_names()[static_cast<std::size_t>(axis)]));
    }
    return fmt::format("axes {} (sizes' product {})", fmt::join(names, ", "), parts);
  }

  const Distribution& distribution_;
  const LayoutMap& map_;
  const Mesh& mesh_;
  json::Problems& problems_;
  std::vector<bool> used_;
  std::map<std::pair<std::size_t, std::string>, int> repeated_;
  std::vector<std::string> warnings_;
};

std::vector<std::string> paths_of(const std::vector<Bindable>& items) {
  std::vector<std::string> paths;
  paths.reserve(items.size());
  for (const Bindable& item : items) paths.push_back(item.path);
  return paths;
}

}  // namespace

std::string part_sizes(std::int64_t size, const AxisList& axes, const Mesh& mesh) {
  const std::vector<int> ranks = mesh.group(0, axes);
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostShownParts); ++i) {
    sizes.push_back(interval_of(size, axes, mesh, ranks[i]).size);
  }
  const bool shortened = ranks.size() > kMostShownParts;
  return fmt::format("parts of {}{}", fmt::join(sizes, ", "), shortened ? ", ..." : "");
}

Binding bind(const Distribution& distribution, const std::vector<Bindable>& variables,
             const std::vector<Bindable>& outputs, json::Problems& problems) {
  Binder binder(distribution, problems);
  Binding binding;
  for (const Bindable& variable : variables) {
    binding.variables.push_back(binder.bind(variable, false));
  }
  for (const Bindable& output : outputs) binding.outputs.push_back(binder.bind(output, true));
  binder.report_repetitions();
  binder.judge_unused(paths_of(variables), paths_of(outputs));
  binding.warnings = binder.take_warnings();
  return binding;
}

}  // namespace tessera::layouts
