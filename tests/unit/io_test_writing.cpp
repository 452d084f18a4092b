// Files written whole or not at all: safetensors, and atomic writes.
#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "runtime/io/safetensors.h"
#include "runtime/io/write_file.h"
#include "tests/unit/io_files.h"

using Catch::Matchers::Contains;
using namespace tessera;
using namespace tessera::io;
using namespace tessera::testing;
using namespace std::string_literals;

namespace {

constexpr auto kInternal = Error::Kind::internal;

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

/// While it lives, files cannot grow beyond `size` bytes, as on a disk that is full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t size) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = size;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

}  // namespace

TEST_CASE("one tensor of 1x2x3 has a header of 64 bytes") {
  const Folder folder;
  const std::string data(24, '\x3F');
  SafetensorsWriter writer(folder / "w", {{"attn.0", FileType::float32, {1, 2, 3}}});
  writer.write(0, 0, bytes(data));
  writer.finish();
  const std::string header = R"({"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}})";
  CHECK(header.size() == 64);
  CHECK(read_bytes(folder / "w") == little(64, 8) + header + data);
  CHECK(folder.names() == std::vector<std::string>{"w"});
}

TEST_CASE("no tensors give an empty header, padded") {
  const Folder folder;
  SafetensorsWriter(folder / "w", {}).finish();
  CHECK(read_bytes(folder / "w") == little(8, 8) + "{}      ");
  CHECK(open_safetensors(folder / "w", kInternal)->arrays().empty());
}

TEST_CASE("tensors are sorted by alignment, then name, and the header is padded") {
  const Folder folder;
  const std::vector<ArrayInfo> tensors{{"z", FileType::float32, {1}},
                                       {"a", FileType::uint8, {3}},
                                       {"b\"\n", FileType::float32, {}},
                                       {"d", FileType::float64, {1}},
                                       {"c", FileType::bfloat16, {0, 2}}};
  SafetensorsWriter writer(folder / "w", tensors);
  CHECK(writer.order() == std::vector<std::size_t>{3, 2, 0, 4, 1});
  // In any order, in pieces.
  writer.write(1, 1, bytes("bc"));
  writer.write(0, 0, bytes("zzzz"));
  writer.write(3, 0, bytes("dddddddd"));
  writer.write(1, 0, bytes("a"));
  writer.write(4, 0, {});
  writer.write(2, 0, bytes("\0\0\x80\x3F"s));
  writer.finish();
  const std::string file = read_bytes(folder / "w");
  CHECK(file.substr(file.size() - 19) == "dddddddd\0\0\x80\x3Fzzzzabc"s);
  CHECK((file.size() - 19) % 8 == 0);
  const auto read = open_safetensors(folder / "w", kInternal);
  REQUIRE(read->arrays().size() == 5);
  const int b = read->find("b\"\n");
  REQUIRE(b == 1);
  float value = 0;
  read->read(b, 0, 1, &value, DType::float32);
  CHECK(value == 1);
}

TEST_CASE("what is not finished leaves nothing, and what was there stays") {
  const Folder folder;
  folder.file("w", "before");
  {
    SafetensorsWriter writer(folder / "w", {{"x", FileType::float32, {2}}});
    writer.write(0, 0, bytes("1234"));
    CHECK(folder.names().size() == 2);
  }
  CHECK(folder.names() == std::vector<std::string>{"w"});
  CHECK(read_bytes(folder / "w") == "before");
}

TEST_CASE("a full disk is an error that leaves no temporary file") {
  const Folder folder;
  folder.file("w", "before");
  const std::vector<ArrayInfo> tensors{{"x", FileType::uint8, {1000}}};
  {
    const FullDisk full(16);
    CHECK_THAT(error_of(kInternal, [&] { SafetensorsWriter(folder / "w", tensors); }),
               Contains(folder / "w") && Contains("too large"));
    CHECK_THAT(error_of(kInternal, [&] { write_text_file(folder / "w", std::string(17, 'x')); }),
               Contains(folder / "w") && Contains("too large"));
  }
  CHECK(folder.names() == std::vector<std::string>{"w"});
  {
    const FullDisk full(500);
    SafetensorsWriter writer(folder / "w", tensors);
    CHECK_THAT(error_of(kInternal, [&] { writer.write(0, 0, bytes(std::string(1000, 'x'))); }),
               Contains("too large"));
  }
  CHECK(folder.names() == std::vector<std::string>{"w"});
  CHECK(read_bytes(folder / "w") == "before");
}

TEST_CASE("a target that cannot be written is an error that names it") {
  const Folder folder;
  CHECK_THAT(error_of(kInternal, [&] { SafetensorsWriter(folder / "no/w", {}); }),
             Contains("no/w") && Contains("No such file"));
  CHECK_THAT(error_of(kInternal, [&] { write_text_file(folder / "no/w", "x"); }),
             Contains("no/w") && Contains("No such file"));
  std::filesystem::create_directory(folder / "taken");
  std::filesystem::create_directory(folder / "taken/inner");
  CHECK_THAT(error_of(kInternal, [&] { SafetensorsWriter(folder / "taken", {}).finish(); }),
             Contains("taken") && Contains("directory"));
  CHECK_THAT(error_of(kInternal, [&] { write_text_file(folder / "taken", "x"); }),
             Contains("taken") && Contains("directory"));
  CHECK(folder.names() == std::vector<std::string>{"taken"});
}

TEST_CASE("whole files replace what was there") {
  const Folder folder;
  write_text_file(folder / "t", "one");
  write_text_file(folder / "t", "");
  CHECK(read_bytes(folder / "t").empty());
  const std::string large(3U << 20U, 'y');
  write_text_file(folder / "t", large);
  CHECK(read_bytes(folder / "t") == large);
  CHECK(folder.names() == std::vector<std::string>{"t"});
}
