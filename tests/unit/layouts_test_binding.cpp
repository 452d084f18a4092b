// Binding: rules applied to a model, and every fault that this can find.
#include <catch2/catch.hpp>

#include "layouts/binding.h"

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
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

struct BoundAll {
  Binding binding;
  std::vector<std::string> problems;
};

BoundAll bind_all(const Distribution& distribution, const std::vector<Bindable>& variables,
                  const std::vector<Bindable>& outputs = {}) {
  json::Problems problems;
  BoundAll result{bind(distribution, variables, outputs, problems), {}};
  for (const json::Problem& problem : problems.list()) {
    result.problems.push_back(to_string(problem));
  }
  return result;
}

const std::vector<Bindable> kModel{{"dense_1/kernel", {8, 16}},
                                   {"dense_1/bias", {16}},
                                   {"dense_2/kernel", {16, 8}},
                                   {"dense_2/bias", {8}}};

}  // namespace

TEST_CASE("binding places variables and outputs by rule") {
  const Read config =
      read(model_parallel(R"({".*dense.*kernel": [null, "model"], "dense_1/kernel": ["model", null],
                         "dense_1/output": ["batch", null]})"),
           4);
  REQUIRE(config.problems.empty());
  const BoundAll bound = bind_all(config.distribution, kModel,
                                  {{"dense_1/output", {16, 16}}, {"dense_2/output", {16, 8}}});
  CHECK(bound.problems.empty());
  CHECK(bound.binding.warnings.empty());
  const auto& v = bound.binding.variables;
  REQUIRE(v.size() == 4);
  CHECK(v[0].rule == 1U);
  CHECK(v[0].compute == Placement{{{1}, {}}, 0});
  CHECK(v[0].storage == v[0].compute);
  CHECK_FALSE(v[1].rule);
  CHECK(v[1].compute == Placement::replicated(1));
  CHECK(v[2].rule == 0U);
  CHECK(bound.binding.outputs[0].rule == 2U);
  CHECK(bound.binding.outputs[0].compute == Placement{{{0}, {}}, 0});
  CHECK_FALSE(bound.binding.outputs[1].rule);
}

TEST_CASE("binding: a rule that matches nothing is an error at the rule") {
  const std::string map =
      R"({"dense.*kernel": [null, "model"], ".*conv.*": ["model"], "kernel": []})";
  const BoundAll bound = bind_all(read(model_parallel(map), 4).distribution,
                                  {{"m/dense/kernel", {4, 4}}, {"m/dense/bias", {4}}});
  REQUIRE(bound.problems.size() == 3);
  CHECK_THAT(
      bound.problems[0],
      StartsWith("c.json:2:16: error: distribution.config.layout_map[\"dense.*kernel\"]: rule "
                 "\"dense.*kernel\" matches no variable and no layer output; it matches only a "
                 "part of \"m/dense/kernel\": write \".*dense.*kernel\""));
  CHECK_THAT(bound.problems[1], StartsWith("c.json:2:50: error:") && Contains(".*conv.*"));
  CHECK_THAT(bound.problems[2], Contains("\".*kernel\""));

  const BoundAll allowed =
      bind_all(read(model_parallel(map, R"("allow_unused_rules": true, )"), 4).distribution,
               {{"m/dense/kernel", {4, 4}}});
  CHECK(allowed.problems.empty());
  REQUIRE(allowed.binding.warnings.size() == 3);
  CHECK_THAT(allowed.binding.warnings[1], Contains("\".*conv.*\" matches no variable"));
}

TEST_CASE("binding: a rule that loses to an exact key is used; one that never comes first is not") {
  const std::vector<Bindable> one{{"a/kernel", {4, 4}}};
  CHECK(bind_all(read(model_parallel(R"({".*kernel": [], "a/kernel": []})"), 4).distribution, one)
            .problems.empty());
  const std::string first = R"("match": "first", )";
  CHECK(bind_all(read(model_parallel(R"({".*kernel": [], "a/kernel": []})", first), 4).distribution,
                 one)
            .problems.empty());
  const BoundAll late = bind_all(
      read(model_parallel(R"({"kernel": [], "a.kernel": []})", first), 4).distribution, one);
  REQUIRE(late.problems.size() == 1);
  CHECK_THAT(late.problems[0], Contains("\"a.kernel\"") && Contains("rule \"kernel\" comes first"));
}

TEST_CASE("binding: two rules for one path, too long a layout") {
  const BoundAll twice = bind_all(
      read(model_parallel(R"({".*dense.*bias": ["model"], ".*bias": ["model"], ".*kernel": []})"),
           4)
          .distribution,
      kModel);
  REQUIRE(twice.problems.size() == 2);
  CHECK_THAT(twice.problems[0],
             Contains("Path 'dense_1/bias' matches multiple layout specification keys: "
                      "['.*dense.*bias', '.*bias']"));
  const BoundAll longer =
      bind_all(read(model_parallel(R"({".*dense_1.*": [null, "model"]})"), 4).distribution, kModel);
  REQUIRE(longer.problems.size() == 1);
  CHECK_THAT(longer.problems[0], StartsWith("c.json:2:16: error:") && Contains(".*dense_1.*") &&
                                     Contains("dense_1/bias") && Contains("[16]") &&
                                     Contains("2 entries"));
}

TEST_CASE("binding: the same fault on many paths is shown a few times and counted") {
  std::vector<Bindable> many;
  for (int i = 0; i < 50; ++i) many.push_back({"d_" + std::to_string(i) + "/bias", {4}});
  const BoundAll bound =
      bind_all(read(model_parallel(R"({".*bias": [null, "model"]})"), 4).distribution, many);
  REQUIRE(bound.problems.size() == 5);
  CHECK_THAT(bound.problems[4], Contains("the same for 46 more paths"));
}

TEST_CASE("binding: uneven cuts warn, or are errors where divisibility is required") {
  const std::string text =
      R"({"class_name": "ModelParallel", "config": {"device_mesh": {"shape": [2, 4], "axis_names":
      ["batch", "model"]}, MORE "layout_map": {".*kernel": ["batch", "model"], ".*big": [["model", "batch"]]}}})";
  const auto with = [&](const std::string& more) {
    std::string full = text;
    full.replace(full.find("MORE"), 4, more);
    return read(full, 8).distribution;
  };
  const std::vector<Bindable> variables{
      {"dense/kernel", {8, 10}}, {"even/kernel", {2, 8}}, {"a/big", {12}}, {"zero/kernel", {0, 0}}};
  const BoundAll warned = bind_all(with(""), variables);
  CHECK(warned.problems.empty());
  REQUIRE(warned.binding.warnings.size() == 2);
  CHECK_THAT(warned.binding.warnings[0],
             Contains("\"dense/kernel\" of shape [8, 10]: dimension 1 (size 10)") &&
                 Contains("axis \"model\" (size 4)") && Contains("parts of 3, 3, 2, 2"));
  CHECK_THAT(warned.binding.warnings[1], Contains("\"model\", \"batch\"") && Contains("8") &&
                                             Contains("parts of 2, 1, 2, 1, 2, 1, 2, 1"));
  const BoundAll refused = bind_all(with("\"require_divisible\": true, "), variables);
  REQUIRE(refused.problems.size() == 2);
  CHECK_THAT(refused.problems[0], StartsWith("c.json:2:") && Contains("dense/kernel") &&
                                      Contains("dimension 1") && Contains("size 10") &&
                                      Contains("\"model\" (size 4)") && Contains("are 2 and 5"));
  CHECK(refused.binding.warnings.empty());
}

TEST_CASE("binding: the nearest numbers of parts of a prime, and of one") {
  const Distribution distribution =
      read(model_parallel(R"({".*": ["model"]})", R"("require_divisible": true, )"), 4)
          .distribution;
  CHECK_THAT(bind_all(distribution, {{"a", {2147483647}}}).problems.at(0),
             Contains("are 1 and 2147483647"));
  CHECK_THAT(bind_all(distribution, {{"a", {1}}}).problems.at(0), Contains("are 1"));
}

TEST_CASE("binding under ZeRO 3 stores what it does not compute with") {
  const Read config = read(
      R"({"class_name": "DataParallel", "config": {"zero": {"stage": 3, "axis": "batch"}}})", 4);
  const BoundAll bound = bind_all(config.distribution, {{"kernel", {64, 64}}, {"scale", {}}});
  CHECK(bound.binding.variables[0].compute == Placement::replicated(2));
  CHECK(bound.binding.variables[0].storage == Placement{{{0}, {}}, 0});
  CHECK(bound.binding.variables[1].storage == Placement::replicated(0));
}
