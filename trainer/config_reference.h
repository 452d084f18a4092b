// The reference page of the config, and the keys inside the objects that parts of a run read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::trainer {

/// A key inside an object whose keys depend on its "format" or "class_name".
struct NestedKey {
  std::string_view of;        // the format or class: "csv"
  std::string_view key;       // "separator"
  std::string_view example;   // as JSON text; the parser takes it
  std::string_view fallback;  // default in words; "" where the key is required
  std::string_view about;
};
/// Keys of one of data.train, data.validation, data.test, by format.
const std::vector<NestedKey>& data_keys();
/// Keys of distribution.config, by class.
const std::vector<NestedKey>& distribution_keys();

/// docs/config.md.
std::string config_reference();

}  // namespace tessera::trainer
