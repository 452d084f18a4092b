// .npz archives through libzip; members are only names, nothing is written to them.
#include <fmt/format.h>
#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/json.h"
#include "runtime/io/npy.h"

namespace tessera::io {
namespace {

/// No header says more than this: dictionary, magic and padding.
constexpr std::size_t kStartBytes = 10100;

struct ArchiveCloser {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct MemberCloser {
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};

class NpzFile : public ArrayFile {
 public:
  NpzFile(const std::string& path, Error::Kind kind) {
    path_ = path;
    kind_ = kind;
    int code = 0;
    archive_.reset(zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code));
    if (archive_ == nullptr) {
      zip_error_t error;
      zip_error_init_with_code(&error, code);
      const std::string reason =
          code == ZIP_ER_EXISTS ? "it holds a name twice" : zip_error_strerror(&error);
      zip_error_fini(&error);
      throw Error(kind, fmt::format("{}: cannot be read as an .npz archive: {}", path, reason));
    }
    const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
    for (zip_int64_t i = 0; i < count; ++i) add_member(static_cast<zip_uint64_t>(i));
  }

 protected:
  void read_raw(int array, std::int64_t first, std::int64_t count, std::byte* out) const override {
    Member& member = members_[static_cast<std::size_t>(array)];
    const std::size_t width = size_of(member.header.type);
    {
      const std::lock_guard lock(mutex_);
      if (!member.inflated) inflate(member);
    }
    std::memcpy(out, member.bytes.data() + static_cast<std::size_t>(first) * width,
                static_cast<std::size_t>(count) * width);
    if (member.header.big_endian) {
      for (std::int64_t i = 0; i < count; ++i)
        std::reverse(out + static_cast<std::size_t>(i) * width,
                     out + static_cast<std::size_t>(i + 1) * width);
    }
  }

 private:
  struct Member {
    zip_uint64_t index = 0;
    NpyHeader header;
    std::string where;
    bool inflated = false;
    std::vector<std::byte> bytes;
  };

  [[noreturn]] void fail(const std::string& where, std::string_view what) const {
    throw Error(kind_, fmt::format("{}: {}", where, what));
  }

  std::unique_ptr<zip_file_t, MemberCloser> open(zip_uint64_t index,
                                                 const std::string& where) const {
    std::unique_ptr<zip_file_t, MemberCloser> member(zip_fopen_index(archive_.get(), index, 0));
    if (member == nullptr) fail(where, zip_strerror(archive_.get()));
    return member;
  }

  void add_member(zip_uint64_t index) {
    zip_stat_t status;
    if (zip_stat_index(archive_.get(), index, 0, &status) != 0)
      fail(path_, zip_strerror(archive_.get()));
    if ((status.valid & ZIP_STAT_NAME) == 0 || (status.valid & ZIP_STAT_SIZE) == 0 ||
        (status.valid & ZIP_STAT_COMP_SIZE) == 0)
      fail(path_, "holds a member without name or size");
    std::string name = status.name;
    if (!name.ends_with(".npy"))
      fail(path_, fmt::format("holds \"{}\", which is no .npy array", json::printable(name)));
    name.resize(name.size() - 4);
    Member member;
    member.index = index;
    member.where = fmt::format("{}: array \"{}\"", path_, json::printable(name));
    std::string start(kStartBytes, '\0');
    const auto file = open(index, member.where);
    const zip_int64_t got = zip_fread(file.get(), start.data(), start.size());
    if (got < 0) fail(member.where, zip_file_strerror(file.get()));
    start.resize(static_cast<std::size_t>(got));
    member.header = parse_npy_header(start, member.where, kind_);
    if (member.header.column_major && member.header.shape.rank() > 1) {
      fail(member.where, "is stored column by column (fortran_order); save a C-ordered copy");
    }
    const auto expected =
        static_cast<std::uint64_t>(member.header.shape.elements()) * size_of(member.header.type) +
        static_cast<std::uint64_t>(member.header.header_bytes);
    if (status.size != expected) {
      fail(member.where,
           fmt::format(
               "the header says {} {} ({} bytes with the header), the archive declares {} bytes",
               name_of(member.header.type), to_string(member.header.shape), expected, status.size));
    }
    // Deflate cannot expand more than about 1032 times.
    if (status.size / 1100 > status.comp_size) {
      fail(member.where, fmt::format("declares {} bytes in {} stored ones: not a sound archive",
                                     status.size, status.comp_size));
    }
    const auto memory = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                        static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    if (status.size > memory) {
      fail(member.where,
           fmt::format("needs {} bytes, more than this machine's memory", status.size));
    }
    arrays_.push_back({name, member.header.type, member.header.shape});
    members_.push_back(std::move(member));
  }

  void inflate(Member& member) const {
    const auto file = open(member.index, member.where);
    std::vector<std::byte> skipped(static_cast<std::size_t>(member.header.header_bytes));
    read_exactly(file.get(), skipped, member.where);
    member.bytes.resize(static_cast<std::size_t>(member.header.shape.elements()) *
                        size_of(member.header.type));
    read_exactly(file.get(), member.bytes, member.where);
    std::byte beyond{};
    if (zip_fread(file.get(), &beyond, 1) != 0)
      fail(member.where,
           "is damaged: it does not end where its header says, or its checksum differs");
    member.inflated = true;
  }

  void read_exactly(zip_file_t* file, std::vector<std::byte>& bytes,
                    const std::string& where) const {
    for (std::size_t done = 0; done < bytes.size();) {
      const zip_int64_t got = zip_fread(file, bytes.data() + done, bytes.size() - done);
      if (got < 0) fail(where, fmt::format("is damaged: {}", zip_file_strerror(file)));
      if (got == 0) fail(where, fmt::format("ends after {} of {} bytes", done, bytes.size()));
      done += static_cast<std::size_t>(got);
    }
  }

  std::unique_ptr<zip_t, ArchiveCloser> archive_;
  mutable std::mutex mutex_;
  mutable std::vector<Member> members_;
};

}  // namespace

std::unique_ptr<ArrayFile> open_npz(const std::string& path, Error::Kind kind) {
  return std::make_unique<NpzFile>(path, kind);
}

}  // namespace tessera::io
