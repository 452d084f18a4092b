// LayoutMap: rules that say how variables and layer outputs are cut, found by exact key or by
// pattern.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/shape.h"
#include "layouts/mesh.h"
#include "layouts/pattern.h"
#include "layouts/placement.h"

namespace tessera::layouts {

/// How keys that are not the whole path itself are tried as patterns.
enum class Match : std::uint8_t {
  fullmatch,  // the pattern matches the whole path (Keras from 3.14); two are an error
  search,     // it matches some part of the path (Keras 3.0 to 3.13); two are an error
  first,      // ordered: the first that matches some part wins
};
std::string_view name_of(Match match);
/// The names that a config may use, in order.
const std::vector<std::string>& match_names();
std::optional<Match> match_from_name(std::string_view name);

/// Axis names per dimension, outer first; an empty list: the dimension is whole.
using LayoutAxes = std::vector<std::vector<std::string>>;

/// "[null, "model"]" as JSON writes a layout.
std::string to_string(const LayoutAxes& axes);

/// Where a rule was written; all empty for rules made by a program.
struct RuleSource {
  std::string file;
  json::Position at;
  std::string path;  // `distribution.config.layout_map[".*kernel"]`
};

struct Rule {
  std::string key;
  LayoutAxes axes;
  RuleSource source;
};

/// An ordered map from key to layout on one mesh. A value type; copies share compiled patterns.
class LayoutMap {
 public:
  explicit LayoutMap(Mesh mesh = {}, Match match = Match::fullmatch);

  const Mesh& mesh() const { return mesh_; }
  Match match() const { return match_; }
  std::size_t size() const { return rules_.size(); }
  /// In order of insertion.
  const std::vector<Rule>& rules() const { return rules_; }

  /// Throws config: key `already exist in the LayoutMap`, pattern that does not compile, axes that
  /// the mesh has not (`Invalid axis names for Layout`), an axis named twice. The map is then
  /// unchanged.
  void insert(std::string key, LayoutAxes axes);
  /// The same for a rule from a file: each fault becomes a problem at the rule.
  void insert(Rule rule, json::Problems& problems);
  bool contains(std::string_view key) const;
  /// Removes a literal key and gives its rule back. Throws config when there is none.
  Rule pop(std::string_view key);

  /// Index of the rule for a variable's path: the exact key, else the pattern that matches by
  /// `match()`; nullopt where none does. Throws config when several patterns match: "Path '<path>'
  /// matches multiple layout specification keys: [...]", keys in order of insertion.
  std::optional<std::size_t> resolve(std::string_view path) const;
  /// The same for a layer output "<layer path>/output". Only keys that spell "output" are tried, so
  /// that
  /// ".*" does not gather every activation.
  std::optional<std::size_t> resolve_output(std::string_view path) const;

  /// What a look-up finds, before it is judged.
  struct Found {
    std::optional<std::size_t> exact;
    std::vector<std::size_t> patterns;  // in order of insertion; in mode `first` at most one
    bool ambiguous() const { return !exact && patterns.size() > 1; }
    std::optional<std::size_t> rule() const;
  };
  Found find(std::string_view path, bool is_output) const;
  /// Text of the error for an ambiguous path.
  std::string ambiguity(std::string_view path, const Found& found) const;

  /// Why a rule matches none of the paths, as an ending for a message: which other spelling or mode
  /// would match, or the nearest path. Empty when nothing comes near.
  std::string hint_for_unused(std::size_t rule, const std::vector<std::string>& variables,
                              const std::vector<std::string>& outputs) const;

 private:
  std::vector<std::string> faults(const Rule& rule, std::optional<Pattern>& pattern) const;
  bool pattern_matches(std::size_t rule, std::string_view path) const;

  Mesh mesh_;
  Match match_;
  std::vector<Rule> rules_;
  std::vector<Pattern> patterns_;  // one per rule
};

/// Reads an array of axes: null, a name, or an array of names per dimension. A string instead of
/// the array and other types are problems placed at the value.
std::optional<LayoutAxes> read_layout(const json::Value& value, const std::string& path,
                                      json::Problems& problems);

/// Adds the members of a JSON object as rules; `path` is that of the object.
void read_rules(const json::Value& object, const std::string& path, LayoutMap& map,
                json::Problems& problems);

/// Faults of axis names on a mesh: unknown (with the nearest) or named twice. Empty when there are
/// none.
std::vector<std::string> axis_faults(const LayoutAxes& axes, const Mesh& mesh);

/// "no axis "modle" in the mesh (its axes: batch, model); did you mean "model"?"
std::string unknown_axis(std::string_view name, const Mesh& mesh);

/// Layout as a placement of a tensor of this rank; missing entries leave dimensions whole. The axes
/// must be without faults and no longer than the rank.
Placement placement_of(const LayoutAxes& axes, std::size_t rank, const Mesh& mesh);
/// Axis names of a placement, one entry per dimension.
LayoutAxes axes_of(const Placement& placement, const Mesh& mesh);

}  // namespace tessera::layouts
