// Fuzzes configs: a text, then --set assignments, separated by zero bytes.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/data/dataset.h"
#include "tests/fuzz/memory_file.h"
#include "trainer/config_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto next = [&rest] {
    const std::size_t end = std::min(rest.find('\0'), rest.size());
    const std::string_view part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return part;
  };
  json::Problems problems;
  json::Value config = json::parse(next(), "f.json", problems);
  while (!rest.empty()) trainer::apply_set(config, std::string(next()), problems);
  trainer::check_config(config, problems);
  if (const json::Value* sets = config.find("data"); sets != nullptr) {
    const data::Expected expected{{{"a", {2}, 0}, {"b", {3, 2}, 9}}, {{"out", {1}, 0}}, true};
    for (const json::Member& member : sets->object)
      data::check_section(member.value, "data." + member.key, expected, problems);
  }
  for (const json::Problem& problem : problems.list()) {
    fuzz::require(!problem.message.empty() && to_string(problem).find('\x1b') == std::string::npos);
  }
  if (!problems.empty() || !config.is_object()) return 0;
  const json::Value filled = trainer::with_defaults(config);
  json::Problems of_filled;
  trainer::check_config(filled, of_filled);
  fuzz::require(of_filled.empty() || config.find("model") == nullptr);
  fuzz::require(json::dump(trainer::with_defaults(filled)) == json::dump(filled));
  return 0;
}
