// The config reference: complete, and its examples are what the parsers take.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "api/checks.h"
#include "base/json.h"
#include "tests/support/json.h"
#include "trainer/config_reference.h"
#include "trainer/config_table.h"

using Catch::Matchers::Contains;
using namespace tessera;
using namespace tessera::trainer;
using testing::lines_of;
using testing::parse;

namespace {

/// {"path": ..., ...}: the examples of all keys of a format or class, less the key `without`.
std::string examples(const std::vector<NestedKey>& keys, std::string_view of,
                     std::string_view without = "") {
  std::string text;
  for (const NestedKey& key : keys) {
    if (key.of == of && key.key != without)
      text += fmt::format("{}\"{}\": {}", text.empty() ? "" : ", ", key.key, key.example);
  }
  return text;
}

std::string data_problems(std::string_view format, const std::string& keys) {
  json::Problems problems;
  check_data_section(
      parse(fmt::format(R"({{"format": "{}"{}{}}})", format, keys.empty() ? "" : ", ", keys)),
      "data", nullptr, problems);
  return lines_of(problems);
}

std::string distribution_problems(std::string_view class_name, const std::string& keys) {
  json::Problems problems;
  const json::Value section =
      parse(fmt::format(R"({{"class_name": "{}", "config": {{{}}}}})", class_name, keys));
  read_config_distribution(&section, "distribution", 4, ".", problems);
  return lines_of(problems);
}

}  // namespace

TEST_CASE("the reference has a row for every key") {
  const std::string reference = config_reference();
  for (const Row& row : config_table())
    CHECK_THAT(reference, Contains("| `" + std::string(row.path) + "` | "));
  CHECK_THAT(reference, Contains("| `fit.epochs` | an integer of at least 1 | `1` |"));
  CHECK_THAT(reference, Contains("| `csv` | `separator` | `\";\"` | `\",\"` |"));
  CHECK_THAT(reference, Contains("| `ModelParallel` | `match` |"));
}

TEST_CASE("the parser takes the examples of every data format") {
  CHECK_THAT(data_problems("npz", R"("path": "a.npz", "zzz": 1)"), Contains("unknown key \"zzz\""));
  for (const NestedKey& key : data_keys()) {
    CAPTURE(key.of, key.key);
    // A data set of tokens has one path or several.
    const bool tokens = key.of == "tokens";
    CHECK(data_problems(key.of, examples(data_keys(), key.of, tokens ? "path" : "")).empty());
    if (tokens) CHECK(data_problems(key.of, examples(data_keys(), key.of, "paths")).empty());
    if (key.fallback.empty() && key.key != "path")
      CHECK_THAT(data_problems(key.of, examples(data_keys(), key.of, key.key)),
                 Contains(std::string(key.key)));
    if (key.fallback.empty() && key.key == "path")
      CHECK_THAT(data_problems(key.of, ""), Contains("path"));
  }
}

TEST_CASE("every data format is in the reference") {
  std::string known = data_problems("nothing", "");
  for (const NestedKey& key : data_keys()) {
    const std::string word = '"' + std::string(key.of) + '"';
    if (const std::size_t at = known.find(word); at != std::string::npos)
      known.erase(at, word.size());
    CHECK_THAT(data_problems("nothing", ""), Contains(word));
  }
  // What is left names no format.
  for (const char* format : {"npz", "npy", "csv", "idx", "tokens", "text", "synthetic"})
    CHECK_THAT(known, !Contains('"' + std::string(format) + '"'));
}

TEST_CASE("the parser takes the examples of every distribution") {
  CHECK_THAT(distribution_problems("DataParallel", R"("zzz": 1)"), Contains("unknown"));
  for (const NestedKey& key : distribution_keys()) {
    CAPTURE(key.of, key.key);
    CHECK(distribution_problems(key.of, examples(distribution_keys(), key.of)).empty());
    if (key.fallback.empty()) {
      CHECK_THAT(distribution_problems(key.of, examples(distribution_keys(), key.of, key.key)),
                 Contains(std::string(key.key)));
    }
  }
}

TEST_CASE("the reference lists the classes that a config may name") {
  const std::string reference = config_reference();
  for (const auto& [what, names] : known_classes()) {
    CAPTURE(what);
    CHECK(names.size() >= 6);
    CHECK_THAT(reference, Contains(fmt::format("| {} | {}", what, names.front())));
  }
  json::Problems problems;
  const auto callbacks = known_classes()[4];
  REQUIRE(callbacks.first == "callbacks");
  check_callback(parse(R"({"class_name": "Nothing"})"), "c", problems);
  for (const std::string& name : callbacks.second) CHECK_THAT(lines_of(problems), Contains(name));
}
