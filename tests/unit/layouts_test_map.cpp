// LayoutMap: keys, patterns and modes as Keras documents them, and hints where rules miss.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "layouts/layout_map.h"

using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using tessera::Error;
using namespace tessera::layouts;
namespace json = tessera::json;

namespace {

const Mesh kMesh({4, 2}, {"batch", "model"});
const LayoutAxes kSharded2{{"batch"}, {"model"}};
const LayoutAxes kSharded1{{"model"}};
const LayoutAxes kWhole2{{}, {}};
const LayoutAxes kWhole1{{}};

LayoutMap keras_map() {
  LayoutMap map(kMesh);
  map.insert("dense/kernel", kSharded2);
  map.insert("dense/bias", kSharded1);
  map.insert(".*dense.*kernel", kWhole2);
  map.insert(".*dense.*bias", kWhole1);
  map.insert(".*bias", kSharded1);
  return map;
}

std::string key_for(const LayoutMap& map, std::string_view path) {
  const auto rule = map.resolve(path);
  return rule ? map.rules()[*rule].key : "";
}

std::string fault_of(const std::string& pattern) {
  try {
    static_cast<void>(Pattern(pattern));
  } catch (const Error& error) {
    CHECK(error.kind == Error::Kind::config);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("an exact key beats patterns that match too") {
  CHECK(key_for(keras_map(), "dense/kernel") == "dense/kernel");
}

TEST_CASE("without an exact key the one pattern that matches") {
  CHECK(key_for(keras_map(), "dense_2/kernel") == ".*dense.*kernel");
}

TEST_CASE("two patterns for one path are an error that names both in order of insertion") {
  CHECK_THROWS_WITH(keras_map().resolve("dense_2/bias"),
                    Equals("Path 'dense_2/bias' matches multiple layout specification keys: "
                           "['.*dense.*bias', '.*bias']"));
}

TEST_CASE("no match is no rule") { CHECK_FALSE(keras_map().resolve("conv2d/kernel")); }

TEST_CASE("map operations work on literal keys") {
  LayoutMap map(kMesh);
  CHECK(map.size() == 0);
  map.insert("dense/kernel", kSharded2);
  map.insert("dense/bias", kSharded1);
  CHECK(map.size() == 2);
  CHECK(map.contains("dense/kernel"));
  CHECK_FALSE(map.contains("dense/kern"));
  CHECK_FALSE(map.contains(".*kernel"));
  CHECK_THROWS_WITH(map.insert("dense/kernel", kSharded2),
                    Contains("dense/kernel already exist in the LayoutMap"));
  CHECK(map.size() == 2);
  CHECK(map.rules()[0].key == "dense/kernel");
  CHECK(map.rules()[1].key == "dense/bias");
  CHECK(map.pop("dense/kernel").axes == kSharded2);
  CHECK(key_for(map, "dense/bias") == "dense/bias");
  CHECK_THROWS_WITH(map.pop("dense/kernel"), Contains("dense/kernel"));
  map.pop("dense/bias");
  CHECK(map.size() == 0);
  CHECK_FALSE(map.resolve("dense/bias"));
}

TEST_CASE("fullmatch wants the whole path, search a part, first the first") {
  LayoutMap full(kMesh);
  LayoutMap search(kMesh, Match::search);
  LayoutMap first(kMesh, Match::first);
  for (LayoutMap* map : {&full, &search, &first}) {
    map->insert("dense.*kernel", kSharded2);
    map->insert("kernel", kWhole2);
  }
  CHECK(key_for(full, "sequential/dense/kernel").empty());
  CHECK(key_for(full, "dense/kernel") == "dense.*kernel");
  CHECK_THROWS_WITH(search.resolve("sequential/dense/kernel"),
                    Contains("['dense.*kernel', 'kernel']"));
  CHECK(key_for(search, "sequential/conv/kernel") == "kernel");
  CHECK(key_for(first, "sequential/dense/kernel") == "dense.*kernel");
  CHECK(key_for(first, "sequential/conv/kernel") == "kernel");
  first.insert("sequential/conv/kernel", kWhole2);
  CHECK(key_for(first, "sequential/conv/kernel") == "sequential/conv/kernel");
}

TEST_CASE("a dot matches no newline, and a dollar only the end") {
  CHECK_FALSE(Pattern(".*").matches_all_of("a\nb"));
  CHECK_FALSE(Pattern("a$").matches_part_of("a\n"));
  CHECK(Pattern("").matches_all_of(""));
  CHECK(Pattern("").matches_part_of("x"));
  CHECK_FALSE(Pattern("").matches_all_of("x"));
}

TEST_CASE("outputs are matched by keys that spell output") {
  LayoutMap map(kMesh);
  map.insert(".*", kWhole2);
  map.insert("mlp/dense_1/output", kSharded2);
  map.insert(".*dense_2/out.*", kSharded2);
  map.insert(".*d/output", kSharded2);
  CHECK(map.resolve_output("mlp/dense_1/output") == 1U);
  CHECK_FALSE(map.resolve_output("mlp/dense_2/output"));
  CHECK(map.resolve_output("mlp/d/output") == 3U);
  CHECK(map.resolve("mlp/x/kernel") == 0U);
}

TEST_CASE("axes are checked when a rule is inserted, and the map stays as it was") {
  LayoutMap map(kMesh);
  CHECK_THROWS_WITH(map.insert("a", {{"modle"}}), Contains("Invalid axis names for Layout") &&
                                                      Contains("did you mean \"model\"") &&
                                                      Contains("rule \"a\""));
  CHECK_THROWS_WITH(map.insert("a", {{"model"}, {"model"}}), Contains("\"model\" stands twice"));
  CHECK_THROWS_WITH(map.insert("a", {{"model", "model"}}), Contains("twice"));
  CHECK_THROWS_WITH(map.insert("a(", {{"model"}}), Contains("\"a(\""));
  CHECK(map.size() == 0);
  map.insert("a", {{"model", "batch"}});
  const Placement placement = placement_of(map.rules()[0].axes, 2, kMesh);
  CHECK(placement == Placement{{{1, 0}, {}}, 0});
  CHECK(axes_of(placement, kMesh) == LayoutAxes{{"model", "batch"}, {}});
  CHECK(to_string(LayoutAxes{{"model", "batch"}, {}, {"x"}}) ==
        "[[\"model\", \"batch\"], null, \"x\"]");
}

TEST_CASE("patterns that Python has and RE2 has not are explained") {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"(?!dense_2).*kernel", "look-ahead"},
      {"a(?=b)", "look-ahead"},
      {"(?<=a)b", "look-behind"},
      {"(?<!a)b", "look-behind"},
      {"(a)\\1", "\\1"},
      {"(?P<n>a)(?P=n)", "named group"},
      {"(?>a)b", "atomic"},
      {"(?#comment)a", "comment"},
      {"(a)?(?(1)b|c)", "conditional"},
      {"a++", "possessive"},
      {"a*+", "possessive"},
      {"a{2,3}+", "possessive"},
      {"a\\Z", "\\z"},
      {"\\u00e4", "\\x{"},
      {"(?x)a", "flag x"},
      {"(?ia)a", "flag a"},
      {"x{,3}", "{0,3}"},
      {"[a-z]{,3}", "{0,3}"},
  };
  for (const auto& [pattern, hint] : cases) {
    CAPTURE(pattern);
    const std::string fault = fault_of(pattern);
    CHECK_THAT(fault, Contains(pattern));
    CHECK_THAT(fault, Contains(hint));
    CHECK_THAT(fault, Contains("RE2"));
  }
}

TEST_CASE("patterns that do not compile give RE2's reason") {
  CHECK_THAT(fault_of("dense(.*kernel"), Contains("dense(.*kernel") && Contains("missing )"));
  CHECK_THAT(fault_of("[a"), Contains("missing ]"));
  CHECK_THAT(fault_of("*a"), Contains("repetition"));
  CHECK_THAT(fault_of("a{1001}"), Contains("1000"));
  CHECK_THAT(fault_of("((a{100}){100})"), Contains("1000"));
  CHECK_FALSE(fault_of("\xFF").empty());
  CHECK_FALSE(fault_of(std::string(100000, '(')).empty());
  CHECK_FALSE(fault_of("a\\").empty());
}

TEST_CASE("what only looks like Python's is accepted") {
  for (const std::string pattern :
       {"a{2,3}",    "a{2,}?",
        "a*?",       "a+?",
        "a??",       "[(?!]",
        "\\(\\?!",   "[]a]",
        "[^]a]",     "a{",
        "a{x}",      "}+",
        "(?i)a",     "(?:a|b)",
        "(?P<n>a)",  "\\.",
        "\\z",       "[[:alpha:]]",
        "x\\{,3\\}", "[{,3}]",
        "a|b",       "decoder_block.*attention.*(query|key|value).kernel",
        "\\d+",      ""}) {
    CAPTURE(pattern);
    CHECK(fault_of(pattern).empty());
  }
}

TEST_CASE("hints for rules that match nothing") {
  const std::vector<std::string> variables{"sequential/dense_1/kernel", "sequential/dense_1/bias",
                                           "layers/0/self_attn/q_proj/kernel"};
  const std::vector<std::string> outputs{"sequential/relu/output"};
  LayoutMap map(kMesh);
  map.insert("dense_1.*kernel", kSharded2);
  map.insert("layers.*.self_attn.q_proj", kSharded2);
  map.insert("self_attn", kSharded2);
  map.insert("dense_1/bias|conv/bias", kSharded1);
  map.insert("sequential/dense_3/kernel", kSharded2);
  map.insert(".*relu.*", kSharded1);
  map.insert("nothing_like_it", kSharded1);
  map.insert("self_attn/(q|k)_proj/[|]?kernel", kSharded1);
  const auto hint = [&](std::size_t rule) { return map.hint_for_unused(rule, variables, outputs); };
  CHECK_THAT(hint(0), Contains("\".*dense_1.*kernel\"") && Contains("\"match\": \"search\""));
  CHECK_THAT(hint(1), Contains("\"layers.*.self_attn.q_proj.*\""));
  CHECK_THAT(hint(2), Contains("\".*self_attn.*\""));
  CHECK_THAT(hint(3), Contains("\".*(?:dense_1/bias|conv/bias)\""));
  CHECK_THAT(hint(4), Contains("\"sequential/dense_1/kernel\""));
  CHECK_THAT(hint(5), Contains("sequential/relu/output") && Contains("must spell \"output\""));
  CHECK(hint(6).empty());
  CHECK_THAT(hint(7), Contains("\".*self_attn/(q|k)_proj/[|]?kernel\""));

  LayoutMap first(kMesh, Match::first);
  first.insert(".*", kWhole1);
  first.insert("kernel", kSharded2);
  CHECK_THAT(first.hint_for_unused(1, variables, outputs), Contains("rule \".*\" comes first"));
}

TEST_CASE("layouts are read from arrays only") {
  const auto read = [](const std::string& text, json::Problems& problems) {
    return read_layout(json::parse(text, "m.json", problems), "map.x", problems);
  };
  json::Problems problems;
  CHECK(read(R"([null, "model", ["a", "b"], []])", problems) ==
        LayoutAxes{{}, {"model"}, {"a", "b"}, {}});
  CHECK(read("[]", problems) == LayoutAxes{});
  CHECK(problems.empty());
  const std::vector<std::pair<std::string, std::string>> cases{
      {"\"model\"", "m.json:1:1: error: map.x: expected an array of axes"},
      {"{}", "m.json:1:1: error: map.x: expected an array of axes"},
      {"3", "m.json:1:1: error: map.x: expected an array of axes"},
      {"[null, 1]", "m.json:1:8: error: map.x: expected null, the name of an axis"},
      {"[[\"a\", null]]", "m.json:1:2: error: map.x: expected null, the name of an axis"},
  };
  for (const auto& [text, expected] : cases) {
    json::Problems found;
    CHECK_FALSE(read(text, found));
    REQUIRE(found.list().size() == 1);
    CHECK_THAT(to_string(found.list()[0]), Catch::Matchers::StartsWith(expected));
  }
}

TEST_CASE("names of modes") {
  for (const Match match : {Match::fullmatch, Match::search, Match::first}) {
    CHECK(match_from_name(name_of(match)) == match);
  }
  CHECK_FALSE(match_from_name("fullmach"));
}
