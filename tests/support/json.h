// JSON in tests.
#pragma once

#include <string>

#include "base/json.h"

namespace tessera::testing {

/// A valid JSON text as a value; throws what is wrong with it. `file`: how problems name the text.
inline json::Value parse(const std::string& text, const std::string& file = "c.json") {
  json::Problems problems;
  json::Value value = json::parse(text, file, problems);
  problems.throw_if_any();
  return value;
}

/// One line a problem.
inline std::string lines_of(const json::Problems& problems) {
  std::string lines;
  for (const json::Problem& problem : problems.list()) lines += to_string(problem) + "\n";
  return lines;
}

}  // namespace tessera::testing
