#include "runtime/io/write_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "base/error.h"

namespace tessera::io {

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  const std::string temporary = fmt::format("{}.{:08x}.tmp", path, std::random_device{}());
  const auto fail = [&path](const char* what) {
    throw Error(Error::Kind::internal, fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
  };
  const int file =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file < 0) fail("cannot be created");
  bool good = true;
  while (good && !bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    good = written > 0;
    if (good) bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  good = good && ::fsync(file) == 0;
  const int reason = errno;
  good = ::close(file) == 0 && good;
  if (!good || ::rename(temporary.c_str(), path.c_str()) != 0) {
    if (!good) errno = reason;
    const int shown = errno;
    ::unlink(temporary.c_str());
    errno = shown;
    fail("cannot be written");
  }
}

void write_text_file(const std::string& path, std::string_view text) {
  write_file(path, std::as_bytes(std::span(text)));
}

void sync_folder(const std::string& folder) {
  const int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  ::fsync(directory);
  ::close(directory);
}

}  // namespace tessera::io
