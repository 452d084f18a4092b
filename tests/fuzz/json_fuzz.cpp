// Fuzzes the JSON parser: no crash, positions inside the text, and what is dumped reads back the
// same.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/json.h"

namespace {

using tessera::json::Problems;
using tessera::json::Value;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_positions(const Value& value, int lines) {
  require(value.position.line >= 1 && value.position.line <= lines && value.position.column >= 1);
  for (const Value& item : value.array) check_positions(item, lines);
  for (const auto& member : value.object) {
    require(member.key_position.line >= 1 && member.key_position.line <= lines);
    require(value.find(member.key) == &member.value);  // no duplicates
    check_positions(member.value, lines);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  int lines = 1;
  for (const char c : text) lines += c == '\n' ? 1 : 0;
  Problems problems;
  const Value value = tessera::json::parse(text, "f.json", problems);
  for (const auto& problem : problems.list()) {
    require(problem.at.line >= 1 && problem.at.line <= lines && problem.at.column >= 1);
    require(!tessera::json::to_string(problem).empty());
  }
  if (!problems.empty()) return 0;
  check_positions(value, lines);
  const std::string dumped = tessera::json::dump(value, 2, 17);
  Problems again;
  const Value reread = tessera::json::parse(dumped, "f.json", again);
  require(again.empty());
  require(tessera::json::dump(reread, 2, 17) == dumped);
  return 0;
}
