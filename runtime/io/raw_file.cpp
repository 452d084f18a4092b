#include "runtime/io/raw_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace tessera::io {

RawFile::RawFile(std::string path, Error::Kind kind) : path_(std::move(path)), kind_(kind) {
  // A pipe without a writer would block here for ever.
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) {
    throw Error(kind_, fmt::format("{}: cannot be read: {}", path_, std::strerror(errno)));
  }
  struct stat status {};
  if (::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(file_);
    throw Error(kind_, fmt::format("{}: is not a regular file", path_));
  }
  size_ = status.st_size;
  try {
    refuse_pointer();
  } catch (...) {
    ::close(file_);
    throw;
  }
}

void RawFile::refuse_pointer() const {
  constexpr std::string_view kPointer = "version https://git-lfs";
  std::array<char, kPointer.size()> start{};
  if (size_ < static_cast<std::int64_t>(start.size())) return;
  read(0, start.size(), start.data());
  if (std::string_view(start.data(), start.size()) != kPointer) return;
  throw Error(kind_, fmt::format("{}: a Git LFS pointer, not the data itself: run \"git lfs pull\" "
                                 "(the file has {} bytes)",
                                 path_, size_));
}

RawFile::~RawFile() { ::close(file_); }

void RawFile::read(std::int64_t offset, std::int64_t bytes, void* out) const {
  auto* target = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(file_, target, static_cast<std::size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw Error(kind_, fmt::format("{}: cannot be read at byte {}: {}", path_, offset,
                                     std::strerror(errno)));
    }
    if (got == 0) {
      throw Error(kind_, fmt::format("{}: ends after {} bytes, {} more were expected", path_,
                                     offset, bytes));
    }
    target += got;
    offset += got;
    bytes -= got;
  }
}

}  // namespace tessera::io
