// The safetensors format: header of names, types, shapes and offsets as JSON, then the bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/io/array_file.h"

namespace tessera::io {

/// Strict reader: see shared rules in docs; errors say what is wrong with the header, its length,
/// offsets or sizes.
std::unique_ptr<ArrayFile> open_safetensors(const std::string& path, Error::Kind kind);

/// Writes a file atomically: a temporary name in the same folder, fsync, rename, fsync of the
/// folder. Tensors are sorted by alignment of their type (descending), then name; the header is
/// padded with spaces to 8 bytes.
class SafetensorsWriter {
 public:
  /// Creates the temporary file. Throws internal with the path and the system's reason.
  SafetensorsWriter(std::string path, std::vector<ArrayInfo> tensors);
  /// Removes the temporary file when `finish` was not reached.
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// Indices into the constructor's list in the order of the file.
  const std::vector<std::size_t>& order() const { return order_; }
  /// Bytes of tensor `index` at `offset` bytes into it.
  void write(std::size_t index, std::int64_t offset, std::span<const std::byte> bytes);
  void finish();

 private:
  void write_header(const std::string& text);
  /// Removes the temporary file, if there is one.
  void discard();

  std::string path_;
  std::string temporary_;
  int file_ = -1;
  std::vector<ArrayInfo> tensors_;
  std::vector<std::size_t> order_;
  std::vector<std::int64_t> offsets_;
};

}  // namespace tessera::io
