// The table of config keys: defaults, checks and their places, the schema, --set.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "tests/support/json.h"
#include "trainer/config_table.h"

using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using namespace tessera;
using namespace tessera::trainer;
using testing::lines_of;
using testing::parse;

namespace {

std::string problems_of(const json::Value& config) {
  json::Problems problems;
  check_config(config, problems);
  return lines_of(problems);
}
std::string problems_of(const std::string& text) { return problems_of(parse(text)); }

/// The config after assignments; problems in `lines`.
json::Value set(const std::string& text, const std::vector<std::string>& assignments,
                std::string& lines) {
  json::Value config = parse(text);
  json::Problems problems;
  for (const std::string& assignment : assignments) apply_set(config, assignment, problems);
  lines = lines_of(problems);
  return config;
}
std::string after(const std::string& text, const std::vector<std::string>& assignments) {
  std::string lines;
  const std::string result = json::dump(set(text, assignments, lines), -1);
  CHECK(lines.empty());
  return result;
}
std::string refused(const std::string& text, const std::string& assignment) {
  std::string lines;
  set(text, {assignment}, lines);
  return lines;
}

bool is_type(const json::Value& value, const std::string& type) {
  switch (value.kind) {
    case json::Kind::null:
      return type == "null";
    case json::Kind::boolean:
      return type == "boolean";
    case json::Kind::integer:
      return type == "integer" || type == "number";
    case json::Kind::number:  // draft-07: a number without fraction is an integer
      return type == "number" || (type == "integer" && value.number == std::trunc(value.number));
    case json::Kind::string:
      return type == "string";
    case json::Kind::array:
      return type == "array";
    case json::Kind::object:
      return type == "object";
  }
  return false;
}

/// As far as config_schema goes; every keyword that is not known here fails the test.
bool valid(const json::Value& value, const json::Value& schema) {
  static const std::set<std::string> kKnown{"$schema",
                                            "title",
                                            "description",
                                            "default",
                                            "type",
                                            "minimum",
                                            "maximum",
                                            "enum",
                                            "if",
                                            "then",
                                            "properties",
                                            "required",
                                            "additionalProperties"};
  for (const json::Member& member : schema.object) {
    CAPTURE(member.key);
    REQUIRE(kKnown.count(member.key) == 1);
  }
  if (const json::Value* type = schema.find("type")) {
    bool any = type->is_string() && is_type(value, type->string);
    for (const json::Value& one : type->array) any = any || is_type(value, one.string);
    if (!any) return false;
  }
  if (const json::Value* least = schema.find("minimum");
      least != nullptr && value.is_number() && value.number < least->number)
    return false;
  if (const json::Value* most = schema.find("maximum");
      most != nullptr && value.is_number() && value.number > most->number)
    return false;
  if (const json::Value* choices = schema.find("enum")) {
    if (std::none_of(choices->array.begin(), choices->array.end(), [&](const json::Value& one) {
          return value.is_string() && one.string == value.string;
        }))
      return false;
  }
  if (const json::Value* condition = schema.find("if");
      condition != nullptr && valid(value, *condition) && !valid(value, *schema.find("then")))
    return false;
  if (!value.is_object()) return true;
  for (const json::Value& name : schema.find("required") != nullptr ? schema.find("required")->array
                                                                    : std::vector<json::Value>{}) {
    if (value.find(name.string) == nullptr) return false;
  }
  const json::Value* properties = schema.find("properties");
  if (properties == nullptr) return true;
  return std::all_of(value.object.begin(), value.object.end(), [&](const json::Member& member) {
    const json::Value* inner = properties->find(member.key);
    return inner != nullptr && valid(member.value, *inner);
  });
}

/// {"fit": {"epochs": <value>}} for "fit.epochs".
std::string config_with(std::string_view path, const std::string& value) {
  const std::size_t dot = path.find('.');
  const std::string key(path.substr(0, dot));
  return "{\"" + key + "\": " +
         (dot == std::string_view::npos ? value : config_with(path.substr(dot + 1), value)) + "}";
}

}  // namespace

TEST_CASE("every default is accepted, and fills in") {
  std::set<std::string_view> paths;
  for (const Row& row : config_table()) {
    CAPTURE(row.path);
    CHECK(paths.insert(row.path).second);
    CHECK_FALSE(row.about.empty());
    const std::size_t dot = row.path.rfind('.');
    if (dot != std::string_view::npos) CHECK(paths.count(row.path.substr(0, dot)) == 1);
    if (row.fallback.empty()) continue;
    CHECK(problems_of(config_with(row.path, std::string(row.fallback))).empty());
  }
  const json::Value filled = with_defaults(
      parse(R"({"fit": {"epochs": 3}, "model": "m.json", "checkpoint": {"keep": 1}})"));
  CHECK(problems_of(filled).empty());
  CHECK(filled.find("fit")->find("epochs")->integer == 3);
  CHECK(filled.find("fit")->find("shuffle")->boolean);
  CHECK(filled.find("compile")->find("optimizer")->string == "rmsprop");
  CHECK(filled.find("checkpoint")->find("every_steps")->is_null());
  CHECK(filled.object.front().key == "seed");
  // Filling in twice changes nothing; a section that is null stays so.
  CHECK(json::dump(with_defaults(filled)) == json::dump(filled));
  CHECK(with_defaults(parse("{}")).find("checkpoint")->is_null());
}

TEST_CASE("a whole number is an integer in every spelling") {
  json::Value config = parse(
      R"({"seed": 1e3, "checkpoint": {"every_steps": 2.0, "keep": 30e-1}, "fit": {"epochs": 1.5},
          "output": {"log_steps": 1E1}, "runtime": {"watchdog_seconds": 2.0}})");
  spell_integers(config);
  const auto at = [&config](const char* section, const char* key) {
    return *config.find(section)->find(key);
  };
  CHECK(config.find("seed")->kind == json::Kind::integer);
  CHECK(config.find("seed")->integer == 1000);
  CHECK(at("checkpoint", "every_steps").integer == 2);
  CHECK(at("checkpoint", "keep").integer == 3);
  CHECK(at("output", "log_steps").integer == 10);
  // What takes fractions keeps its kind, and what is wrong stays as it was for its message.
  CHECK(at("runtime", "watchdog_seconds").kind == json::Kind::number);
  CHECK(at("fit", "epochs").kind == json::Kind::number);
  CHECK_FALSE(problems_of(config).empty());
}

TEST_CASE("the schema and the checks say the same of every key and kind of value") {
  const json::Value schema = config_schema();
  const std::vector<std::string> values{"null",
                                        "true",
                                        "0",
                                        "1",
                                        "2",
                                        "3",
                                        "-1",
                                        "0.5",
                                        "1.0",
                                        "4097",
                                        "9e15",
                                        "9.1e15",
                                        "9000000000000001",
                                        "\"auto\"",
                                        "\"cpu\"",
                                        "\"batch\"",
                                        "\"float32\"",
                                        "\"nonsense\"",
                                        "\"\"",
                                        "[]",
                                        "[1]",
                                        "{}"};
  int accepted = 0;
  int refused_ones = 0;
  for (const Row& row : config_table()) {
    for (const std::string& value : values) {
      json::Value config = parse(config_with(row.path, value));
      if (config.find("model") == nullptr)
        config.object.push_back({"model", {}, json::make("m.json")});
      CAPTURE(json::dump(config, -1));
      const bool good = problems_of(config).empty();
      CHECK(good == valid(config, schema));
      (good ? accepted : refused_ones) += 1;
    }
  }
  CHECK(accepted > 100);
  CHECK(refused_ones > 300);
  for (const char* text :
       {R"({"model": "m", "fitt": {}})", R"({"model": "m", "fit": {"epoch": 1}})",
        R"({"model": "m", "output": {"dir": "x", "log": 1}})",
        R"({"model": "m", "compile": {"los": "mse"}})"}) {
    CHECK_FALSE(valid(parse(text), schema));
    CHECK_FALSE(problems_of(text).empty());
  }
  // A layer of objects without rows of their own is free; so is "$schema".
  const char* text =
      R"({"$schema": "s.json", "model": {"class_name": "Sequential"}, "data": {"train": {"any": 1}}})";
  CHECK(valid(parse(text), schema));
  CHECK(problems_of(text).empty());
  CHECK_FALSE(valid(parse("{}"), schema));  // a model is required; the loader reports it
}

TEST_CASE("problems have file, line, column, path, what was expected and the nearest name") {
  CHECK_THAT(
      problems_of("{\n  \"fit\": {\n    \"epocs\": 3}}"),
      Contains("c.json:3:5: error: fit.epocs: unknown key \"epocs\"; did you mean \"epochs\"?"));
  CHECK_THAT(problems_of(R"({"fit": {"epochs": 0}})"),
             Contains("c.json:1:20: error: fit.epochs: expected an integer of at least 1, got 0"));
  CHECK_THAT(problems_of(R"({"fit": {"epochs": 1e16}})"),
             Contains("from 1 to 9000000000000000, got 1e+16"));
  CHECK_THAT(problems_of(R"({"fit": {"epochs": "3"}})"), Contains("got \"3\""));
  CHECK_THAT(problems_of(R"({"fit": {"epochs": null}})"), Contains("got null"));
  CHECK_THAT(problems_of(R"({"fit": {"verbose": "aut"}})"),
             Contains("an integer from 0 to 2, or \"auto\", got \"aut\"; did you mean \"auto\"?"));
  CHECK_THAT(problems_of(R"({"device": "gpu"})"), Contains("\"auto\", \"cpu\""));
  CHECK_THAT(problems_of(R"({"callbacks": {}})"), Contains("expected an array, got an object"));
  CHECK_THAT(problems_of(R"({"fit": []})"), Contains("fit: expected an object, got an array"));
  CHECK_THAT(problems_of("[]"), Contains("a config is an object, got an array"));
  CHECK_THAT(problems_of("3"), Contains("got 3"));
  const std::string all =
      problems_of(R"({"sed": 1, "fit": {"epochs": -1, "batchsize": 2}, "seed": 1.5})");
  for (const char* part : {"sed:", "fit.epochs:", "fit.batchsize:", "seed:"})
    CHECK_THAT(all, Contains(part));
  json::Problems twice;
  json::parse(R"({"seed": 1, "seed": 2})", "c.json", twice);
  CHECK_THAT(lines_of(twice), Contains("c.json:1:13") && Contains("seed"));
}

TEST_CASE("--set replaces, adds and reaches into lists and odd names") {
  CHECK(after("{}", {"seed=3"}) == after(R"({"seed": 3})", {}));
  CHECK(after(R"({"fit": {"epochs": 1}})", {"fit.epochs=7", "fit.shuffle=false"}) ==
        after(R"({"fit": {"epochs": 7, "shuffle": false}})", {}));
  CHECK(after("{}", {"a.b.c=null"}) == after(R"({"a": {"b": {"c": null}}})", {}));
  CHECK(after(R"({"checkpoint": null})", {"checkpoint.keep=2"}) ==
        after(R"({"checkpoint": {"keep": 2}})", {}));
  CHECK(after(R"({"callbacks": [{"config": {}}, {}]})",
              {"callbacks[0].config.patience=2", "callbacks[1]=\"x\""}) ==
        after(R"({"callbacks": [{"config": {"patience": 2}}, "x"]})", {}));
  CHECK(after(R"({"a": [[1, 2], [3]]})", {"a[0][1]=5"}) == after(R"({"a": [[1, 5], [3]]})", {}));
  CHECK(after(R"({"m": {".*kernel": [1]}})", {R"(m[".*kernel"]=[null])"}) ==
        after(R"({"m": {".*kernel": [null]}})", {}));
  CHECK(after("{}", {R"(m["a\"]="]=1)"}) == after(R"({"m": {"a\"]=": 1}})", {}));
  // JSON where it is JSON, else a string; later assignments win.
  CHECK(after("{}", {"a={\"b\": [1, 2.5]}"}) == after(R"({"a": {"b": [1, 2.5]}})", {}));
  CHECK(after("{}", {"a=mlp.json"}) == after(R"({"a": "mlp.json"})", {}));
  CHECK(after("{}", {"a=x=y"}) == after(R"({"a": "x=y"})", {}));
  CHECK(after("{}", {"a="}) == after(R"({"a": ""})", {}));
  CHECK(after("{}", {"a=1", "a=\"1\""}) == after(R"({"a": "1"})", {}));
  CHECK(after(R"({"a": {"b": 1}})", {"a={}"}) == after(R"({"a": {}})", {}));
}

TEST_CASE("--set that is no assignment, or leads nowhere, is refused") {
  for (const char* text : {"", "=", "=3", "seed", "a..b=1", ".a=1", "a.=1", "a[=1", "a[]=1",
                           "a[x]=1", "a[-1]=1", "a[0=1", "a[0]b=1", "a]=1", "a[\"x=1", "a[\"x\"=1",
                           "a[\"\\q\"]=1", "a[99999999999999999999999]=1"}) {
    CAPTURE(text);
    CHECK_THAT(refused(R"({"a": [1]})", text),
               Contains("--set " + std::string(text)) && Contains("expected path.to.key=value"));
  }
  CHECK_THAT(refused(R"({"a": [1]})", "a[1]=2"),
             Contains("--set a[1]: error: a[1]: there is no element [1]"));
  CHECK_THAT(refused("{}", "a[0]=2"), Contains("there is no element [0]"));
  CHECK_THAT(refused(R"({"a": "adam"})", "a.b=2"),
             Contains("\"b\" would be a member of \"adam\": set the whole value"));
  CHECK_THAT(refused(R"({"a": [1]})", "a.b=2"), Contains("member of an array"));
  CHECK_THAT(refused("[]", "a=2"), Contains("member of an array"));
}

TEST_CASE("problems of values that were set are placed at --set") {
  std::string lines;
  const json::Value config =
      set(R"({"fit": {"epochs": 1}})",
          {"fit.epochs=three", "fit={\"epochs\": 1, \"epocs\": 2}", "seed=-1"}, lines);
  CHECK(lines.empty());
  const std::string problems = problems_of(config);
  CHECK_THAT(problems, Contains("--set seed: error: seed: expected an integer"));
  CHECK_THAT(problems, Contains("--set fit: error: fit.epocs: unknown key"));
  CHECK_THAT(
      problems_of(set("{}", {"fit.epochs=three"}, lines)),
      Contains(
          "--set fit.epochs: error: fit.epochs: expected an integer of at least 1, got \"three\""));
  CHECK_THAT(problems_of(set("{}", {"fitt.epochs=3"}, lines)),
             Contains("--set fitt.epochs: error: fitt: unknown key \"fitt\""));
}

TEST_CASE("arguments of Keras's fit that stand elsewhere are pointed to") {
  const std::string problems = problems_of(
      R"({"model": {}, "fit": {"validation_data": 1, "callbacks": [], "x": 0, "sample_weight": 0}})");
  CHECK_THAT(problems, Contains(R"(unknown key "validation_data"; it is named in "data")"));
  CHECK_THAT(problems, Contains(R"(unknown key "callbacks"; "callbacks" is a key of the config)"));
  CHECK_THAT(problems, Contains(R"(unknown key "x"; data is named in "data")"));
  CHECK_THAT(problems, Contains(R"(unknown key "sample_weight"; it is a key of "data")"));
  CHECK_THAT(problems_of(R"({"model": {}, "output": {"callbacks": 1}})"),
             !Contains("is a key of the config"));
}
