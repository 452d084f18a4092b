// Distributions: placements, ZeRO, and the config's section with all its errors.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "layouts/distribution.h"

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using tessera::Error;
using tessera::Shape;
using namespace tessera::layouts;
namespace json = tessera::json;

namespace {

struct Read {
  Distribution distribution;
  std::vector<std::string> problems;
};

Read read(const std::string& text, int ranks, const std::string& folder = "") {
  json::Problems problems;
  const json::Value value = json::parse(text, "c.json", problems);
  REQUIRE(problems.empty());
  Read result{read_distribution(&value, "distribution", ranks, folder, problems), {}};
  for (const json::Problem& problem : problems.list()) {
    result.problems.push_back(to_string(problem));
  }
  return result;
}

/// ModelParallel on a 2x2 mesh with this layout map and these further members.
std::string model_parallel(const std::string& map, const std::string& more = "") {
  return R"({"class_name": "ModelParallel", "config": {"device_mesh": {"shape": [2, 2], )"
         R"("axis_names": ["batch", "model"]}, )" +
         more + "\n\"layout_map\": " + map + "}}";
}

}  // namespace

TEST_CASE("data parallel: data over the first axis, variables whole, outputs free") {
  const Mesh mesh({8}, {"data"});
  const Distribution distribution = Distribution::data_parallel(mesh);
  CHECK(distribution.is_data_parallel());
  CHECK(distribution.batch_axis_name() == "data");
  CHECK(distribution.replicas() == 8);
  CHECK(distribution.data_placement({4, 2, 2}) == Placement{{{0}, {}, {}}, 0});
  CHECK(distribution.variable_placement("x", {5}) == Placement::replicated(1));
  CHECK(distribution.variable_placement("x", {}) == Placement::replicated(0));
  CHECK_FALSE(distribution.output_placement("x/output", {5}));
  CHECK_THROWS_AS(distribution.data_placement({}), Error);
}

TEST_CASE("model parallel: rules decide") {
  LayoutMap map(Mesh({2, 4}, {"data", "model"}));
  map.insert(".*kernel", {{}, {"model"}});
  map.insert(".*bias", {{"model"}});
  map.insert("d/output", {{"data"}});
  const Distribution distribution = Distribution::model_parallel(map, "data");
  CHECK_FALSE(distribution.is_data_parallel());
  CHECK(distribution.variable_placement("d/kernel", {8, 8}) == Placement{{{}, {1}}, 0});
  CHECK(distribution.variable_placement("d/bias", {8}) == Placement{{{1}}, 0});
  CHECK(distribution.variable_placement("seed", {2}) == Placement::replicated(1));
  CHECK(distribution.variable_placement("conv/kernel", {3, 3, 4}) == Placement{{{}, {1}, {}}, 0});
  CHECK(distribution.output_placement("d/output", {8, 3}) == Placement{{{0}, {}}, 0});
  CHECK_FALSE(distribution.output_placement("e/output", {8, 3}));
  CHECK(distribution.data_placement({4, 2, 2}) == Placement{{{0}, {}, {}}, 0});
  CHECK_THROWS_WITH(distribution.variable_placement("d/kernel", {8}),
                    Contains(".*kernel") && Contains("d/kernel") && Contains("[8]"));
  CHECK(Distribution::model_parallel(map, "model").batch_axis() == 1);
  CHECK(Distribution::model_parallel(map).batch_axis() == 0);
  CHECK_THROWS_WITH(Distribution::model_parallel(map, "dat"), Contains("did you mean \"data\""));
}

TEST_CASE("ZeRO cuts the largest free dimension, the first of equals") {
  const Mesh mesh({4, 2}, {"batch", "model"});
  const auto dim = [&](const Shape& shape, const Placement& placement) {
    return zero_dimension(shape, placement, 0, mesh);
  };
  CHECK(dim({3, 9, 5}, Placement::replicated(3)) == 1U);
  CHECK(dim({9, 9}, Placement::replicated(2)) == 0U);
  CHECK(dim({9, 3}, {{{1}, {}}, 0}) == 1U);
  CHECK_FALSE(dim({9}, {{{1}}, 0}));
  CHECK_FALSE(dim({9, 3}, {{{0}, {}}, 0}));
  CHECK_FALSE(dim({9, 3}, {{{}, {}}, 1}));
  CHECK_FALSE(dim({}, Placement::replicated(0)));
  CHECK_FALSE(dim({1, 1}, Placement::replicated(2)));
  CHECK_FALSE(dim({0}, Placement::replicated(1)));
  CHECK_FALSE(zero_dimension({9}, Placement::replicated(1), 0, Mesh({1, 4}, {"batch", "model"})));
  // A cut over an axis of size 1 leaves the dimension whole.
  CHECK(zero_dimension({9}, {{{1}}, 0}, 0, Mesh({4, 1}, {"batch", "model"})) == 0U);
}

TEST_CASE("ZeRO stages: slots, then gradients, then parameters") {
  const Mesh mesh({4}, {"batch"});
  const Placement whole = Placement::replicated(2);
  const Placement cut{{{0}, {}}, 0};
  for (int stage = 0; stage <= 3; ++stage) {
    const Distribution distribution = Distribution::data_parallel(mesh, {stage, 0});
    CHECK(distribution.slot_storage({8, 8}, whole) == (stage >= 1 ? cut : whole));
    CHECK(distribution.gradient_storage({8, 8}, whole) == (stage >= 2 ? cut : whole));
    CHECK(distribution.parameter_storage({8, 8}, whole) == (stage >= 3 ? cut : whole));
    CHECK(distribution.slot_storage({8, 8}, cut) == cut);
  }
}

TEST_CASE("the section: absent, a name, an object") {
  json::Problems problems;
  const Distribution absent = read_distribution(nullptr, "distribution", 4, "", problems);
  CHECK(problems.empty());
  CHECK(absent.is_data_parallel());
  CHECK(absent.mesh() == Mesh({4}, {"batch"}));
  for (
      const std::string text :
      {"null", "\"DataParallel\"", R"({"class_name": "DataParallel", "config": {}})",
       R"({"class_name": "DataParallel"})",
       R"({"class_name": "DataParallel", "config": {"device_mesh": null, "zero": null}})",
       R"({"class_name": "DataParallel", "config": {}, "module": "keras", "registered_name": null})"}) {
    CAPTURE(text);
    const Read result = read(text, 4);
    CHECK(result.problems.empty());
    CHECK(result.distribution.mesh() == Mesh({4}, {"batch"}));
  }
  const Read named = read(
      R"({"class_name": "DataParallel", "config": {"device_mesh": {"shape": [2, 2], "axis_names": ["x", "y"]}}})",
      4);
  CHECK(named.problems.empty());
  CHECK(named.distribution.batch_axis_name() == "x");
}

TEST_CASE("the section: ModelParallel with everything") {
  const Read result = read(
      R"({"class_name": "ModelParallel", "config": {
        "device_mesh": {"shape": [-1, 2], "axis_names": ["data", "model"]},
        "layout_map": {".*kernel": [null, ["model", "data"]], "bias": ["model"]},
        "batch_dim_name": "data", "match": "search", "allow_unused_rules": true,
        "require_divisible": true, "zero": {"stage": 2, "axis": "data"}}})",
      8);
  CHECK(result.problems.empty());
  const Distribution& d = result.distribution;
  CHECK(d.mesh() == Mesh({4, 2}, {"data", "model"}));
  CHECK(d.map().match() == Match::search);
  CHECK(d.map().size() == 2);
  CHECK(d.map().rules()[0].source.at.line == 3);
  CHECK(d.map().rules()[0].source.at.column == 24);
  CHECK(d.map().rules()[0].source.path == "distribution.config.layout_map[\".*kernel\"]");
  CHECK(d.allow_unused_rules);
  CHECK(d.require_divisible);
  CHECK(d.zero().stage == 2);
  CHECK(d.zero().axis == 0);
  CHECK(d.variable_placement("a/kernel", {8, 8}) == Placement{{{}, {1, 0}}, 0});
}

TEST_CASE("one -1 is filled in wherever it stands") {
  const auto mesh = [](const std::string& shape, int ranks) {
    return read(R"({"class_name": "DataParallel", "config": {"device_mesh": {"shape": )" + shape +
                    R"(, "axis_names": ["a", "b", "c"]}}})",
                ranks);
  };
  CHECK(mesh("[-1, 2, 2]", 12).distribution.mesh().shape() == std::vector<std::int64_t>{3, 2, 2});
  CHECK(mesh("[2, -1, 2]", 12).distribution.mesh().shape() == std::vector<std::int64_t>{2, 3, 2});
  CHECK(mesh("[2, 6, -1]", 12).distribution.mesh().shape() == std::vector<std::int64_t>{2, 6, 1});
  CHECK_THAT(mesh("[5, -1, 1]", 12).problems.at(0),
             Contains("c.json:1:68: error: distribution.config.device_mesh.shape: ") &&
                 Contains("12") && Contains("5"));
  CHECK_THAT(mesh("[-1, -1, 2]", 12).problems.at(0), Contains("only one"));
  CHECK_THAT(
      mesh("[3, 2, 1]", 12).problems.at(0),
      Contains("Shape does not match the number of devices") && Contains("6") && Contains("12"));
  CHECK_THAT(mesh("[3, 2, 4]", 12).problems.at(0), Contains("24"));
  CHECK_FALSE(mesh("[0, 2, 2]", 12).problems.empty());
  CHECK_FALSE(mesh("[-2, 2, 2]", 12).problems.empty());
  CHECK_FALSE(mesh("[9223372036854775807, 2, 2]", 12).problems.empty());
  CHECK_FALSE(mesh("[2147483647, 2147483647, 2147483647]", 12).problems.empty());
}

TEST_CASE("damaged sections: where and why") {
  const std::string mesh = R"("device_mesh": {"shape": [2, 2], "axis_names": ["batch", "model"]})";
  struct Case {
    std::string text;
    std::vector<std::string> expected;  // one per problem, in order
  };
  const std::vector<Case> cases{
      {"3", {"c.json:1:1: error: distribution: expected a name or an object"}},
      {"\"DataParalel\"",
       {"c.json:1:1: error: distribution: unknown distribution \"DataParalel\"; "
        "did you mean \"DataParallel\""}},
      {"\"\"", {"c.json:1:1: error: distribution: expected a name, got \"\""}},
      {R"({"class_name": "Pipeline", "config": {}})",
       {"c.json:1:16: error: distribution.class_name: unknown distribution \"Pipeline\""}},
      {R"({"class_nam": "DataParallel"})",
       {"c.json:1:1: error: distribution: missing key \"class_name\"",
        "c.json:1:2: error: distribution.class_nam: unknown key"}},
      {"\"ModelParallel\"", {"c.json:1:1: error: distribution: ModelParallel needs a device_mesh"}},
      {R"({"class_name": "ModelParallel"})",
       {"c.json:1:1: error: distribution: missing key \"config\""}},
      {R"({"class_name": "ModelParallel", "config": {}})",
       {"c.json:1:43: error: distribution.config: missing key \"device_mesh\"",
        "c.json:1:43: error: distribution.config: missing key \"layout_map\""}},
      {R"({"class_name": "ModelParallel", "config": {"device_mesh": null, "layout_map": {}}})",
       {"c.json:1:59: error: distribution.config.device_mesh: expected an object"}},
      {R"({"class_name": "ModelParallel", "config": {)" + mesh + R"(, "layout_map": 3}})",
       {"c.json:1:126: error: distribution.config.layout_map: expected an object"}},
      {R"({"class_name": "DataParallel", "config": {"device_mesh": {"shape": null, "axis_names": 3}}})",
       {"c.json:1:88: error: distribution.config.device_mesh.axis_names: expected an array",
        "c.json:1:68: error: distribution.config.device_mesh.shape: expected an array"}},
      {R"({"class_name": "DataParallel", "config": {"device_mesh": {"shape": [4], "names": ["a"]}}})",
       {"c.json:1:58: error: distribution.config.device_mesh: missing key \"axis_names\"",
        "c.json:1:73: error: distribution.config.device_mesh.names: unknown key"}},
      {R"({"class_name": "DataParallel", "config": {"device_mesh": {"shape": [], "axis_names": []}}})",
       {"c.json:1:58: error: distribution.config.device_mesh: Shape and axis_names cannot be "
        "empty"}},
      {R"({"class_name": "DataParallel", "config": {"layout_map": {}}})",
       {"c.json:1:43: error: distribution.config.layout_map: unknown key"}},
      {R"({"class_name": "DataParallel", "config": {"zero": {"stage": 4}}})",
       {"c.json:1:61: error: distribution.config.zero.stage: expected an integer from 1 to 3, got "
        "4"}},
      {R"({"class_name": "DataParallel", "config": {"zero": {"stage": 1, "axis": "bacth", "x": 1}}})",
       {"c.json:1:72: error: distribution.config.zero.axis: no axis \"bacth\" in the mesh "
        "(its axes: batch); did you mean \"batch\"?",
        "c.json:1:81: error: distribution.config.zero.x: unknown key"}},
      {model_parallel("{}", R"("match": "fullmach", )"),
       {"c.json:1:121: error: distribution.config.match: expected one of \"fullmatch\""}},
      {model_parallel("{}", R"("batch_dim_name": "bacth", )"),
       {"c.json:1:130: error: distribution.config.batch_dim_name: no axis \"bacth\" in the mesh "
        "(its axes: "}},
      {model_parallel("{}", R"("alow_unused_rules": true, )"),
       {"c.json:1:112: error: distribution.config.alow_unused_rules: unknown key "
        "\"alow_unused_rules\"; did you mean \"allow_unused_rules\""}},
      {model_parallel(
           R"({".*kernel": [null, "modle"], "a(": [], "b": "model", "c": ["model", "model"]})"),
       {"c.json:2:16: error: distribution.config.layout_map[\".*kernel\"]: rule \".*kernel\": "
        "Invalid "
        "axis names for Layout: no axis \"modle\" in the mesh (its axes: batch, model); did you "
        "mean \"model\"",
        "c.json:2:45: error: distribution.config.layout_map[\"a(\"]: \"a(\" is no regular "
        "expression",
        "c.json:2:60: error: distribution.config.layout_map.b: expected an array",
        "c.json:2:69: error: distribution.config.layout_map.c: rule \"c\": axis \"model\" stands "
        "twice"}},
      {model_parallel("\"no/such/map.json\""),
       {"c.json:2:15: error: distribution.config.layout_map: "
        "no/such/map.json: cannot be opened"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const Read result = read(c.text, 4);
    CAPTURE(result.problems);
    REQUIRE(result.problems.size() == c.expected.size());
    for (std::size_t i = 0; i < c.expected.size(); ++i) {
      CHECK_THAT(result.problems[i], StartsWith(c.expected[i]));
    }
  }
}

TEST_CASE("a layout map in a file of its own") {
  char name[] = "/tmp/tessera-layouts-XXXXXX";
  REQUIRE(::mkdtemp(name) != nullptr);
  const std::string folder = name;
  std::ofstream(folder + "/map.json")
      << "{\n  \".*kernel\": [null, \"model\"], // columns\n  \".*bias\": \"model\"}";
  const Read result = read(model_parallel("\"map.json\""), 4, folder);
  REQUIRE(result.problems.size() == 1);
  CHECK_THAT(result.problems[0],
             StartsWith(folder + "/map.json:3:13: error: [\".*bias\"]: expected an array"));
  std::ofstream(folder + "/map.json") << "{\".*kernel\": [null, \"model\"]}";
  const Read good = read(model_parallel("\"map.json\""), 4, folder);
  CHECK(good.problems.empty());
  CHECK(good.distribution.map().size() == 1);
  std::ofstream(folder + "/map.json") << "[]";
  CHECK_THAT(read(model_parallel("\"map.json\""), 4, folder).problems.at(0),
             StartsWith(folder + "/map.json:1:1: error: expected an object"));
  std::ofstream(folder + "/map.json") << "{\"a\": [], \"a\": []}";
  const auto twice = read(model_parallel("\"map.json\""), 4, folder).problems;
  REQUIRE(twice.size() == 1);
  CHECK_THAT(twice[0], StartsWith(folder + "/map.json:1:11: error: a: duplicate key"));
  std::ofstream(folder + "/map.json") << "{";
  CHECK(read(model_parallel("\"map.json\""), 4, folder).problems.size() == 1);
  std::filesystem::remove_all(folder);
}
