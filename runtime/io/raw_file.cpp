#include "runtime/io/raw_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tessera::io {

RawFile::RawFile(std::string path, Error::Kind kind) : path_(std::move(path)), kind_(kind) {
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) {
    throw Error(kind_, fmt::format("{}: cannot be read: {}", path_, std::strerror(errno)));
  }
  struct stat status {};
  if (::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(file_);
    throw Error(kind_, fmt::format("{}: is not a regular file", path_));
  }
  size_ = status.st_size;
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
