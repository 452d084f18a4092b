// Arrays of .npz, .npy and .safetensors files, and IDX files, as sources.
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "runtime/data/formats.h"

namespace tessera::data {
namespace {

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

/// A whole file, inflated where it is gzip, capped by `limit` bytes.
std::string read_maybe_gzip(const std::string& path, std::size_t limit) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr)
    throw Error(Error::Kind::data,
                fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  std::string bytes;
  std::array<char, 1 << 16> piece{};
  int got = 0;
  while ((got = gzread(file, piece.data(), piece.size())) > 0 && bytes.size() <= limit) {
    bytes.append(piece.data(), static_cast<std::size_t>(got));
  }
  int code = Z_OK;
  const std::string reason = gzerror(file, &code);
  gzclose(file);
  if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
    throw Error(Error::Kind::data,
                fmt::format("{}: is damaged after {} bytes: {}", path, bytes.size(), reason));
  }
  if (bytes.size() > limit)
    throw Error(Error::Kind::data, fmt::format("{}: holds more than {} bytes", path, limit));
  return bytes;
}

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
  const std::string bytes = read_maybe_gzip(path, std::size_t{1} << 34U);
  const auto byte = [&bytes](std::size_t i) {
    return static_cast<unsigned>(static_cast<unsigned char>(bytes[i]));
  };
  const auto fail = [&path](const std::string& what) -> void {
    throw Error(Error::Kind::data, fmt::format("{}: {}", path, what));
  };
  if (bytes.size() < 4) fail(fmt::format("has {} bytes, too few for an IDX header", bytes.size()));
  const IdxType* type = nullptr;
  for (const IdxType& known : kIdxTypes) {
    if (known.code == byte(2)) type = &known;
  }
  const std::size_t rank = byte(3);
  if (byte(0) != 0 || byte(1) != 0 || type == nullptr || rank == 0 || rank > Shape::kMaxRank) {
    fail(fmt::format("magic number 0x{:02x}{:02x}{:02x}{:02x} is not that of an IDX file", byte(0),
                     byte(1), byte(2), byte(3)));
  }
  if (bytes.size() < 4 + 4 * rank) fail("ends inside its header");
  Shape shape;
  for (std::size_t d = 0; d < rank; ++d) {
    std::int64_t size = 0;
    for (std::size_t i = 0; i < 4; ++i) size = size << 8 | byte(4 + 4 * d + i);
    shape.push_back(size);
  }
  const std::size_t begin = 4 + 4 * rank;
  const std::size_t width = io::size_of(type->type);
  std::int64_t expected = 0;
  if (__builtin_mul_overflow(checked_elements(shape.sizes()), static_cast<std::int64_t>(width),
                             &expected) ||
      static_cast<std::size_t>(expected) != bytes.size() - begin) {
    fail(fmt::format("the header says {} ({} bytes of data), the file holds {} (of {} in all)",
                     to_string(shape), expected, bytes.size() - begin, bytes.size()));
  }
  std::string data = bytes.substr(begin);
  for (std::size_t i = 0; i < data.size(); i += width)
    std::reverse(data.begin() + static_cast<std::ptrdiff_t>(i),
                 data.begin() + static_cast<std::ptrdiff_t>(i + width));
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  io::convert(type->type, reinterpret_cast<const std::byte*>(data.data()), DType::float32,
              values.data(), shape.elements());
  return std::make_shared<MemorySource>(std::move(values), shape[0],
                                        Shape(shape.sizes().subspan(1)),
                                        !io::is_floating(type->type), path);
}

}  // namespace tessera::data
