// Reading and writing of factor strings.
#include "runtime/graph/rule.h"

#include "base/error.h"

namespace tessera::graph {
namespace {

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back().push_back(c);
    }
  }
  return parts;
}

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += ',';
    text += parts[i];
  }
  return text;
}

}  // namespace

Rule parse_rule(std::string_view text, std::vector<std::uint32_t> linear) {
  const std::size_t arrow = text.find("->");
  check(arrow != std::string_view::npos, "a sharding rule needs '->'");
  Rule rule;
  if (arrow > 0) rule.operands = split(text.substr(0, arrow));
  rule.results = split(text.substr(arrow + 2));
  rule.linear = std::move(linear);
  return rule;
}

std::string to_string(const Rule& rule) { return join(rule.operands) + "->" + join(rule.results); }

std::string factors_of(const Rule& rule) {
  std::string factors;
  const auto collect = [&factors](const std::vector<std::string>& terms) {
    for (const std::string& term : terms) {
      for (const char c : term) {
        if (is_factor(c) && factors.find(c) == std::string::npos) factors.push_back(c);
      }
    }
  };
  collect(rule.operands);
  collect(rule.results);
  return factors;
}

}  // namespace tessera::graph
