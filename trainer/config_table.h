// The table of config keys: the one source of parsing, schema, reference and help.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace tessera::trainer {

/// JSON types that a key accepts, as bits.
enum Accepts : unsigned {
  kNull = 1U,
  kBoolean = 2U,
  kInteger = 4U,
  kNumber = 8U,
  kString = 16U,
  kArray = 32U,
  kObject = 64U,
};

/// One key. Sections are keys of type object whose members have rows of their own; objects without
/// rows of their own are read by the part that they configure (model, compile.optimizer, a
/// callback, ...).
struct Row {
  std::string_view path;  // "fit.batch_size"
  unsigned accepts = 0;
  std::string_view fallback;  // default as JSON text; "" none
  std::string_view about;
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};  // of strings
  bool section = false;
};

const std::vector<Row>& config_table();
/// What a key takes, in words: "an integer of at least 1, or null".
std::string accepted_by(const Row& row);

/// Types, ranges, choices and unknown keys of a whole config.
void check_config(const json::Value& config, json::Problems& problems);
/// Whole numbers of keys that take integers become integers, however they are spelled: 1e3, 3.0.
void spell_integers(json::Value& config);
/// The config with defaults filled in, keys in the order of the table.
json::Value with_defaults(const json::Value& config);
/// JSON Schema (draft-07) of a config.
json::Value config_schema();
/// Applies "path.to.key=value": the value is JSON where it parses, else a string. Items are named
/// by index (`callbacks[0].config.patience`), keys that are no plain words in quotes
/// (`distribution.config.layout_map[".*kernel"]`). Problems are placed at "--set path".
void apply_set(json::Value& config, const std::string& assignment, json::Problems& problems);

}  // namespace tessera::trainer
