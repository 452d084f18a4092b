// The JSON parser: values, positions, and every kind of damage.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "base/json.h"

using tessera::Error;
using namespace tessera::json;

namespace {

struct Parsed {
  Value value;
  Problems problems;
};

Parsed read(std::string_view text, const Limits& limits = {}) {
  Parsed result;
  result.value = parse(text, "c.json", result.problems, limits);
  return result;
}

std::string text_of(const Problems& problems) {
  try {
    problems.throw_if_any();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string at(const Value& value) {
  return std::to_string(value.position.line) + ":" + std::to_string(value.position.column);
}

std::string at(Position position) {
  return std::to_string(position.line) + ":" + std::to_string(position.column);
}

std::string repeated(std::string_view text, std::size_t times) {
  std::string result;
  for (std::size_t i = 0; i < times; ++i) result += text;
  return result;
}

}  // namespace

TEST_CASE("values of all kinds, members in order") {
  const Parsed parsed =
      read(R"({"z": null, "a": [true, false, 1, -2, 1.5, 1e3, "x\n\u00e4"], "m": {}})");
  REQUIRE(parsed.problems.empty());
  const Value& root = parsed.value;
  REQUIRE(root.object.size() == 3);
  CHECK(root.object[0].key == "z");
  CHECK(root.object[1].key == "a");
  CHECK(root.find("z")->is_null());
  CHECK(root.find("m")->is_object());
  CHECK(root.find("q") == nullptr);
  CHECK(root.find_member("a")->key == "a");
  const auto& items = root.find("a")->array;
  REQUIRE(items.size() == 7);
  CHECK(items[0].boolean);
  CHECK_FALSE(items[1].boolean);
  CHECK(items[2].kind == Kind::integer);
  CHECK(items[2].integer == 1);
  CHECK(items[2].number == 1.0);
  CHECK(items[3].integer == -2);
  CHECK(items[4].kind == Kind::number);
  CHECK(items[4].number == 1.5);
  CHECK(items[5].kind == Kind::number);
  CHECK(items[5].number == 1000.0);
  CHECK(items[6].string == "x\n\xC3\xA4");
  CHECK(items[0].find("x") == nullptr);
  CHECK(*items[6].file == "c.json");
}

TEST_CASE("integers at the ends of 64 bits") {
  const Parsed parsed = read("[9223372036854775807, -9223372036854775808, 0, -0]");
  REQUIRE(parsed.problems.empty());
  CHECK(parsed.value.array[0].integer == std::numeric_limits<std::int64_t>::max());
  CHECK(parsed.value.array[1].integer == std::numeric_limits<std::int64_t>::min());
}

TEST_CASE("every value and key knows its line and column, in characters") {
  const Parsed parsed = read(
      "{\n"
      "  \"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80\": \"\xC3\xA9\", \"b\": 12,\n"
      "\t\"c\" :\t[ -1.5e-3 ,true,\n"
      "null,\"a\\\"\\\\\", {\"d\":false}]  // end\n"
      "  /* a\n comment */ , \"e\": []}");
  REQUIRE(text_of(parsed.problems).empty());
  const Value& root = parsed.value;
  CHECK(at(root) == "1:1");
  CHECK(at(root.object[0].key_position) == "2:3");
  CHECK(at(root.object[0].value) == "2:10");
  CHECK(at(root.object[1].key_position) == "2:15");
  CHECK(at(root.object[1].value) == "2:20");
  CHECK(at(root.object[2].key_position) == "3:2");
  CHECK(at(root.object[2].value) == "3:8");
  const auto& items = root.object[2].value.array;
  CHECK(at(items[0]) == "3:10");
  CHECK(at(items[1]) == "3:19");
  CHECK(at(items[2]) == "4:1");
  CHECK(at(items[3]) == "4:6");
  CHECK(items[3].string == "a\"\\");
  CHECK(at(items[4]) == "4:15");
  CHECK(at(items[4].object[0].key_position) == "4:16");
  CHECK(at(items[4].object[0].value) == "4:20");
  CHECK(at(root.object[3].key_position) == "6:15");
  CHECK(at(root.object[3].value) == "6:20");
}

TEST_CASE("a number alone, at the end and before every kind of neighbour") {
  CHECK(at(read("12").value) == "1:1");
  CHECK(at(read(" -12 ").value) == "1:2");
  CHECK(at(read("[1,2]").value.array[1]) == "1:4");
  CHECK(at(read("[1/**/,2//x\n]").value.array[1]) == "1:8");
  CHECK(at(read("[10\n,\n20]").value.array[1]) == "3:1");
  CHECK(at(read("{\"a\":7}").value.object[0].value) == "1:6");
}

TEST_CASE("a byte order mark takes no column") {
  const Parsed parsed = read("\xEF\xBB\xBF{\"a\": 1}");
  REQUIRE(parsed.problems.empty());
  CHECK(at(parsed.value) == "1:1");
  CHECK(at(parsed.value.object[0].value) == "1:7");
}

TEST_CASE("windows line ends count as one") {
  const Parsed parsed = read("{\r\n\"a\":\r\n1}");
  REQUIRE(parsed.problems.empty());
  CHECK(at(parsed.value.object[0].value) == "3:1");
}

TEST_CASE("duplicate keys are problems at the second, and the first stays") {
  const Parsed parsed =
      read("{\"a\": {\"b\": [0, {\"c\": 1,\n \"c\": [2, {\"x\": 3}]}]}, \"a\": 4}");
  const auto& list = parsed.problems.list();
  REQUIRE(list.size() == 2);
  CHECK(to_string(list[0]) ==
        "c.json:2:2: error: a.b[1].c: duplicate key \"c\"; it stands at line 1, column 18 already");
  CHECK(to_string(list[1]) ==
        "c.json:2:25: error: a: duplicate key \"a\"; it stands at line 1, column 2 already");
  REQUIRE(parsed.value.object.size() == 1);
  const Value& inner = parsed.value.find("a")->find("b")->array[1];
  REQUIRE(inner.object.size() == 1);
  CHECK(inner.find("c")->integer == 1);
}

TEST_CASE("equal keys of different objects are no duplicates") {
  CHECK(read(R"([{"a": 1}, {"a": {"a": 2}}])").problems.empty());
}

TEST_CASE("damaged texts: where and why") {
  struct Case {
    std::string text;
    std::string expected;  // beginning of the message
  };
  const std::vector<Case> cases{
      {"", "c.json:1:1: error: the text is empty"},
      {" \n ", "c.json:1:1: error: the text is empty"},
      {"// only a comment", "c.json:1:18: error: syntax error: unexpected end of input"},
      {"{", "c.json:1:2: error: syntax error: unexpected end of input"},
      {"[1,\n2", "c.json:2:2: error: syntax error: unexpected end of input"},
      {"{\"a\"", "c.json:1:5: error: syntax error: unexpected end of input"},
      {"{\"a\": 1\n", "c.json:2:1: error: syntax error: unexpected end of input"},
      {"[1, 2,\n]", "c.json:1:6: error: a comma stands before the closing ']'"},
      {"{\"a\": 1,}", "c.json:1:8: error: a comma stands before the closing '}'"},
      {"[,]", "c.json:1:2: error: syntax error: unexpected ','"},
      {"[1,,2]", "c.json:1:4: error: syntax error: unexpected ','"},
      {"[1 2]", "c.json:1:4: error: syntax error: unexpected number literal"},
      {"[\"a\" \"bc\"]", "c.json:1:6: error: syntax error: unexpected string literal"},
      {"[1 true]", "c.json:1:4: error: syntax error: unexpected true literal"},
      {"[1 false]", "c.json:1:4: error: syntax error: unexpected false literal"},
      {"[1 null]", "c.json:1:4: error: syntax error: unexpected null literal"},
      {"{\"a\" 1}", "c.json:1:6: error: syntax error: unexpected number literal; expected ':'"},
      {"{\"a\":}", "c.json:1:6: error: syntax error: unexpected '}'"},
      {"{1: 2}", "c.json:1:2: error: syntax error: unexpected number literal"},
      {"[1}", "c.json:1:3: error: syntax error: unexpected '}'"},
      {"{\"a\":1]", "c.json:1:7: error: syntax error: unexpected ']'"},
      {"{} {}", "c.json:1:4: error: syntax error: unexpected '{'"},
      {"]", "c.json:1:1: error: syntax error: unexpected ']'"},
      {"[tru]", "c.json:1:5: error: syntax error: invalid literal"},
      {"{a: 1}", "c.json:1:2: error: syntax error: invalid literal"},
      {"['a']", "c.json:1:2: error: a quote ' begins no JSON value"},
      {"[01]", "c.json:1:3: error: syntax error: unexpected number literal"},
      {"1 2", "c.json:1:3: error: syntax error: unexpected number literal"},
      {"1 23 ", "c.json:1:3: error: syntax error: unexpected number literal"},
      {"[1.]", "c.json:1:4: error: syntax error: invalid number"},
      {"[.5]", "c.json:1:2: error: syntax error: invalid literal"},
      {"[+1]", "c.json:1:2: error: syntax error: invalid literal"},
      {"[1e]", "c.json:1:4: error: syntax error: invalid number"},
      {"-", "c.json:1:1: error: syntax error: invalid number"},
      {"[NaN]", "c.json:1:2: error: [0]: NaN is not JSON: expected a finite number"},
      {"{\"a\": {\"b\": [1, -Infinity]}}",
       "c.json:1:17: error: a.b[1]: -Infinity is not JSON: expected a finite number"},
      {"{\"a\": None}", "c.json:1:7: error: a: None is not JSON: expected null"},
      {"{\"a\": True}", "c.json:1:7: error: a: True is not JSON: expected true"},
      {"{\"a\": 1e999}", "c.json:1:7: error: a: number 1e999 is out of range"},
      {"[-1e999]", "c.json:1:2: error: [0]: number -1e999 is out of range"},
      {"[18446744073709551616]",
       "c.json:1:2: error: [0]: integer 18446744073709551616 is out of range"},
      {"[1, 9223372036854775808]", "c.json:1:5: error: [1]: integer 9223372036854775808 is out of"},
      {"[-9223372036854775809]", "c.json:1:2: error: [0]: integer -9223372036854775809 is out of"},
      {"[\"abc", "c.json:1:5: error: syntax error: invalid string: missing closing quote"},
      {"[\"a\nb\"]", "c.json:1:4: error: syntax error: invalid string: control character"},
      {"[\"\\q\"]", "c.json:1:4: error: syntax error: invalid string"},
      {"[\"\\u12\"]", "c.json:1:7: error: syntax error: invalid string"},
      {"[\"\\ud800\"]", "c.json:1:9: error: syntax error: invalid string"},
      {"[\"\xFF\"]", "c.json:1:3: error: syntax error: invalid string: ill-formed UTF-8"},
      {"[\"\xC3\"]", "c.json:1:4: error: syntax error: invalid string: ill-formed UTF-8"},
      {"[\xFF]", "c.json:1:2: error: syntax error: invalid literal"},
      {std::string("[1]\0", 4), "c.json:1:4: error: a zero byte"},
      {std::string("\0", 1), "c.json:1:1: error: a zero byte"},
      {"/* open", "c.json:1:7: error: syntax error: invalid comment"},
      {"/", "c.json:1:1: error: syntax error: invalid comment"},
      {"[1] x", "c.json:1:5: error: syntax error: invalid literal"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const Parsed parsed = read(c.text);
    REQUIRE(parsed.problems.list().size() == 1);
    CHECK_THAT(text_of(parsed.problems), Catch::Matchers::StartsWith(c.expected));
  }
}

TEST_CASE("every cut of a text is a problem, never a crash") {
  const std::string text = R"({"a": [1, -2.5e3, "x\u00e4\"", true, null], "b": {"c": {}}})";
  for (std::size_t size = 0; size < text.size(); ++size) {
    CAPTURE(size);
    CHECK_FALSE(read(std::string_view(text).substr(0, size)).problems.empty());
  }
  CHECK(read(text).problems.empty());
}

TEST_CASE("what was read before an error stays") {
  const Parsed parsed = read(R"({"a": 1, "b": {"c": [1, 2, oops)");
  CHECK_FALSE(parsed.problems.empty());
  CHECK(parsed.value.find("a")->integer == 1);
  CHECK(parsed.value.find("b")->find("c")->array.size() == 2);
}

TEST_CASE("independent problems are shown together, in order of position") {
  const Parsed parsed =
      read("{\"a\": 18446744073709551616,\n\"a\": 1, \"b\": {\"c\": 1, \"c\": NaN}}");
  REQUIRE(parsed.problems.list().size() == 4);
  Problems mixed;
  mixed.add({"b.json", {3, 1}, "x", "third"});
  mixed.add({"b.json", {1, 9}, "", "second"});
  mixed.add({"b.json", {1, 2}, "y", "first"});
  mixed.add({"", {}, "z", "no file"});
  CHECK(text_of(mixed) ==
        "b.json:1:2: error: y: first\nb.json:1:9: error: second\nb.json:3:1: error: x: "
        "third\nerror: z: no file");
  CHECK_NOTHROW(Problems().throw_if_any());
}

TEST_CASE("limits hold before memory is spent") {
  using Catch::Matchers::Contains;
  Limits limits;
  limits.depth = 3;
  CHECK(read("[[[1]]]", limits).problems.empty());
  CHECK_THAT(text_of(read("[[[[1]]]]", limits).problems),
             Contains("c.json:1:4: error: [0][0][0]: nested deeper than the limit of 3 levels"));
  CHECK_THAT(text_of(read(repeated("[", 1000000)).problems), Contains("nested deeper"));
  CHECK_THAT(text_of(read(repeated("{\"a\":", 1000000)).problems), Contains("nested deeper"));
  limits = {};
  limits.string_bytes = 3;
  CHECK(read(R"(["abc"])", limits).problems.empty());
  CHECK_THAT(text_of(read(R"(["abcd"])", limits).problems), Contains("longer than the limit of 3"));
  CHECK_THAT(text_of(read(R"({"abcd": 1})", limits).problems), Contains("c.json:1:2: error:"));
  limits = {};
  limits.bytes = 4;
  CHECK_THAT(text_of(read("[1,2]", limits).problems), Contains("larger than the limit of 4"));
  limits = {};
  limits.values = 3;
  CHECK(read("[1,2]", limits).problems.empty());
  CHECK_THAT(text_of(read("[1,2,3]", limits).problems), Contains("more than 3 values"));
}

TEST_CASE("control characters of a file do not reach the terminal") {
  Problem problem{"c\x1B.json", {1, 1}, "a", "name \"\x1B[31m\xC2\x9B\xFF\xC3\xA4\""};
  CHECK(to_string(problem) ==
        "c\\x1b.json:1:1: error: a: name \"\\x1b[31m\\xc2\\x9b\\xff\xC3\xA4\"");
}

TEST_CASE("paths of members and items") {
  CHECK(child_path("", "a") == "a");
  CHECK(child_path("a", "b") == "a.b");
  CHECK(child_path("a", "dense_1/bias") == "a.dense_1/bias");
  CHECK(child_path("a", ".*kernel") == "a[\".*kernel\"]");
  CHECK(child_path("a", "") == "a[\"\"]");
  CHECK(child_path("a", std::size_t{2}) == "a[2]");
}

TEST_CASE("what is dumped reads back equal") {
  const std::string text =
      R"({"a": [1, -2, 3.0, 0.1, 1e-07, 1e+30], "b": {"c": null, "d": [], "e": {}}, "f": "\"\\\n\u0001é"})";
  const Parsed first = read(text);
  REQUIRE(first.problems.empty());
  for (const int indent : {-1, 0, 2}) {
    const std::string dumped = dump(first.value, indent, 17);
    const Parsed again = read(dumped);
    REQUIRE(again.problems.empty());
    CHECK(dump(again.value, -1, 17) == dump(first.value, -1, 17));
  }
  CHECK(
      dump(first.value, -1) ==
      "{\"a\": [1, -2, 3.0, 0.1, 1e-07, 1e+30], \"b\": {\"c\": null, \"d\": [], \"e\": {}}, \"f\": "
      "\"\\\"\\\\\\n\\u0001\xC3\xA9\"}");
}

TEST_CASE("dump: indentation, digits, values that JSON has not") {
  const Value value = make_object({{"shape", make_array({make(std::int64_t{2}), make_null()})},
                                   {"nested", make_array({make_object({{"x", make(0.1)}})})}});
  CHECK(dump(value) ==
        "{\n  \"shape\": [2, null],\n  \"nested\": [\n    {\n      \"x\": 0.1\n    }\n  ]\n}");
  CHECK(dump(make(1.0 / 3.0)) == "0.333333333");
  CHECK(dump(make(1.0 / 3.0), -1, 17) == "0.33333333333333331");
  CHECK(dump(make(std::nan(""))) == "null");
  CHECK(dump(make(-HUGE_VAL)) == "null");
  CHECK(dump(make(true)) == "true");
  CHECK(dump(make(4.0)) == "4.0");
  CHECK(dump(make("a\xFFz\xC3")) == "\"a\\ufffdz\\ufffd\"");
  CHECK(dump(make_array({})) == "[]");
}

TEST_CASE("the nearest name") {
  const std::vector<std::string> names{"accuracy", "epochs", "batch_size", "SGD", "AdamW", "mae"};
  CHECK(nearest("acuracy", names) == "accuracy");
  CHECK(nearest("epocs", names) == "epochs");
  CHECK(nearest("bacth_size", names) == "batch_size");  // a swap counts once
  CHECK(nearest("sgd", names) == "SGD");
  CHECK(nearest("admaw", names) == "AdamW");
  CHECK(nearest("batch", names) == "batch_size");
  CHECK(nearest("zzz", names).empty());
  CHECK(nearest("", names).empty());
  CHECK(nearest("x", {"y"}).empty());
  CHECK(nearest(repeated("a", 100000), names).empty());
  CHECK(did_you_mean("epocs", names) == "; did you mean \"epochs\"?");
  CHECK(did_you_mean("zzz", names).empty());
}

TEST_CASE("files that cannot be read are errors of the kind asked for, with path and reason") {
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(read_text_file("/no/such/file", Error::Kind::data),
                    Contains("/no/such/file") && Contains("No such file"));
  CHECK_THROWS_WITH(read_text_file("/tmp", Error::Kind::data), Contains("directory"));
  try {
    read_text_file("/no/such/file", Error::Kind::weights);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.kind == Error::Kind::weights);
  }
  char name[] = "/tmp/tessera-json-XXXXXX";
  const int descriptor = ::mkstemp(name);
  REQUIRE(descriptor >= 0);
  std::ofstream(name) << "{\"a\": 1}\n";
  CHECK(read_text_file(name, Error::Kind::config) == "{\"a\": 1}\n");
  CHECK_THROWS_WITH(read_text_file(name, Error::Kind::config, 4), Contains("limit of 4 bytes"));
  ::unlink(name);
}
