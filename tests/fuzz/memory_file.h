// A file in memory that holds the input of a fuzz target, for readers that take a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace tessera::fuzz {

inline void require(bool condition) {
  if (!condition) std::abort();
}

class MemoryFile {
 public:
  MemoryFile()
      : file_(memfd_create("fuzz", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(file_)) {
    require(file_ >= 0);
  }
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  /// Replaces the content; the file's path.
  const std::string& hold(std::string_view bytes) const {
    require(ftruncate(file_, 0) == 0);
    require(pwrite(file_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    return path_;
  }

 private:
  int file_;
  std::string path_;
};

}  // namespace tessera::fuzz
