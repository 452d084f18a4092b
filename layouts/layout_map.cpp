// Look-up of rules by key and by pattern.
#include "layouts/layout_map.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tessera::layouts {
namespace {

constexpr std::string_view kOutput = "output";

/// A pattern as part of a longer one: in a group of its own where it has alternatives outside any
/// other.
std::string grouped(const std::string& key) {
  int depth = 0;
  bool in_class = false;
  for (std::size_t i = 0; i < key.size(); ++i) {
    const char c = key[i];
    if (c == '\\') {
      ++i;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
    } else if (c == '(') {
      ++depth;
    } else if (c == ')') {
      --depth;
    } else if (c == '|' && depth == 0) {
      return fmt::format("(?:{})", key);
    }
  }
  return key;
}

/// The least addition of ".*" that makes a key match a whole path.
std::string widened(const std::string& key, std::string_view path) {
  const std::string inner = grouped(key);
  for (const std::string& wider : {".*" + inner, inner + ".*", ".*" + inner + ".*"}) {
    if (Pattern(wider).matches_all_of(path)) return wider;
  }
  return "";
}

}  // namespace

std::string_view name_of(Match match) { return match_names()[static_cast<std::size_t>(match)]; }

const std::vector<std::string>& match_names() {
  static const std::vector<std::string> names{"fullmatch", "search", "first"};
  return names;
}

std::optional<Match> match_from_name(std::string_view name) {
  const auto found = std::find(match_names().begin(), match_names().end(), name);
  if (found == match_names().end()) return std::nullopt;
  return static_cast<Match>(found - match_names().begin());
}

LayoutMap::LayoutMap(Mesh mesh, Match match) : mesh_(std::move(mesh)), match_(match) {}

std::vector<std::string> LayoutMap::faults(const Rule& rule,
                                           std::optional<Pattern>& pattern) const {
  std::vector<std::string> faults;
  if (contains(rule.key)) {
    faults.push_back(fmt::format("{} already exist in the LayoutMap", rule.key));
  }
  try {
    pattern.emplace(rule.key);
  } catch (const Error& error) {
    faults.emplace_back(error.what());
  }
  for (const std::string& fault : axis_faults(rule.axes, mesh_)) {
    faults.push_back(fmt::format("rule \"{}\": {}", rule.key, fault));
  }
  return faults;
}

void LayoutMap::insert(std::string key, LayoutAxes axes) {
  Rule rule{std::move(key), std::move(axes), {}};
  std::optional<Pattern> pattern;
  if (const auto found = faults(rule, pattern); !found.empty()) {
    throw Error(Error::Kind::config, found.front());
  }
  rules_.push_back(std::move(rule));
  patterns_.push_back(*std::move(pattern));
}

void LayoutMap::insert(Rule rule, json::Problems& problems) {
  std::optional<Pattern> pattern;
  const auto found = faults(rule, pattern);
  for (const std::string& fault : found) {
    problems.add({rule.source.file, rule.source.at, rule.source.path, fault});
  }
  if (!found.empty()) return;
  rules_.push_back(std::move(rule));
  patterns_.push_back(*std::move(pattern));
}

bool LayoutMap::contains(std::string_view key) const {
  return std::any_of(rules_.begin(), rules_.end(),
                     [key](const Rule& rule) { return rule.key == key; });
}

Rule LayoutMap::pop(std::string_view key) {
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    if (rules_[i].key != key) continue;
    Rule rule = std::move(rules_[i]);
    rules_.erase(rules_.begin() + static_cast<std::ptrdiff_t>(i));
    patterns_.erase(patterns_.begin() + static_cast<std::ptrdiff_t>(i));
    return rule;
  }
  std::vector<std::string> keys;
  for (const Rule& rule : rules_) keys.push_back(rule.key);
  throw Error(Error::Kind::config,
              fmt::format("no key \"{}\" in the LayoutMap{}", key, json::did_you_mean(key, keys)));
}

bool LayoutMap::pattern_matches(std::size_t rule, std::string_view path) const {
  return match_ == Match::fullmatch ? patterns_[rule].matches_all_of(path)
                                    : patterns_[rule].matches_part_of(path);
}

std::optional<std::size_t> LayoutMap::Found::rule() const {
  if (exact) return exact;
  if (patterns.size() == 1) return patterns.front();
  return std::nullopt;
}

LayoutMap::Found LayoutMap::find(std::string_view path, bool is_output) const {
  Found found;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const std::string& key = rules_[i].key;
    if (key == path) {
      found.exact = i;
      continue;
    }
    if (is_output && key.find(kOutput) == std::string::npos) continue;
    const bool taken = match_ == Match::first && !found.patterns.empty();
    if (!taken && pattern_matches(i, path)) found.patterns.push_back(i);
  }
  return found;
}

std::string LayoutMap::ambiguity(std::string_view path, const Found& found) const {
  std::vector<std::string> keys;
  for (const std::size_t rule : found.patterns)
    keys.push_back(fmt::format("'{}'", rules_[rule].key));
  return fmt::format("Path '{}' matches multiple layout specification keys: [{}]", path,
                     fmt::join(keys, ", "));
}

std::optional<std::size_t> LayoutMap::resolve(std::string_view path) const {
  const Found found = find(path, false);
  if (found.ambiguous()) throw Error(Error::Kind::config, ambiguity(path, found));
  return found.rule();
}

std::optional<std::size_t> LayoutMap::resolve_output(std::string_view path) const {
  const Found found = find(path, true);
  if (found.ambiguous()) throw Error(Error::Kind::config, ambiguity(path, found));
  return found.rule();
}

std::string LayoutMap::hint_for_unused(std::size_t rule, const std::vector<std::string>& variables,
                                       const std::vector<std::string>& outputs) const {
  const std::string& key = rules_[rule].key;
  for (const std::string& path : variables) {
    if (match_ == Match::first && patterns_[rule].matches_part_of(path)) {
      const Found found = find(path, false);
      return fmt::format("; rule \"{}\" comes first for \"{}\"",
                         rules_[found.rule().value_or(rule)].key, path);
    }
    if (match_ == Match::fullmatch && patterns_[rule].matches_part_of(path)) {
      const std::string wider = widened(key, path);
      return fmt::format("; it matches only a part of \"{}\"{}, or set \"match\": \"search\"", path,
                         wider.empty() ? "" : fmt::format(": write \"{}\"", wider));
    }
  }
  for (const std::string& path : outputs) {
    if (key.find(kOutput) == std::string::npos && patterns_[rule].matches_part_of(path)) {
      return fmt::format("; \"{}\" is a layer output, and a rule for outputs must spell \"output\"",
                         path);
    }
  }
  std::vector<std::string> all = variables;
  all.insert(all.end(), outputs.begin(), outputs.end());
  const std::string near = json::nearest(key, all);
  return near.empty() ? "" : fmt::format("; the nearest path is \"{}\"", near);
}

}  // namespace tessera::layouts
