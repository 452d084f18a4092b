// A file opened for reading at any offset; errors carry its path.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace tessera::io {

/// Read-only, by position: safe to share between threads. Refuses what is no regular file, and
/// pointers that Git LFS leaves in place of a file.
class RawFile {
 public:
  RawFile(std::string path, Error::Kind kind);
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }
  /// Exactly `bytes` bytes at `offset`, or an error that says the file is too short.
  void read(std::int64_t offset, std::int64_t bytes, void* out) const;

 private:
  void refuse_pointer() const;

  std::string path_;
  Error::Kind kind_;
  int file_ = -1;
  std::int64_t size_ = 0;
};

}  // namespace tessera::io
