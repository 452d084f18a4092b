// Looks a configured object up in a table of Keras's names.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/arguments.h"

namespace tessera::train {

/// The classes of a table, as Keras spells them.
template <typename Entry>
std::vector<std::string> class_names(std::span<const Entry> table) {
  std::vector<std::string> names;
  for (const Entry& entry : table) names.emplace_back(entry.name);
  return names;
}

/// The entry whose `name` (class) or `alias` (snake case; may be null) is the identifier's; else
/// nullptr, and the problem `unknown <noun> "x"; did you mean "y"?`. Silent where the identifier
/// was not readable: that was reported already.
template <typename Entry>
const Entry* find_entry(std::span<const Entry> table, const json::Identifier& identifier,
                        std::string_view noun, const std::string& path, json::Problems& problems) {
  if (identifier.class_name.empty()) return nullptr;
  std::vector<std::string> names;
  for (const Entry& entry : table) {
    if (identifier.class_name == entry.name) return &entry;
    names.emplace_back(entry.name);
    if (entry.alias == nullptr) continue;
    if (identifier.class_name == entry.alias) return &entry;
    names.emplace_back(entry.alias);
  }
  problems.add({identifier.at->file ? *identifier.at->file : "", identifier.at->position, path,
                fmt::format("unknown {} \"{}\"{}", noun, json::printable(identifier.class_name),
                            json::did_you_mean(identifier.class_name, names))});
  return nullptr;
}

/// Path of the config object of what stands at `path`: a plain name has none of its own.
inline std::string config_path(const json::Value& value, const std::string& path) {
  return value.is_object() ? json::child_path(path, "config") : path;
}

}  // namespace tessera::train
