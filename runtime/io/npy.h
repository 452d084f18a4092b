// NumPy's array files: .npy, and .npz archives of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/io/array_file.h"

namespace tessera::io {

/// What the header of one array says.
struct NpyHeader {
  FileType type = FileType::float32;
  bool big_endian = false;
  bool column_major = false;
  Shape shape;
  std::int64_t header_bytes = 0;  // data start here
};

/// Parses magic, version and dictionary from the first bytes of an array file. `where` starts every
/// message. Object, string and complex types are refused by name.
NpyHeader parse_npy_header(std::string_view start, const std::string& where, Error::Kind kind);

std::unique_ptr<ArrayFile> open_npy(const std::string& path, Error::Kind kind);
std::unique_ptr<ArrayFile> open_npz(const std::string& path, Error::Kind kind);

/// Writes float32 values as .npy, atomically. Throws internal with path and reason.
void write_npy(const std::string& path, std::span<const float> values, const Shape& shape);

}  // namespace tessera::io
