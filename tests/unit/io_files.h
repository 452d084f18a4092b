// What the tests of files share: a folder that goes away, bytes of arrays and archives made by
// hand, errors caught.
#pragma once

#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tessera::testing {

/// A new folder in memory (or in the system's temporary folder), removed in the end.
class Folder {
 public:
  Folder() {
    namespace fs = std::filesystem;
    const fs::path parent = fs::is_directory("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
    path_ = parent / ("tessera_test_" + std::to_string(std::random_device{}()));
    fs::create_directory(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }
  /// Writes a file; its path.
  std::string file(const std::string& name, std::string_view bytes) const {
    std::ofstream out(path_ / name, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return *this / name;
  }
  /// Names of what lies in it.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    return names;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Message of the error that `action` throws; fails the test when there is none or its kind is
/// another.
template <typename Action>
std::string error_of(Error::Kind kind, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.kind == kind);
    return error.what();
  }
  FAIL_CHECK("no error");
  return "";
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// An integer as little-endian bytes.
inline std::string little(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i, value >>= 8U) text.push_back(static_cast<char>(value & 0xFFU));
  return text;
}
inline std::string big(std::uint64_t value, int bytes) {
  const std::string text = little(value, bytes);
  return {text.rbegin(), text.rend()};
}

/// A NumPy array file: `descr` such as "<f4", `shape` such as "(2, 3)".
inline std::string npy(const std::string& descr, const std::string& shape, std::string_view data,
                       const std::string& order = "False", int version = 1) {
  std::string head =
      "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  head += std::string(63 - (10 + head.size()) % 64, ' ') + "\n";
  return "\x93NUMPY" + little(static_cast<std::uint64_t>(version), 2) +
         little(head.size(), version == 1 ? 2 : 4) + head + std::string(data);
}

/// A member of a zip archive. Sizes and checksum can be made to lie.
struct Member {
  std::string name;
  std::string data;
  bool deflate = false;
  std::optional<std::uint32_t> declared_size;  // of the inflated data
  std::optional<std::uint32_t> checksum;
};

inline std::string deflated(const std::string& data) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, data.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::string zip(const std::vector<Member>& members) {
  std::string file;
  std::string directory;
  for (const Member& member : members) {
    const std::string stored = member.deflate ? deflated(member.data) : member.data;
    const auto sum =
        static_cast<std::uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(member.data.data()),
                                         static_cast<uInt>(member.data.size())));
    const std::string common =
        little(20, 2) + little(0, 2) + little(member.deflate ? 8 : 0, 2) + little(0, 2) +
        little(0x21, 2) + little(member.checksum.value_or(sum), 4) + little(stored.size(), 4) +
        little(member.declared_size.value_or(static_cast<std::uint32_t>(member.data.size())), 4) +
        little(member.name.size(), 2) + little(0, 2);
    directory += "PK\x01\x02" + little(20, 2) + common + little(0, 10) + little(file.size(), 4) +
                 member.name;
    file += "PK\x03\x04" + common + member.name + stored;
  }
  return file + directory + "PK\x05\x06" + little(0, 4) + little(members.size(), 2) +
         little(members.size(), 2) + little(directory.size(), 4) + little(file.size(), 4) +
         little(0, 2);
}

/// A safetensors file.
inline std::string safetensors(const std::string& header, std::string_view data) {
  return little(header.size(), 8) + header + std::string(data);
}

}  // namespace tessera::testing
