// Arrays of .npz, .npy and .safetensors files, and IDX files, as sources.
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "runtime/data/formats.h"
#include "runtime/io/raw_file.h"

namespace tessera::data {
namespace {

/// Samples without elements take no bytes, so that nothing in the file would bound their number.
void check_samples(const Shape& shape, const std::string& shown) {
  if (shape[0] == 0 || Shape(shape.sizes().subspan(1)).elements() > 0) return;
  throw Error(Error::Kind::data,
              fmt::format("{}: has the shape {}, samples without elements; expected at least one "
                          "element a sample",
                          shown, to_string(shape)));
}

class ArraySource : public Source {
 public:
  ArraySource(std::shared_ptr<const io::ArrayFile> file, int index)
      : file_(std::move(file)), index_(index) {
    const io::ArrayInfo& info = file_->arrays()[static_cast<std::size_t>(index)];
    if (info.shape.empty()) {
      throw Error(Error::Kind::data,
                  fmt::format("{}: is a single number; the first dimension must count the samples",
                              shown()));
    }
    check_samples(info.shape, shown());
    rows_ = info.shape[0];
    sample_shape_ = Shape(info.shape.sizes().subspan(1));
    integral_ = !io::is_floating(info.type);
  }
  void read(std::span<const std::int64_t> rows, DType to, void* out) const override {
    const std::int64_t elements = sample_elements();
    auto* target = static_cast<std::byte*>(out);
    for (std::size_t i = 0; i < rows.size();) {
      std::size_t next = i + 1;  // neighbouring rows are read together
      while (next < rows.size() && rows[next] == rows[next - 1] + 1) ++next;
      const auto count = static_cast<std::int64_t>(next - i) * elements;
      file_->read(index_, rows[i] * elements, count, target, to);
      target += static_cast<std::size_t>(count) * size_of(to);
      i = next;
    }
  }
  std::string place(std::int64_t row, std::int64_t element) const override {
    return sample_elements() == 1 ? fmt::format("{}: row {}", shown(), row)
                                  : fmt::format("{}: row {}, column {}", shown(), row, element);
  }
  std::string shown() const override {
    const std::string& name = file_->arrays()[static_cast<std::size_t>(index_)].name;
    return name.empty() ? file_->path() : fmt::format("{}: array \"{}\"", file_->path(), name);
  }

 private:
  std::shared_ptr<const io::ArrayFile> file_;
  int index_;
};

/// A file read from its start, inflated where it is gzip.
class InflatedFile {
 public:
  explicit InflatedFile(const std::string& path) : path_(path) {
    const io::RawFile checked(path, Error::Kind::data);
    file_ = gzopen(path.c_str(), "rb");
    if (file_ == nullptr) fail(std::strerror(errno));
  }
  ~InflatedFile() { gzclose(file_); }
  InflatedFile(const InflatedFile&) = delete;
  InflatedFile& operator=(const InflatedFile&) = delete;

  /// Up to `limit` bytes: fewer where the file ends. Memory grows with what the file really holds.
  std::string read(std::size_t limit) {
    constexpr std::size_t kPiece = std::size_t{1} << 20U;
    std::string bytes;
    while (bytes.size() < limit) {
      const std::size_t done = bytes.size();
      bytes.resize(done + std::min(limit - done, kPiece));
      const int got =
          gzread(file_, bytes.data() + done, static_cast<unsigned>(bytes.size() - done));
      bytes.resize(done + static_cast<std::size_t>(std::max(got, 0)));
      if (got <= 0) break;
    }
    int code = Z_OK;
    const char* reason = gzerror(file_, &code);
    if (code != Z_OK && code != Z_STREAM_END) fail(reason);
    return bytes;
  }

 private:
  [[noreturn]] void fail(const char* reason) const {
    throw Error(Error::Kind::data,
                fmt::format("{}: is damaged or cannot be read: {}", path_, reason));
  }

  std::string path_;
  gzFile file_ = nullptr;
};

struct IdxType {
  unsigned code;
  io::FileType type;
};
constexpr std::array<IdxType, 6> kIdxTypes{{{0x08, io::FileType::uint8},
                                            {0x09, io::FileType::int8},
                                            {0x0B, io::FileType::int16},
                                            {0x0C, io::FileType::int32},
                                            {0x0D, io::FileType::float32},
                                            {0x0E, io::FileType::float64}}};

struct IdxHeader {
  io::FileType type;
  Shape shape;
};

IdxHeader read_idx_header(InflatedFile& file, const std::string& path) {
  const auto fail = [&path](const std::string& what) -> void {
    throw Error(Error::Kind::data, fmt::format("{}: {}", path, what));
  };
  const auto byte = [](char c) { return static_cast<unsigned>(static_cast<unsigned char>(c)); };
  const std::string magic = file.read(4);
  if (magic.size() < 4) fail(fmt::format("has {} bytes, too few for an IDX header", magic.size()));
  const auto* const type =
      std::find_if(kIdxTypes.begin(), kIdxTypes.end(),
                   [&](const IdxType& known) { return known.code == byte(magic[2]); });
  const std::size_t rank = byte(magic[3]);
  if (magic[0] != 0 || magic[1] != 0 || type == kIdxTypes.end() || rank == 0 ||
      rank > Shape::kMaxRank) {
    fail(fmt::format("magic number 0x{:02x}{:02x}{:02x}{:02x} is not that of an IDX file",
                     byte(magic[0]), byte(magic[1]), byte(magic[2]), byte(magic[3])));
  }
  const std::string sizes = file.read(4 * rank);
  if (sizes.size() < 4 * rank) fail("ends inside its header");
  IdxHeader header{type->type, {}};
  for (std::size_t d = 0; d < rank; ++d) {
    std::int64_t size = 0;
    for (std::size_t i = 0; i < 4; ++i) size = size << 8 | byte(sizes[4 * d + i]);
    header.shape.push_back(size);
  }
  return header;
}

}  // namespace

std::shared_ptr<const Source> open_array(std::shared_ptr<const io::ArrayFile> file,
                                         const std::string& name) {
  const int index = file->find(name);
  if (index < 0) {
    std::string known;
    for (const io::ArrayInfo& info : file->arrays())
      known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", info.name);
    throw Error(Error::Kind::data, fmt::format("{}: has no array \"{}\"; it holds {}", file->path(),
                                               name, known.empty() ? "none" : known));
  }
  return std::make_shared<ArraySource>(std::move(file), index);
}

std::shared_ptr<const Source> open_idx(const std::string& path) {
  InflatedFile file(path);
  const IdxHeader header = read_idx_header(file, path);
  const std::size_t width = io::size_of(header.type);
  std::int64_t expected = 0;
  if (!io::declared_bytes(header.shape.sizes(), width, expected)) {
    throw Error(Error::Kind::data,
                fmt::format("{}: declares the shape {}, more than memory can hold", path,
                            to_string(header.shape)));
  }
  check_samples(header.shape, path);
  // One byte more tells a file that is too long, however much it would inflate to.
  std::string data = file.read(static_cast<std::size_t>(expected) + 1);
  if (data.size() != static_cast<std::size_t>(expected)) {
    const bool more = data.size() > static_cast<std::size_t>(expected);
    throw Error(Error::Kind::data,
                fmt::format("{}: the header says {} of {}, {} bytes of data; the file holds {}",
                            path, to_string(header.shape), io::name_of(header.type), expected,
                            more ? "more" : std::to_string(data.size())));
  }
  for (std::size_t i = 0; i < data.size(); i += width)
    std::reverse(data.begin() + static_cast<std::ptrdiff_t>(i),
                 data.begin() + static_cast<std::ptrdiff_t>(i + width));
  const Shape& shape = header.shape;
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  io::convert(header.type, reinterpret_cast<const std::byte*>(data.data()), DType::float32,
              values.data(), shape.elements());
  return std::make_shared<MemorySource>(std::move(values), shape[0],
                                        Shape(shape.sizes().subspan(1)),
                                        !io::is_floating(header.type), path);
}

}  // namespace tessera::data
