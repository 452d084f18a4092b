#include "runtime/io/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "base/json.h"
#include "runtime/io/raw_file.h"
#include "runtime/io/write_file.h"

namespace tessera::io {
namespace {

constexpr std::int64_t kMaxHeader = 100'000'000;

constexpr std::array<std::pair<std::string_view, FileType>, 13> kCodes{{
    {"F16", FileType::float16},
    {"BF16", FileType::bfloat16},
    {"F32", FileType::float32},
    {"F64", FileType::float64},
    {"I8", FileType::int8},
    {"I16", FileType::int16},
    {"I32", FileType::int32},
    {"I64", FileType::int64},
    {"U8", FileType::uint8},
    {"U16", FileType::uint16},
    {"U32", FileType::uint32},
    {"U64", FileType::uint64},
    {"BOOL", FileType::boolean},
}};

class SafetensorsFile : public ArrayFile {
 public:
  SafetensorsFile(const std::string& path, Error::Kind kind) : file_(path, kind) {
    path_ = path;
    kind_ = kind;
    if (file_.size() < 8)
      fail(fmt::format("has {} bytes, too few for a safetensors header", file_.size()));
    std::array<unsigned char, 8> length_bytes{};
    file_.read(0, 8, length_bytes.data());
    std::uint64_t length = 0;
    for (std::size_t i = 8; i-- > 0;) length = length << 8U | length_bytes[i];
    if (length > static_cast<std::uint64_t>(kMaxHeader) ||
        static_cast<std::int64_t>(length) > file_.size() - 8) {
      fail(
          fmt::format("declares a header of {} bytes, but the file has {}: not a safetensors file, "
                      "or cut short",
                      length, file_.size()));
    }
    std::string text(length, '\0');
    file_.read(8, static_cast<std::int64_t>(length), text.data());
    if (!text.starts_with('{'))
      fail("is not a safetensors file: its header does not start with '{'");
    data_begin_ = 8 + static_cast<std::int64_t>(length);
    read_header(text);
  }

 protected:
  void read_raw(int array, std::int64_t first, std::int64_t count, std::byte* out) const override {
    const auto width =
        static_cast<std::int64_t>(size_of(arrays_[static_cast<std::size_t>(array)].type));
    file_.read(data_begin_ + offsets_[static_cast<std::size_t>(array)] + first * width,
               count * width, out);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(kind_, fmt::format("{}: {}", path_, what));
  }

  void read_header(const std::string& text) {
    json::Problems problems;
    const json::Value header =
        json::parse(text, path_, problems, {.bytes = std::size_t{100'000'000}, .depth = 8});
    if (!problems.empty()) fail("the header is not sound JSON: " + problems.list().front().message);
    for (const json::Member& member : header.object) {
      if (member.key == "__metadata__") {
        check_metadata(member.value);
      } else {
        add_tensor(member.key, member.value);
      }
    }
    check_tiling();
  }

  void check_metadata(const json::Value& metadata) const {
    bool good = metadata.is_object();
    for (const json::Member& member : metadata.object) good = good && member.value.is_string();
    if (!good) fail("\"__metadata__\" is not a map from strings to strings");
  }

  void add_tensor(const std::string& name, const json::Value& value) {
    const std::string shown = json::printable(name);
    const json::Value* type = value.find("dtype");
    const json::Value* shape = value.find("shape");
    const json::Value* offsets = value.find("data_offsets");
    if (type == nullptr || shape == nullptr || offsets == nullptr || !type->is_string() ||
        !shape->is_array() || !offsets->is_array() || offsets->array.size() != 2) {
      fail(fmt::format("tensor \"{}\" lacks dtype, shape or data_offsets", shown));
    }
    const auto* const code = std::find_if(
        kCodes.begin(), kCodes.end(), [&](const auto& row) { return row.first == type->string; });
    if (code == kCodes.end())
      fail(fmt::format("tensor \"{}\" has the type {}, which is not supported", shown,
                       json::printable(type->string)));
    std::vector<std::int64_t> sizes;
    for (const json::Value& size : shape->array) {
      if (size.kind != json::Kind::integer || size.integer < 0)
        fail(fmt::format("tensor \"{}\" has a shape that is no list of sizes", shown));
      sizes.push_back(size.integer);
    }
    if (sizes.size() > Shape::kMaxRank)
      fail(fmt::format("tensor \"{}\" has {} dimensions; at most {} are supported", shown,
                       sizes.size(), Shape::kMaxRank));
    std::int64_t bytes = 0;
    if (!declared_bytes(sizes, size_of(code->second), bytes))
      fail(fmt::format("tensor \"{}\" declares a shape that overflows", shown));
    const json::Value& begin = offsets->array[0];
    const json::Value& end = offsets->array[1];
    if (begin.kind != json::Kind::integer || end.kind != json::Kind::integer || begin.integer < 0 ||
        end.integer < begin.integer || end.integer > file_.size() - data_begin_) {
      fail(fmt::format("tensor \"{}\" lies at bytes {} to {} of {} bytes of data", shown,
                       begin.integer, end.integer, file_.size() - data_begin_));
    }
    if (end.integer - begin.integer != bytes) {
      fail(fmt::format("tensor \"{}\": shape {} of {} needs {} bytes, its offsets give {}", shown,
                       to_string(Shape(sizes)), type->string, bytes, end.integer - begin.integer));
    }
    arrays_.push_back({name, code->second, Shape(sizes)});
    offsets_.push_back(begin.integer);
    ends_.push_back(end.integer);
  }

  /// The tensors must tile the data exactly.
  void check_tiling() const {
    std::vector<std::size_t> order(offsets_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      return std::pair(offsets_[a], ends_[a]) < std::pair(offsets_[b], ends_[b]);
    });
    std::int64_t at = 0;
    for (const std::size_t i : order) {
      if (offsets_[i] != at)
        fail(fmt::format("tensor \"{}\" starts at byte {}, expected {}: a gap or an overlap",
                         json::printable(arrays_[i].name), offsets_[i], at));
      at = ends_[i];
    }
    if (at != file_.size() - data_begin_) {
      fail(fmt::format("the tensors end at byte {} of the data, the file has {}", at,
                       file_.size() - data_begin_));
    }
  }

  RawFile file_;
  std::int64_t data_begin_ = 0;
  std::vector<std::int64_t> offsets_;
  std::vector<std::int64_t> ends_;
};

std::string_view code_of(FileType type) {
  for (const auto& [code, known] : kCodes) {
    if (known == type) return code;
  }
  return "";
}

void write_all(int file, const std::string& path, std::int64_t offset,
               std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      throw Error(Error::Kind::internal,
                  fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
}

/// Without spaces, as the format's own library writes it.
std::string header_text(const std::vector<ArrayInfo>& tensors,
                        const std::vector<std::size_t>& order,
                        const std::vector<std::int64_t>& offsets) {
  std::string text = "{";
  for (const std::size_t i : order) {
    const ArrayInfo& tensor = tensors[i];
    const std::int64_t end =
        offsets[i] + tensor.shape.elements() * static_cast<std::int64_t>(size_of(tensor.type));
    text +=
        fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                    text.size() > 1 ? "," : "", json::dump(json::make(tensor.name), -1),
                    code_of(tensor.type), fmt::join(tensor.shape.sizes(), ","), offsets[i], end);
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

std::unique_ptr<ArrayFile> open_safetensors(const std::string& path, Error::Kind kind) {
  return std::make_unique<SafetensorsFile>(path, kind);
}

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<ArrayInfo> tensors)
    : path_(std::move(path)),
      tensors_(std::move(tensors)),
      order_(tensors_.size()),
      offsets_(tensors_.size()) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::stable_sort(order_.begin(), order_.end(), [this](std::size_t a, std::size_t b) {
    const std::size_t wide = size_of(tensors_[a].type);
    const std::size_t other = size_of(tensors_[b].type);
    return wide != other ? wide > other : tensors_[a].name < tensors_[b].name;
  });
  std::int64_t at = 0;
  for (const std::size_t i : order_) {
    offsets_[i] = at;
    at += tensors_[i].shape.elements() * static_cast<std::int64_t>(size_of(tensors_[i].type));
  }
  const std::string text = header_text(tensors_, order_, offsets_);
  temporary_ = fmt::format("{}.{:08x}.tmp", path_, std::random_device{}());
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file_ < 0) {
    throw Error(Error::Kind::internal,
                fmt::format("{}: cannot be created: {}", temporary_, std::strerror(errno)));
  }
  try {
    write_header(text);
  } catch (...) {  // no destructor runs for what was not constructed
    discard();
    throw;
  }
  for (std::int64_t& offset : offsets_) offset += 8 + static_cast<std::int64_t>(text.size());
}

SafetensorsWriter::~SafetensorsWriter() { discard(); }

void SafetensorsWriter::discard() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
  file_ = -1;
}

void SafetensorsWriter::write_header(const std::string& text) {
  std::array<std::byte, 8> length{};
  for (std::size_t i = 0; i < 8; ++i)
    length[i] = static_cast<std::byte>(text.size() >> (8U * i) & 0xFFU);
  write_all(file_, temporary_, 0, length);
  write_all(file_, temporary_, 8, std::as_bytes(std::span(text)));
}

void SafetensorsWriter::write(std::size_t index, std::int64_t offset,
                              std::span<const std::byte> bytes) {
  write_all(file_, temporary_, offsets_[index] + offset, bytes);
}

void SafetensorsWriter::finish() {
  const auto fail = [this](const char* what) {
    throw Error(Error::Kind::internal,
                fmt::format("{}: {}: {}", path_, what, std::strerror(errno)));
  };
  if (::fsync(file_) != 0) fail("cannot be flushed to disk");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be renamed into place");
  ::close(file_);
  file_ = -1;
  const std::size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  sync_folder(folder);
}

}  // namespace tessera::io
