// Data sections of a config: what is wrong with them and where, and data sets opened from them.
#include <catch2/catch.hpp>

#include "runtime/data/dataset.h"
#include "tests/support/json.h"
#include "tests/unit/io_files.h"

using Catch::Matchers::Contains;
using namespace tessera;
using namespace tessera::data;
using namespace tessera::testing;
using namespace std::string_literals;

namespace {

constexpr auto kData = Error::Kind::data;
using Values = std::vector<double>;

Expected one_input() { return {{{"x", {2}, 0}}, {{"out", {1}, 0}}, true}; }
Expected two_inputs() {
  return {{{"a", {2}, 0}, {"b", {}, 0}}, {{"p", {1}, 0}, {"q", {1}, 0}}, true};
}

/// All problems of a section, a line each, as the user sees them.
std::string problems_of(const std::string& section, const Expected& expected = one_input()) {
  json::Problems problems;
  check_section(parse(section), "data.train", expected, problems);
  std::string lines;
  for (const json::Problem& problem : problems.list()) lines += to_string(problem) + "\n";
  return lines;
}

Values values_of(const Source& source) {
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < source.rows(); ++row) rows.push_back(row);
  Values values(rows.size() * static_cast<std::size_t>(source.sample_elements()));
  source.read(rows, DType::float64, values.data());
  return values;
}

std::string floats(const std::string& shape, const std::vector<float>& values) {
  return npy("<f4", shape, bytes_of(values));
}

}  // namespace

TEST_CASE("sound sections have no problems") {
  for (
      const char* section :
      {R"({"format": "npz", "path": "d.npz"})",
       R"({"format": "npz", "path": "d", "x": "in", "y": "out", "sample_weight": "w"})",
       R"({"format": "safetensors", "path": "d", "x": {"x": "in"}, "y": {"out": "t"}})",
       R"({"format": "npy"})", R"({"format": "npy", "x": "a.npy", "y": "b.npy"})",
       R"({"format": "csv", "path": "d"})",
       R"({"format": "csv", "path": "d", "x": ["a", "b"], "y": "c", "header": false, "separator": "\t"})",
       R"({"format": "idx", "x": "a", "y": "b"})",
       R"({"format": "tokens", "path": "d", "sequence_length": 8})",
       R"({"format": "tokens", "paths": ["d", "e"], "sequence_length": 8, "raw": "uint16"})",
       R"({"format": "text", "path": "d", "sequence_length": 8, "tokenizer": "byte", "split": [0, 0.9]})",
       R"({"format": "synthetic", "samples": 8, "x": {"shape": [null]}, "y": {"shape": [1], "distribution": "integers", "high": 3}})"}) {
    CAPTURE(section);
    CHECK(problems_of(section).empty());
  }
  CHECK(problems_of(R"({"format": "npz", "path": "d", "x": {"b": "1", "a": "2"}, "y": {"q": "3"}})",
                    two_inputs())
            .empty());
  CHECK(
      problems_of(
          R"({"format": "synthetic", "samples": 1, "x": {"a": {"shape": [2]}, "b": {"shape": []}}})",
          two_inputs())
          .empty());
}

TEST_CASE("problems of sections are placed at what is wrong") {
  struct Case {
    std::string section;
    std::string message;
  };
  const std::vector<Case> cases{
      {R"({"path": "d"})", "c.json:1:1: error: data.train: missing key \"format\""},
      {R"({"format": "npzz"})", "c.json:1:12: error: data.train.format: expected one of"},
      {R"({"format": "npzz"})", "did you mean \"npz\"?"},
      {R"({"format": 7})", "c.json:1:12: error: data.train.format"},
      {R"({"format": "npz"})", "c.json:1:1: error: data.train: missing key \"path\""},
      {R"({"format": "npz", "path": 7})", "c.json:1:27: error: data.train.path: expected a string"},
      {R"({"format": "npz", "path": "d", "pth": "e"})",
       "c.json:1:32: error: data.train.pth: unknown key"},
      {R"({"format": "npz", "path": "d", "x": 3})",
       "c.json:1:37: error: data.train.x: expected an array's name"},
      {R"({"format": "npz", "path": "d", "x": {"y": "a"}})",
       "data.train.x.y: the model has no input \"y\""},
      {R"({"format": "npz", "path": "d", "x": {"y": "a"}})", "lacks the model's input \"x\""},
      {R"({"format": "npz", "path": "d", "x": {"x": 3}})",
       "c.json:1:43: error: data.train.x.x: expected an array's name"},
      {R"({"format": "npz", "path": "d", "y": {"ou": "a"}})",
       "the model has no output \"ou\"; did you mean \"out\"?"},
      {R"({"format": "csv", "path": "d", "separator": ";;"})",
       "data.train.separator: expected one character"},
      {R"({"format": "csv", "path": "d", "separator": "\""})",
       "data.train.separator: expected one character"},
      {R"({"format": "csv", "path": "d", "separator": "\n"})",
       "data.train.separator: expected one character"},
      {R"({"format": "csv", "path": "d", "header": 1})", "data.train.header"},
      {R"({"format": "csv", "path": "d", "x": [1]})", "data.train.x"},
      {R"({"format": "tokens", "sequence_length": 1})", "data.train: missing key \"path\""},
      {R"({"format": "tokens", "path": "d"})", "data.train: missing key \"sequence_length\""},
      {R"({"format": "tokens", "path": "d", "sequence_length": 0})",
       "c.json:1:54: error: data.train.sequence_length: expected an integer"},
      {R"({"format": "tokens", "path": "d", "sequence_length": 1, "raw": "int8"})",
       "data.train.raw"},
      {R"({"format": "text", "path": "d", "sequence_length": 1, "tokenizer": "bpe"})",
       "data.train.tokenizer"},
      {R"({"format": "text", "path": "d", "sequence_length": 1, "split": [0.9, 0.1]})",
       "data.train.split: expected [begin, end]"},
      {R"({"format": "text", "path": "d", "sequence_length": 1, "split": [0.1]})",
       "data.train.split: expected [begin, end]"},
      {R"({"format": "synthetic", "x": {"shape": [2]}})", "data.train: missing key \"samples\""},
      {R"({"format": "synthetic", "samples": 8})", "data.train: missing key \"x\""},
      {R"({"format": "synthetic", "samples": 8, "x": 3})", "c.json:1:44: error: data.train.x"},
      {R"({"format": "synthetic", "samples": 8, "x": {}})", "data.train.x: missing key \"shape\""},
      {R"({"format": "synthetic", "samples": 8, "x": {"shape": [0]}})",
       "data.train.x.shape: expected an array of sizes"},
      {R"({"format": "synthetic", "samples": 8, "x": {"shape": [2, null]}})",
       "data.train.x.shape: expected an array of sizes"},
      {R"({"format": "synthetic", "samples": 8, "x": {"shape": [2], "distribution": "gauss"}})",
       "data.train.x.distribution"},
      {R"({"format": "synthetic", "samples": 8, "x": {"shape": [2], "high": 0}})",
       "data.train.x.high"},
      {R"({"format": "synthetic", "samples": 9000000000000000, "x": {"shape": [9000000000000000]}})",
       "more than memory can hold"},
  };
  for (const Case& one : cases) {
    CAPTURE(one.section);
    CHECK_THAT(problems_of(one.section), Contains(one.message));
  }
  CHECK_THAT(
      problems_of(R"({"format": "npz", "path": "d"})", two_inputs()),
      Contains("c.json:1:1: error: data.train.x: the model has 2") && Contains("\"a\", \"b\""));
  CHECK_THAT(problems_of(R"([])"), Contains("c.json:1:1"));
  // All of them at once.
  const std::string all =
      problems_of(R"({"format": "csv", "separator": "", "header": 1, "extra": 1})");
  for (const char* path :
       {"\"path\"", "data.train.separator", "data.train.header", "data.train.extra"})
    CHECK_THAT(all, Contains(path));
}

TEST_CASE("arrays become inputs, targets and weights, in the model's order") {
  const Folder folder;
  folder.file("d.npz", zip({{"one.npy", floats("(2, 2)", {1, 2, 3, 4}), true, {}, {}},
                            {"two.npy", floats("(2,)", {5, 6}), false, {}, {}},
                            {"t.npy",
                             npy("<i8", "(2, 1)", bytes_of(std::vector<std::int64_t>{0, 1})),
                             false,
                             {},
                             {}},
                            {"w.npy", floats("(2,)", {0.5F, 2}), false, {}, {}}}));
  const auto open = [&](const std::string& section, const Expected& expected) {
    return open_dataset(parse(section), folder.path(), expected, 0);
  };
  const std::string section =
      R"({"format": "npz", "path": "./d.npz", "x": {"b": "two", "a": "one"}, "y": {"q": "t", "p": "two"}, "sample_weight": "w"})";
  const Dataset dataset = open(section, two_inputs());
  CHECK(dataset.rows == 2);
  CHECK_THAT(dataset.shown, Catch::Matchers::EndsWith("/d.npz"));
  REQUIRE(dataset.x.size() == 2);
  CHECK(dataset.x[0].name == "a");
  CHECK(values_of(*dataset.x[0].source) == Values{1, 2, 3, 4});
  CHECK(dataset.x[1].source->sample_shape() == Shape{});
  REQUIRE(dataset.y.size() == 2);
  CHECK(dataset.y[0].name == "p");
  CHECK(dataset.y[1].source->integral());
  CHECK_FALSE(dataset.y[0].source->integral());
  REQUIRE(dataset.weights.size() == 1);
  CHECK(values_of(*dataset.weights[0].source) == Values{0.5, 2});
  CHECK_THAT(dataset.x[0].source->place(1, 1), Contains("d.npz: array \"one\": row 1, column 1"));

  Expected inputs_only = two_inputs();
  inputs_only.needs_targets = false;
  const Dataset plain = open(section, inputs_only);
  CHECK(plain.y.empty());
  CHECK(plain.weights.empty());

  const Dataset part = rows_of(dataset, 1, 1);
  CHECK(part.rows == 1);
  CHECK(values_of(*part.x[0].source) == Values{3, 4});
  CHECK(values_of(*part.y[0].source) == Values{6});
  CHECK(values_of(*part.weights[0].source) == Values{2});
}

TEST_CASE("single files, tables, tokens, text and synthetic data become data sets") {
  const Folder folder;
  folder.file("x.npy", floats("(3, 2)", {1, 2, 3, 4, 5, 6}));
  folder.file("y.npy", floats("(3,)", {7, 8, 9}));
  folder.file("t.csv", "a,b,c\n1,2,0\n3,4,1\n");
  folder.file("i", "\0\0\x08\x02\0\0\0\x01\0\0\0\x02xy"s);
  folder.file("l", "\0\0\x08\x01\0\0\0\x01\x03"s);
  folder.file("text", "abcabca");
  const auto open = [&](const std::string& section, const Expected& expected = one_input()) {
    return open_dataset(parse(section), folder.path(), expected, 4);
  };
  const Dataset arrays = open(R"({"format": "npy", "y": "y.npy"})");
  CHECK(arrays.rows == 3);
  CHECK(values_of(*arrays.y[0].source) == Values{7, 8, 9});
  CHECK(open(R"({"format": "npy"})").y.empty());

  const Dataset table = open(R"({"format": "csv", "path": "t.csv", "y": "c"})");
  CHECK(values_of(*table.x[0].source) == Values{1, 2, 3, 4});
  CHECK(table.x[0].name == "x");
  CHECK(table.y[0].name == "out");
  CHECK(table.y[0].source->sample_shape() == Shape{});
  CHECK(table.y[0].source->integral());
  const Dataset chosen = open(R"({"format": "csv", "path": "t.csv", "x": ["c", "a"], "y": ["b"]})");
  CHECK(values_of(*chosen.x[0].source) == Values{0, 1, 1, 3});
  CHECK(chosen.y[0].source->sample_shape() == Shape{1});
  CHECK(open(R"({"format": "csv", "path": "t.csv", "x": ["b", "a"]})").y.empty());

  const Dataset images = open(R"({"format": "idx", "x": "i", "y": "l"})");
  CHECK(values_of(*images.x[0].source) == Values{'x', 'y'});
  CHECK(values_of(*images.y[0].source) == Values{3});

  const Dataset text = open(R"({"format": "text", "path": "text", "sequence_length": 2})");
  CHECK(text.rows == 3);
  CHECK(values_of(*text.x[0].source) == Values{0, 1, 2, 0, 1, 2});
  CHECK(values_of(*text.y[0].source) == Values{1, 2, 0, 1, 2, 0});
  CHECK(open(R"({"format": "tokens", "path": "x.npy", "raw": "uint16", "sequence_length": 2})",
             {{{"x", {2}, 0}}, {{"out", {1}, 0}}, false})
            .y.empty());

  const Dataset drawn = open(
      R"({"format": "synthetic", "samples": 5, "x": {"shape": [null]}, "y": {"shape": [], "distribution": "integers", "high": 3}})");
  CHECK(drawn.rows == 5);
  CHECK(drawn.x[0].source->sample_shape() == Shape{2});
  CHECK(drawn.y[0].source->integral());
}

TEST_CASE("data sets that do not fit are refused") {
  const Folder folder;
  folder.file("d.npz", zip({{"x.npy", floats("(2, 2)", {1, 2, 3, 4}), true, {}, {}},
                            {"y.npy", floats("(3,)", {5, 6, 7}), false, {}, {}},
                            {"none.npy", floats("(0, 2)", {}), false, {}, {}},
                            {"wide.npy", floats("(2, 3)", {1, 2, 3, 4, 5, 6}), false, {}, {}},
                            {"hollow.npy", floats("(281474976710656, 0)", {}), false, {}, {}},
                            {"number.npy", floats("()", {5}), false, {}, {}}}));
  folder.file("t.csv", "a,b,a\n1,2,3\n");
  const auto message = [&](const std::string& rest) {
    return error_of(kData, [&] {
      open_dataset(parse("{\"format\": " + rest + "}"), folder.path(), one_input(), 0);
    });
  };
  const std::string npz = R"("npz", "path": "d.npz")";
  CHECK_THAT(message(npz),
             Contains("has 2 rows") && Contains("has 3") && Contains("lengths must be equal"));
  CHECK_THAT(message(npz + R"(, "x": "z")"),
             Contains("has no array \"z\"") && Contains("\"x\", \"y\""));
  CHECK_THAT(message(npz + R"(, "x": "none", "y": "none")"), Contains("is empty: no rows"));
  CHECK_THAT(message(npz + R"(, "x": "wide", "y": "x")"),
             Contains("[3]") && Contains("\"x\" takes [2]"));
  CHECK_THAT(message(npz + R"(, "x": "number", "y": "x")"), Contains("is a single number"));
  CHECK_THAT(message(npz + R"(, "x": "hollow", "y": "x")"), Contains("samples without elements"));
  CHECK_THAT(message(R"("npz", "path": "none.npz")"),
             Contains("none.npz: cannot be read: No such file"));
  CHECK_THAT(message(R"("csv", "path": "t.csv", "x": ["b", "d"])"),
             Contains("has no column \"d\"") && Contains("\"a\", \"b\", \"a\""));
  CHECK_THAT(message(R"("csv", "path": "t.csv", "x": ["b", "a"])"),
             Contains("has the column \"a\" more than once"));
  CHECK_THAT(
      error_of(Error::Kind::config,
               [&] { open_dataset(parse(R"({"format": "npz"})"), folder.path(), one_input(), 0); }),
      Contains("path"));
}

TEST_CASE("a trailing dimension of one may be missing or too many") {
  const Folder folder;
  folder.file("flat.npy", floats("(2,)", {1, 2}));
  folder.file("column.npy", floats("(2, 1)", {1, 2}));
  folder.file("row.npy", floats("(1, 2)", {1, 2}));
  const auto rows = [&](const std::string& file, const Shape& shape) {
    return open_dataset(parse("{\"format\": \"npy\", \"x\": \"" + file + "\"}"), folder.path(),
                        {{{"x", shape, 0}}, {}, true}, 0)
        .rows;
  };
  CHECK(rows("flat.npy", {1}) == 2);
  CHECK(rows("column.npy", {}) == 2);
  CHECK(rows("column.npy", {1}) == 2);
  error_of(kData, [&] { rows("row.npy", {}); });
  error_of(kData, [&] { rows("flat.npy", {2}); });
}
