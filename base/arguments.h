// Typed reading of a JSON object that configures something: defaults, ranges, choices, and errors
// for everything unknown.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace tessera::json {

/// Reads the members of one object. Every getter marks its key as known and adds a Problem (placed
/// at the value, with the path of the key) when type or range is wrong; the fallback is then
/// returned. A member that is null counts as absent where the fallback allows it. `finish` reports
/// the members that nobody asked for, with the nearest known key.
class Arguments {
 public:
  /// `object` outlives this; a value that is no object (but for null) is a problem. `path` is that
  /// of the object ("compile.optimizer.config").
  Arguments(const Value& object, std::string path, Problems& problems);

  bool has(std::string_view key) const;  // present and not null; marks nothing
  bool boolean(std::string_view key, bool fallback);
  std::int64_t integer(std::string_view key, std::int64_t fallback,
                       std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t most = std::numeric_limits<std::int64_t>::max());
  std::optional<std::int64_t> optional_integer(
      std::string_view key, std::int64_t least = std::numeric_limits<std::int64_t>::min(),
      std::int64_t most = std::numeric_limits<std::int64_t>::max());
  /// Accepts integers too.
  double number(std::string_view key, double fallback,
                double least = -std::numeric_limits<double>::infinity(),
                double most = std::numeric_limits<double>::infinity());
  std::optional<double> optional_number(std::string_view key,
                                        double least = -std::numeric_limits<double>::infinity(),
                                        double most = std::numeric_limits<double>::infinity());
  std::string text(std::string_view key, std::string fallback);
  std::optional<std::string> optional_text(std::string_view key);
  std::string choice(std::string_view key, std::string fallback,
                     const std::vector<std::string>& choices);
  /// A list of integers; one integer counts as a list of one.
  std::optional<std::vector<std::int64_t>> integers(std::string_view key);
  std::optional<std::vector<double>> numbers(std::string_view key);
  std::optional<std::vector<std::string>> texts(std::string_view key);
  /// The member as it is (also null), or nullptr when absent.
  const Value* value(std::string_view key);
  /// Reports a missing key (at the object) unless present; like `value` otherwise.
  const Value* required(std::string_view key);
  /// Known keys without effect.
  void ignore(const std::vector<std::string>& keys);
  /// Unknown members are fine: configs of Keras layers written by other versions.
  void ignore_rest() { ignore_rest_ = true; }
  void finish(std::string_view noun = "key");

  void problem(const Value& at, std::string_view key, std::string message);
  std::string path_of(std::string_view key) const;
  Problems& problems() { return *problems_; }
  const Value& object() const { return *object_; }

 private:
  const Value* get(std::string_view key);  // marks; nullptr when absent or null

  const Value* object_;
  std::string path_;
  Problems* problems_;
  std::vector<std::string> known_;
  bool ignore_rest_ = false;
};

/// What Keras serialises: "adam", or {"class_name": "Adam", "config": {...}} with optional module,
/// registered_name, build_config, compile_config, shared_object_id, name, inbound_nodes.
struct Identifier {
  std::string class_name;         // "" when it is not readable (a problem was added)
  const Value* config = nullptr;  // the config object, or a shared empty object
  const Value* at = nullptr;      // where to place problems about the name
};
Identifier read_identifier(const Value& value, const std::string& path, Problems& problems);

}  // namespace tessera::json
