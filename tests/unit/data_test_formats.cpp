// CSV, IDX, token shards, texts and synthetic samples: values, places in messages, damaged files.
#include <catch2/catch.hpp>
#include <clocale>
#include <cmath>
#include <set>

#include "runtime/data/formats.h"
#include "tests/unit/io_files.h"

using Catch::Matchers::Contains;
using namespace tessera;
using namespace tessera::data;
using namespace tessera::testing;
using namespace std::string_literals;

namespace {

constexpr auto kData = Error::Kind::data;
using Values = std::vector<double>;
using Columns = std::vector<std::string>;

Values values_of(const Source& source, std::vector<std::int64_t> rows = {}) {
  if (rows.empty()) {
    for (std::int64_t row = 0; row < source.rows(); ++row) rows.push_back(row);
  }
  Values values(rows.size() * static_cast<std::size_t>(source.sample_elements()));
  source.read(rows, DType::float64, values.data());
  return values;
}

/// A gzip file.
std::string gzip(const std::string& data) {
  return "\x1F\x8B\x08\0\0\0\0\0\0\x03"s + deflated(data) +
         little(
             crc32(0, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size())),
             4) +
         little(data.size(), 4);
}

std::string idx(int type, const std::vector<std::uint32_t>& sizes, const std::string& data) {
  std::string file =
      little(0, 2) + little(static_cast<std::uint64_t>(type), 1) + little(sizes.size(), 1);
  for (const std::uint32_t size : sizes) file += big(size, 4);
  return file + data;
}

std::string shard(std::int32_t magic, std::int32_t version, std::int32_t count,
                  const std::string& tokens) {
  return bytes_of(std::vector<std::int32_t>{magic, version, count}) + std::string(1024 - 12, '\0') +
         tokens;
}

const std::string kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";

}  // namespace

TEST_CASE("CSV: header, quotes, line ends, byte order mark, spaces") {
  const Folder folder;
  const std::string path =
      folder.file("t.csv",
                  "\xEF\xBB\xBF"
                  "a, \"b, \"\"c\"\"\" ,\"d\ne\"\r\n1, 2.5 ,-3\r\n\r\n\"4\",+5e0,\t.5\n6,7,8");
  // A quote that does not open its field is an ordinary character.
  CHECK_THAT(error_of(kData, [&] { CsvTable(path, ',', true); }), Contains("t.csv:"));
  const CsvTable table(
      folder.file("u.csv",
                  "\xEF\xBB\xBF"
                  "a,\"b, \"\"c\"\"\",\"d\ne\"\r\n1, 2.5 ,-3\r\n\r\n\"4\",+5e0,\t.5\n6,7,8"),
      ',', true);
  CHECK(table.columns() == Columns{"a", "b, \"c\"", "d\ne"});
  CHECK(table.rows() == 3);
  const auto all = table.select({0, 1, 2}, false);
  CHECK(all->sample_shape() == Shape{3});
  CHECK(values_of(*all) == Values{1, 2.5, -3, 4, 5, 0.5, 6, 7, 8});
  CHECK_FALSE(all->integral());
  // The header takes two lines, and an empty one is passed over.
  CHECK_THAT(all->place(1, 2), Contains("u.csv:5: column 3"));
  CHECK_THAT(all->place(2, 0), Contains("u.csv:6: column 1 (\"a\"), row 2"));
  const auto one = table.select({2}, true);
  CHECK(one->sample_shape() == Shape{});
  CHECK(values_of(*one, {2, 0}) == Values{8, -3});
  CHECK(table.select({0}, false)->integral());
  CHECK(table.select({0}, false)->sample_shape() == Shape{1});
}

TEST_CASE("CSV: no header, other separators, old line ends") {
  const Folder folder;
  const CsvTable table(folder.file("t", "1;2\r3;4\r"), ';', false);
  CHECK(table.columns() == Columns{"0", "1"});
  CHECK(values_of(*table.select({1, 0}, false)) == Values{2, 1, 4, 3});
  CHECK_THAT(table.select({1}, true)->place(1, 0), Contains("t:2: column 2 (\"1\")"));
  CHECK(CsvTable(folder.file("u", "1\t2\n"), '\t', false).columns().size() == 2);
}

TEST_CASE("CSV: numbers do not depend on the locale, and are those of Python") {
  const Folder folder;
  const char* before = std::setlocale(LC_NUMERIC, nullptr);
  const std::string kept = before == nullptr ? "C" : before;
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8"}) std::setlocale(LC_NUMERIC, name);
  const CsvTable table(folder.file("t", "1.5,1e3,-1E-2,1e-60,1e-400,0.1,16777217,inf,nan\n"), ',',
                       false);
  const auto source = table.select({0, 1, 2, 3, 4, 5, 6, 7, 8}, false);
  std::setlocale(LC_NUMERIC, kept.c_str());
  const Values values = values_of(*source);
  CHECK(Values(values.begin(), values.begin() + 7) ==
        Values{1.5, 1000, static_cast<double>(-0.01F), 0, 0, static_cast<double>(0.1F), 16777216});
  CHECK(std::isinf(values[7]));
  CHECK(std::isnan(values[8]));
}

TEST_CASE("CSV: what is wrong, and where") {
  const Folder folder;
  const auto message = [&](const std::string& text, bool header = true) {
    return error_of(kData, [&] {
      const CsvTable table(folder.file("t.csv", text), ',', header);
      std::vector<std::size_t> columns;
      for (std::size_t i = 0; i < table.columns().size(); ++i) columns.push_back(i);
      table.select(columns, false);
    });
  };
  CHECK_THAT(message(""), Contains("t.csv: is empty"));
  CHECK_THAT(message("a,b\n"), Contains("is empty: no rows of data after the header"));
  CHECK_THAT(message("\n\r\n\n"), Contains("is empty"));
  CHECK_THAT(message("a,b\n1,2\n3\n"), Contains("t.csv:3: has 1 fields, expected 2"));
  CHECK_THAT(message("a,b\n1,2,3\n"), Contains("t.csv:2: has 3 fields, expected 2"));
  CHECK_THAT(message("a,b\n1,2,\n"), Contains("t.csv:2: has 3 fields"));
  CHECK_THAT(message("a,b\n1,\n"), Contains("t.csv:2: column 2 (\"b\"): is empty"));
  CHECK_THAT(message("a,b\n1,x2\n"), Contains("t.csv:2: column 2 (\"b\"): \"x2\" is not a number"));
  CHECK_THAT(message("a,b\n1,1.2.3\n"), Contains("not a number"));
  CHECK_THAT(message("a,b\n1,1 2\n"), Contains("not a number"));
  CHECK_THAT(message("a,b\n1,+-2\n"), Contains("not a number"));
  CHECK_THAT(message("a,b\n1,0x10\n"), Contains("not a number"));
  CHECK_THAT(message("a,b\n1,1e39\n"), Contains("out of the range"));
  CHECK_THAT(message("a,b\n1,-1e999\n"), Contains("out of the range"));
  CHECK_THAT(message("a\n" + std::string(400, '9') + "\n"), Contains("out of the range"));
  CHECK_THAT(message("a,b\n1,\"2\n"), Contains("t.csv:2: a quote is not closed"));
  CHECK_THAT(message("a,b\n1,\"2\"3\n"), Contains("t.csv:2: a character follows a closing quote"));
  CHECK_THAT(message("a,b\n1,\x1b[31m\n"), Contains("\\x1b[31m"));
  CHECK_THAT(message("a,b\n1,2\n", false), Contains("t.csv:1: column 1 (\"0\"): \"a\""));
  CHECK_THAT(message(kPointer), Contains("Git LFS pointer"));
  CHECK_THAT(error_of(kData, [&] { CsvTable(folder.path(), ',', true); }),
             Contains("not a regular file"));
  CHECK_THAT(error_of(kData, [&] { CsvTable(folder / "none", ',', true); }), Contains("none"));
}

TEST_CASE("IDX: every type, plain and gzip") {
  const Folder folder;
  struct Case {
    int type;
    std::string data;
    Values values;
    bool integral;
  };
  const std::vector<Case> cases{
      {0x08, "\x01\xFF"s, {1, 255}, true},
      {0x09, "\x01\xFF"s, {1, -1}, true},
      {0x0B, "\x01\x02\xFF\xFE"s, {258, -2}, true},
      {0x0C, "\0\0\x01\x02\xFF\xFF\xFF\xFE"s, {258, -2}, true},
      {0x0D, "\x3F\x80\0\0\xC0\x20\0\0"s, {1, -2.5}, false},
      {0x0E, "\x3F\xF0\0\0\0\0\0\0\xC0\x04\0\0\0\0\0\0"s, {1, -2.5}, false}};
  for (const Case& one : cases) {
    CAPTURE(one.type);
    for (const std::string& bytes :
         {idx(one.type, {2}, one.data), gzip(idx(one.type, {2}, one.data))}) {
      const auto source = open_idx(folder.file("a.idx", bytes));
      CHECK(source->rows() == 2);
      CHECK(source->sample_shape() == Shape{});
      CHECK(source->integral() == one.integral);
      CHECK(values_of(*source) == one.values);
    }
  }
  const auto images = open_idx(folder.file("b", idx(8, {2, 3, 1}, "abcdef")));
  CHECK(images->sample_shape() == Shape{3, 1});
  CHECK(values_of(*images, {1}) == Values{'d', 'e', 'f'});
  CHECK_THAT(images->place(1, 2), Contains("b: row 1, column 2"));
  CHECK(open_idx(folder.file("c", idx(8, {0, 3}, "")))->rows() == 0);
}

TEST_CASE("IDX: damaged files") {
  const Folder folder;
  const std::string good = idx(8, {2, 3}, "abcdef");
  for (const bool packed : {false, true}) {
    const std::string bytes = packed ? gzip(good) : good;
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      CAPTURE(packed, size);
      CHECK_THAT(error_of(kData, [&] { open_idx(folder.file("cut.idx", bytes.substr(0, size))); }),
                 Contains("cut.idx"));
    }
  }
  std::string wrong_sum = gzip(good);
  wrong_sum[wrong_sum.size() - 8] ^= 1;
  const std::vector<std::pair<std::string, std::string>> table{
      {idx(8, {2, 3}, "abcdefg"), "6 bytes of data; the file holds more"},
      {gzip(idx(8, {2}, std::string(64U << 20U, 'x'))), "the file holds more"},
      {idx(8, {0xFFFFFFFF}, "abc"), "the file holds 3"},
      {idx(8, {0xFFFFFFFF, 0xFFFFFFFF}, "abc"), "more than memory"},
      {idx(8, {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, "abc"), "more than memory"},
      {idx(8, {0, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, ""), "more than memory"},
      {idx(8, {0xFFFFFFFF, 0}, ""), "samples without elements"},
      {idx(0x0A, {1}, "a"), "magic number 0x00000a01"},
      {idx(8, {}, "a"), "magic number"},
      {idx(8, {1, 1, 1, 1, 1, 1, 1, 1, 1}, "a"), "magic number"},
      {"\x01" + good.substr(1), "magic number 0x0100"},
      {npy("<f4", "(1,)", "1234"), "magic number"},
      {kPointer, "Git LFS pointer"},
      {wrong_sum, "damaged"}};
  for (const auto& [bytes, message] : table)
    CHECK_THAT(error_of(kData, [&, &bytes = bytes] { open_idx(folder.file("d.idx", bytes)); }),
               Contains("d.idx") && Contains(message));
  CHECK_THAT(error_of(kData, [&] { open_idx(folder.path()); }), Contains("not a regular file"));
  CHECK_THAT(error_of(kData, [&] { open_idx(folder / "none"); }), Contains("No such file"));
}

TEST_CASE("token shards: windows, widths, several files") {
  const Folder folder;
  std::vector<std::uint16_t> ids;
  for (std::uint16_t i = 0; i < 10; ++i) ids.push_back(static_cast<std::uint16_t>(65526 + i));
  const std::string first = folder.file("a", shard(20240520, 1, 10, bytes_of(ids)));
  const std::string second = folder.file(
      "b", shard(20240801, 7, 5, bytes_of(std::vector<std::uint32_t>{1, 2, 3, 70000, 5})));
  const std::string tiny = folder.file("t", shard(20240520, 1, 1, "xx"));
  // 10 ids give (10 - 1) / 3 windows, 1 none, 5 one.
  const Windows windows = open_tokens({first, tiny, second}, "", 3);
  REQUIRE(windows.x->rows() == 4);
  CHECK(windows.y->rows() == 4);
  CHECK(windows.x->sample_shape() == Shape{3});
  CHECK(windows.x->integral());
  CHECK(values_of(*windows.x, {0, 2, 3}) ==
        Values{65526, 65527, 65528, 65532, 65533, 65534, 1, 2, 3});
  CHECK(values_of(*windows.y, {0, 2, 3}) ==
        Values{65527, 65528, 65529, 65533, 65534, 65535, 2, 3, 70000});
  CHECK_THAT(windows.x->place(3, 1), Contains("b: token 1"));
  CHECK_THAT(windows.y->place(2, 0), Contains("a: token 7"));

  const std::string raw = folder.file("r", bytes_of(std::vector<std::uint32_t>{1, 2, 70000}));
  CHECK(values_of(*open_tokens({raw}, "uint32", 2).y) == Values{2, 70000});
  CHECK(values_of(*open_tokens({raw}, "uint16", 2).x) == Values{1, 0, 2, 0});
}

TEST_CASE("token shards: damaged files") {
  const Folder folder;
  const std::string tokens = bytes_of(std::vector<std::uint16_t>{1, 2, 3, 4});
  const std::string good = shard(20240520, 1, 4, tokens);
  for (std::size_t size = 0; size < good.size(); size += size < 16 || size > 1000 ? 1 : 97) {
    CAPTURE(size);
    CHECK_THAT(
        error_of(kData, [&] { open_tokens({folder.file("cut", good.substr(0, size))}, "", 2); }),
        Contains("cut"));
  }
  const auto message = [&](const std::string& bytes, const std::string& raw = "",
                           std::int64_t length = 2) {
    return error_of(kData, [&] { open_tokens({folder.file("d", bytes)}, raw, length); });
  };
  CHECK_THAT(message(good + "x"), Contains("the header says 4 tokens"));
  CHECK_THAT(message(shard(20240520, 1, 2147483647, tokens)),
             Contains("2147483647") && Contains("holds 4"));
  CHECK_THAT(message(shard(20240520, 1, -4, tokens)), Contains("-4"));
  CHECK_THAT(message(shard(20240522, 1, 4, tokens)), Contains("magic number 20240522"));
  CHECK_THAT(message(tokens, "", 2), Contains("raw"));
  CHECK_THAT(message("123", "uint16"), Contains("not a multiple of 2"));
  CHECK_THAT(message("123456", "uint32"), Contains("not a multiple of 4"));
  CHECK_THAT(message("", "uint16"), Contains("empty"));
  CHECK_THAT(message(good, "", 4), Contains("too short"));
  CHECK_THAT(message(good, "", std::int64_t{1} << 62U), Contains("too short"));
  CHECK_THAT(message(kPointer, "uint16"), Contains("Git LFS pointer"));
  CHECK_THAT(error_of(kData, [&] { open_tokens({folder / "none"}, "", 2); }), Contains("none"));
}

TEST_CASE("texts: characters and bytes, shares, damaged UTF-8") {
  const Folder folder;
  const std::string path = folder.file("t.txt", "héllo €𝄞!");
  const Windows chars = open_text(path, "char", 4, 0, 1);
  // Sorted: ' ' ! h l o é € 𝄞.
  CHECK(values_of(*chars.x) == Values{2, 5, 3, 3, 4, 0, 6, 7});
  CHECK(values_of(*chars.y) == Values{5, 3, 3, 4, 0, 6, 7, 1});
  const Windows bytes = open_text(path, "byte", 14, 0, 1);
  CHECK(values_of(*bytes.x)[1] == 0xC3);
  // The vocabulary is that of the whole text, whatever share is taken.
  CHECK(values_of(*open_text(path, "char", 1, 0.5, 0.8).x) == Values{4, 0});
  CHECK_THAT(error_of(kData, [&] { open_text(path, "char", 9, 0, 1); }), Contains("too short"));
  CHECK_THAT(error_of(kData, [&] { open_text(folder.file("e", ""), "char", 1, 0, 1); }),
             Contains("empty"));
  CHECK_THAT(error_of(kData, [&] { open_text(folder.path(), "byte", 1, 0, 1); }),
             Contains("not a regular file"));
  CHECK_THAT(error_of(kData, [&] { open_text(folder.file("p", kPointer), "byte", 1, 0, 1); }),
             Contains("Git LFS pointer"));
  for (const std::string& bad : {"ab\xFF"s, "ab\x80"s, "ab\xC3"s, "ab\xC3("s, "ab\xC0\xAF"s,
                                 "ab\xE0\x80\xAF"s, "ab\xED\xA0\x80"s, "ab\xF4\x90\x80\x80"s,
                                 "ab\xF0\x80\x80\x80"s, "ab\xF8\x88\x80\x80\x80"s, "ab\xE2\x82"s}) {
    const std::string file = folder.file("bad", bad);
    CHECK_THAT(error_of(kData, [&] { open_text(file, "char", 1, 0, 1); }),
               Contains("byte 2 is not UTF-8"));
    CHECK(open_text(file, "byte", 1, 0, 1).x->rows() == static_cast<std::int64_t>(bad.size()) - 1);
  }
}

TEST_CASE("synthetic samples are a function of seed, name and place") {
  const auto draw = [](const std::string& kind, std::uint64_t seed, const std::string& name,
                       const Shape& shape) { return synthetic(1000, shape, kind, 5, seed, name); };
  const Values normal = values_of(*draw("normal", 1, "x", {2}));
  CHECK(normal == values_of(*draw("normal", 1, "x", {2})));
  CHECK(normal != values_of(*draw("normal", 2, "x", {2})));
  CHECK(normal != values_of(*draw("normal", 1, "y", {2})));
  // Element numbers count, not rows: a sample of another shape sees the same stream.
  CHECK(normal == Values(values_of(*draw("normal", 1, "x", {2, 1}))));
  CHECK(values_of(*draw("normal", 1, "x", {2}), {7, 3}) ==
        Values{normal[14], normal[15], normal[6], normal[7]});
  double mean = 0;
  double square = 0;
  for (const double value : normal) {
    mean += value / 2000;
    square += value * value / 2000;
  }
  CHECK(std::abs(mean) < 0.1);
  CHECK(std::abs(square - 1) < 0.15);
  for (const double value : values_of(*draw("uniform", 1, "x", {})))
    CHECK((value >= 0 && value < 1));
  const Values ids = values_of(*draw("integers", 1, "x", {}));
  CHECK(std::set<double>(ids.begin(), ids.end()) == std::set<double>{0, 1, 2, 3, 4});
  CHECK(draw("integers", 1, "x", {})->integral());
}
