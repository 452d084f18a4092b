// Damaged, lying and hostile files of arrays: each gives one clean error, and no memory is taken
// for sizes that are only declared.
#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <functional>

#include "runtime/io/array_file.h"
#include "tests/unit/io_files.h"

using Catch::Matchers::Contains;
using namespace tessera;
using namespace tessera::io;
using namespace tessera::testing;
using namespace std::string_literals;

namespace {

constexpr auto kWeights = Error::Kind::weights;

/// Opens and reads everything.
void read_all(const std::string& path, const std::string& format) {
  const auto file = open_array_file(path, kWeights, format);
  for (std::size_t i = 0; i < file->arrays().size(); ++i) {
    std::vector<float> values(static_cast<std::size_t>(file->arrays()[i].shape.elements()));
    file->read(static_cast<int>(i), 0, file->arrays()[i].shape.elements(), values.data(),
               DType::float32);
  }
}

/// Most of memory that the process ever held, in MiB.
long peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

struct Damage {
  std::string about;
  std::string bytes;
  std::string message;
};

void check_all(const std::string& format, const std::vector<Damage>& table) {
  const Folder folder;
  const long before = peak_mib();
  for (const Damage& damage : table) {
    CAPTURE(damage.about);
    const std::string path = folder.file("d." + format, damage.bytes);
    const std::string text = error_of(kWeights, [&] { read_all(path, format); });
    CHECK_THAT(text, Contains(path) && Contains(damage.message));
    CHECK(text.find('\x1b') == std::string::npos);
  }
  CHECK(peak_mib() - before < 64);
}

const std::string kTwo = "\0\0\x80\x3F\0\0\0\x40"s;  // 1, 2

std::string raw_npy(const std::string& head, std::string_view data,
                    const std::string& start = "\x93NUMPY\x01\0"s) {
  return start + little(head.size(), 2) + head + std::string(data);
}

}  // namespace

TEST_CASE("every truncation of a file of arrays is an error that names it") {
  const Folder folder;
  const std::string array = npy("<f4", "(2,)", kTwo);
  const std::string tensors = safetensors(
      R"({"__metadata__":{"a":"b"},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", kTwo);
  for (const auto& whole : std::vector<std::pair<std::string, std::string>>{
           {"npy", array},
           {"npz", zip({{"x.npy", array, false, {}, {}}, {"y.npy", array, true, {}, {}}})},
           {"safetensors", tensors}}) {
    const auto& format = whole.first;
    const auto& bytes = whole.second;
    read_all(folder.file("whole", bytes), format);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      CAPTURE(format, size);
      const std::string path = folder.file("cut", bytes.substr(0, size));
      CHECK_THAT(error_of(kWeights, [&] { read_all(path, format); }), Contains(path));
    }
    CAPTURE(format);
    CHECK_THAT(error_of(kWeights, [&] { read_all(folder.file("long", bytes + "x"), format); }),
               Contains("long"));
  }
}

TEST_CASE("no single changed byte does harm") {
  const Folder folder;
  const std::string array = npy("<f4", "(2,)", kTwo);
  for (const auto& whole : std::vector<std::pair<std::string, std::string>>{
           {"npy", array},
           {"npz", zip({{"x.npy", array, true, {}, {}}})},
           {"safetensors",
            safetensors(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", kTwo)}}) {
    const auto& format = whole.first;
    const auto& bytes = whole.second;
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      for (const int mask : {0x01, 0x80, 0xFF}) {
        std::string changed = bytes;
        changed[at] = static_cast<char>(changed[at] ^ mask);
        try {
          read_all(folder.file("changed", changed), format);
        } catch (const Error& error) {
          CHECK(error.kind == kWeights);
        }
      }
    }
  }
}

TEST_CASE("damaged .npy files") {
  const std::string head = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
  check_all(
      "npy",
      {
          {"wrong magic", "\x93NUMPX" + npy("<f4", "(2,)", kTwo).substr(6), "NUMPY"},
          {"version 4", npy("<f4", "(2,)", kTwo, "False", 4), "version 4"},
          {"header longer than the file", raw_npy(head, "").substr(0, 40), "header"},
          {"header beyond the cap", "\x93NUMPY\x02\0"s + little(1U << 31U, 4) + head,
           "2147483648 bytes"},
          {"too few data", npy("<f4", "(3,)", kTwo), "[3] (3 numbers), the file holds 8"},
          {"too many data", npy("<f4", "(1,)", kTwo), "[1]"},
          {"a byte too many", npy("<f4", "(2,)", kTwo + "x"), "9 bytes"},
          {"huge shape", npy("<f4", "(1000000000000,)", kTwo), "1000000000000"},
          {"shape that overflows", npy("<f4", "(4294967296, 4294967296, 4294967296)", kTwo),
           "more than memory"},
          {"shape that overflows beside an empty one",
           npy("<f4", "(0, 4294967296, 4294967296)", ""), "more than memory"},
          {"size beyond 64 bits", npy("<f4", "(99999999999999999999,)", kTwo), "size is no number"},
          {"negative size", npy("<f4", "(-2,)", kTwo), "size is no number"},
          {"nine dimensions", npy("<f4", "(1,1,1,1,1,1,1,1,2)", kTwo), "9 dimensions"},
          {"column order", npy("<f4", "(1, 2)", kTwo, "True"), "fortran_order"},
          {"neither order", npy("<f4", "(2,)", kTwo, "Maybe"), "neither True nor False"},
          {"objects", npy("|O", "(1,)", kTwo), "Python objects"},
          {"strings", npy("<U2", "(1,)", kTwo), "'<U2'"},
          {"complex", npy("<c8", "(1,)", kTwo), "'<c8'"},
          {"dates", npy("<M8[ns]", "(1,)", kTwo), "M8"},
          {"long doubles", npy("<f16", "(1,)", kTwo + kTwo), "f16"},
          {"fields",
           raw_npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", kTwo),
           "structured"},
          {"no type", raw_npy("{'descr': '', 'fortran_order': False, 'shape': (2,), }", kTwo),
           "''"},
          {"open quote", raw_npy("{'descr: <f4, 2", kTwo), "quote"},
          {"escape sequence in the type",
           raw_npy("{'descr': '\x1b[31m', 'fortran_order': False, 'shape': (2,), }", kTwo),
           "\\x1b[31m"},
          {"no dictionary", raw_npy("[1, 2]", kTwo), "'{' expected"},
          {"empty dictionary", raw_npy("{}", kTwo), "lacks"},
          {"open tuple", raw_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,", kTwo),
           "damaged"},
          {"only magic", "\x93NUMPY", "too short"},
      });
}

TEST_CASE("damaged .npz archives") {
  const std::string array = npy("<f4", "(2,)", kTwo);
  const std::string huge(8U << 20U, '\0');
  const auto one = [](const std::string& data) { return zip({{"x.npy", data, false, {}, {}}}); };
  Member deflated_short{"x.npy", npy("<f4", "(2097152,)", huge), true, {}, {}};
  check_all(
      "npz",
      {
          {"no array", zip({{"readme.txt", "hello", false, {}, {}}}), "\"readme.txt\""},
          {"the same name twice",
           zip({{"x.npy", array, false, {}, {}}, {"x.npy", array, false, {}, {}}}), "a name twice"},
          {"escape sequence in a name", zip({{"\x1b[2J.txt", array, false, {}, {}}}),
           "which is no .npy array"},
          {"member is no array", one("hello, hello, hello"), "\"x\": is not a NumPy array"},
          {"member is empty", one(""), "\"x\""},
          {"objects", one(npy("|O", "(1,)", kTwo)), "Python objects"},
          {"column order", one(npy("<f4", "(1, 2)", kTwo, "True")), "fortran_order"},
          {"fewer data than the header says", one(npy("<f4", "(3,)", kTwo)),
           "the archive declares"},
          {"more data than the header says", one(npy("<f4", "(1,)", kTwo)), "the archive declares"},
          {"a petabyte declared in the header", one(npy("<f4", "(281474976710656,)", kTwo)),
           "the archive declares"},
          {"shape that overflows", one(npy("<f4", "(4294967296, 4294967296)", kTwo)),
           "more than memory"},
          {"inflates beyond its declared size",
           zip({{"x.npy",
                 npy("<f4", "(2,)", kTwo + huge),
                 true,
                 static_cast<std::uint32_t>(array.size()),
                 {}}}),
           "\"x\""},
          {"inflates to less than declared",
           zip({{"x.npy",
                 npy("<f4", "(4194304,)", huge),
                 true,
                 static_cast<std::uint32_t>(2 * huge.size() + 128),
                 {}}}),
           "\"x\""},
          {"four gigabytes in nothing",
           zip({{"x.npy", npy("<f4", "(1000000000,)", ""), true, 4000000128U, {}}}),
           "not a sound archive"},
          {"wrong checksum", zip({{"x.npy", array, true, {}, 1U}}), "\"x\""},
          {"wrong checksum of stored data", zip({{"x.npy", array, false, {}, 1U}}), "\"x\""},
          {"not an archive", "hello, world", "zip"},
          {"directory at another place", "x" + one(array), "zip"},
      });
}

TEST_CASE("names inside archives are only names") {
  const Folder folder;
  const std::string array = npy("<f4", "(2,)", kTwo);
  const std::string path = folder.file(
      "d.npz", zip({{"../../x.npy", array, false, {}, {}}, {"/etc/y.npy", array, true, {}, {}}}));
  read_all(path, "npz");
  const auto file = open_array_file(path, kWeights);
  CHECK(file->find("../../x") == 0);
  CHECK(file->find("/etc/y") == 1);
  CHECK(folder.names() == std::vector<std::string>{"d.npz"});
}

TEST_CASE("damaged .safetensors files") {
  const auto one = [](const std::string& type, const std::string& shape, const std::string& at) {
    return safetensors(
        R"({"x":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + at + "}}",
        kTwo);
  };
  const std::string good = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string next = R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})";
  const auto two = [](const std::string& a, const std::string& b) {
    return safetensors(R"({"a":)" + a + R"(,"b":)" + b + "}", kTwo);
  };
  const Folder folder;
  read_all(folder.file("good", two(good, next)), "safetensors");
  check_all(
      "safetensors",
      {
          {"seven bytes", "\0\0\0\0\0\0\0"s, "7 bytes, too few"},
          {"header longer than the file", little(100, 8) + "{}", "header of 100 bytes"},
          {"header of all memory", little(~std::uint64_t{0}, 8) + "{}", "18446744073709551615"},
          {"header of 2^63 bytes", little(std::uint64_t{1} << 63U, 8) + "{}",
           "9223372036854775808"},
          {"header beyond the cap", little(100'000'001, 8) + "{}", "100000001"},
          {"no header", little(0, 8), "does not start with '{'"},
          {"text", "hello, this is a text and no tensors", "not a safetensors file"},
          {"list", safetensors("[1]", ""), "does not start with '{'"},
          {"no JSON", safetensors("{\"x\":", ""), "JSON"},
          {"not UTF-8", safetensors("{\"\xFF\":1}", ""), "JSON"},
          {"deep nesting", safetensors("{\"x\":" + std::string(5000, '['), ""), "JSON"},
          {"the same name twice", safetensors("{\"a\":" + good + ",\"a\":" + next + "}", kTwo),
           "JSON"},
          {"metadata that is no text", safetensors(R"({"__metadata__":{"a":1}})", ""),
           "__metadata__"},
          {"metadata that is no map", safetensors(R"({"__metadata__":"a"})", ""), "__metadata__"},
          {"no tensor", safetensors(R"({"x":1})", kTwo), "lacks"},
          {"no dtype", safetensors(R"({"x":{"shape":[2],"data_offsets":[0,8]}})", kTwo), "lacks"},
          {"three offsets", one("F32", "[2]", "[0,8,8]"), "lacks"},
          {"unknown type", one("F8_E4M3", "[8]", "[0,8]"), "F8_E4M3"},
          {"escape sequence in a name", safetensors(R"({"\u001b[2J":1})", kTwo), "\\x1b[2J"},
          {"negative size", one("F32", "[-2]", "[0,8]"), "no list of sizes"},
          {"fraction", one("F32", "[2.0]", "[0,8]"), "no list of sizes"},
          {"nine dimensions", one("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), "9 dimensions"},
          {"shape that overflows", one("F32", "[4294967296,4294967296]", "[0,8]"), "overflows"},
          {"shape that overflows beside an empty one",
           one("F32", "[0,4294967296,4294967296]", "[0,0]"), "overflows"},
          {"offsets beyond the file", one("F32", "[4]", "[0,16]"), "of 8 bytes of data"},
          {"offsets backwards", one("F32", "[2]", "[8,0]"), "bytes 8 to 0"},
          {"negative offset", one("F32", "[2]", "[-8,0]"), "-8"},
          {"offset that is no integer", one("F32", "[2]", "[0,\"8\"]"), "lies at"},
          {"shape and offsets disagree", one("F32", "[1]", "[0,8]"), "needs 4 bytes"},
          {"overlap", two(R"({"dtype":"F64","shape":[1],"data_offsets":[0,8]})", next),
           "starts at byte 4, expected 8"},
          {"the same place twice", two(good, good), "starts at byte 0, expected 4"},
          {"gap", safetensors("{\"a\":" + next + "}", kTwo), "starts at byte 4, expected 0"},
          {"data that belong to nobody", safetensors("{\"a\":" + good + "}", kTwo),
           "end at byte 4"},
      });
}

TEST_CASE("what is no file of arrays at all") {
  const Folder folder;
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
  mkfifo((folder / "pipe").c_str(), 0600);
  for (const char* format : {"npy", "npz", "safetensors", ""}) {
    CAPTURE(format);
    CHECK_THAT(
        error_of(kWeights, [&] { open_array_file(folder.file("p", pointer), kWeights, format); }),
        Contains("Git LFS pointer") && Contains("git lfs pull"));
    CHECK_THAT(error_of(kWeights, [&] { open_array_file(folder.path(), kWeights, format); }),
               Contains("not a regular file"));
    CHECK_THAT(error_of(kWeights, [&] { open_array_file(folder / "pipe", kWeights, format); }),
               Contains("not a regular file"));
    CHECK_THAT(error_of(kWeights, [&] { open_array_file(folder / "none", kWeights, format); }),
               Contains("none") && Contains("No such file"));
    CHECK_THAT(error_of(kWeights, [&] { open_array_file(folder.file("e", ""), kWeights, format); }),
               Contains("0 bytes"));
  }
}
