#include "runtime/io/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <vector>

#include "base/json.h"
#include "runtime/io/raw_file.h"
#include "runtime/io/write_file.h"

namespace tessera::io {
namespace {

// NumPy caps the dictionary at 10,000 bytes for files that are not trusted.
constexpr std::size_t kMaxDictionary = 10000;

/// Reads NumPy's header dictionary: a Python literal with three known keys, in any order.
class DictionaryReader {
 public:
  DictionaryReader(std::string_view text, const std::string& where, Error::Kind kind)
      : text_(text), where_(where), kind_(kind) {}

  NpyHeader read() {
    NpyHeader header;
    bool descr = false;
    bool order = false;
    bool shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr") {
        read_type(header);
        descr = true;
      } else if (key == "fortran_order") {
        header.column_major = boolean();
        order = true;
      } else if (key == "shape") {
        header.shape = tuple();
        shape = true;
      } else {
        fail(fmt::format("unknown key \"{}\" in the header", json::printable(key)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (!descr || !order || !shape) fail("the header lacks descr, fortran_order or shape");
    return header;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(kind_, fmt::format("{}: {}", where_, what));
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("the header is damaged: '{}' expected at byte {}", c, at_));
  }
  std::string quoted() {
    skip();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) {
      fail(fmt::format("the header is damaged: a quoted word expected at byte {}", at_));
    }
    const char quote = text_[at_++];
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) fail("the header is damaged: a quote is not closed");
    std::string word(text_.substr(at_, end - at_));
    at_ = end + 1;
    return word;
  }
  bool boolean() {
    skip();
    for (const auto& [word, value] :
         {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    fail("the header is damaged: fortran_order is neither True nor False");
  }
  Shape tuple() {
    expect('(');
    std::vector<std::int64_t> sizes;
    while (!accept(')')) {
      skip();
      std::int64_t size = 0;
      const char* end = text_.data() + text_.size();
      const auto [next, error] = std::from_chars(text_.data() + at_, end, size);
      if (error != std::errc() || size < 0) fail("the header is damaged: a size is no number");
      at_ = static_cast<std::size_t>(next - text_.data());
      sizes.push_back(size);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    if (sizes.size() > Shape::kMaxRank) {
      fail(fmt::format("has {} dimensions; at most {} are supported", sizes.size(),
                       Shape::kMaxRank));
    }
    return Shape(sizes);
  }
  void read_type(NpyHeader& header) {
    skip();
    if (at_ < text_.size() && text_[at_] == '[') fail("structured arrays are not supported");
    const std::string code = quoted();
    static const std::map<std::string, FileType> kCodes{
        {"f2", FileType::float16}, {"f4", FileType::float32}, {"f8", FileType::float64},
        {"i1", FileType::int8},    {"i2", FileType::int16},   {"i4", FileType::int32},
        {"i8", FileType::int64},   {"u1", FileType::uint8},   {"u2", FileType::uint16},
        {"u4", FileType::uint32},  {"u8", FileType::uint64},  {"b1", FileType::boolean}};
    const bool known_order =
        !code.empty() && std::string_view("<>|=").find(code[0]) != std::string_view::npos;
    const auto found = kCodes.find(known_order ? code.substr(1) : code);
    if (found == kCodes.end()) {
      fail(fmt::format("elements of type '{}'{} cannot be read; numbers and booleans can",
                       json::printable(code),
                       code.find('O') != std::string::npos ? " (Python objects)" : ""));
    }
    header.type = found->second;
    header.big_endian = code[0] == '>';
  }

  std::string_view text_;
  std::string where_;
  Error::Kind kind_;
  std::size_t at_ = 0;
};

void swap_bytes(std::byte* data, std::size_t size, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::reverse(data + static_cast<std::size_t>(i) * size,
                 data + static_cast<std::size_t>(i + 1) * size);
  }
}

class NpyFile : public ArrayFile {
 public:
  NpyFile(const std::string& path, Error::Kind kind) : file_(path, kind) {
    path_ = path;
    kind_ = kind;
    std::string start(
        static_cast<std::size_t>(std::min<std::int64_t>(file_.size(), kMaxDictionary + 16)), '\0');
    file_.read(0, static_cast<std::int64_t>(start.size()), start.data());
    header_ = parse_npy_header(start, path, kind);
    if (header_.column_major && header_.shape.rank() > 1) {
      throw Error(
          kind, fmt::format("{}: is stored column by column (fortran_order); save a C-ordered copy",
                            path));
    }
    const std::int64_t expected = checked_elements(header_.shape.sizes());
    const auto width = static_cast<std::int64_t>(size_of(header_.type));
    const std::int64_t held = file_.size() - header_.header_bytes;
    if (held / width < expected || held != expected * width) {
      throw Error(
          kind,
          fmt::format("{}: the header says {} {} ({} numbers), the file holds {} bytes of data",
                      path, name_of(header_.type), to_string(header_.shape), expected, held));
    }
    arrays_.push_back({"", header_.type, header_.shape});
  }

 protected:
  void read_raw(int /*array*/, std::int64_t first, std::int64_t count,
                std::byte* out) const override {
    const auto width = static_cast<std::int64_t>(size_of(header_.type));
    file_.read(header_.header_bytes + first * width, count * width, out);
    if (header_.big_endian) swap_bytes(out, size_of(header_.type), count);
  }

 private:
  RawFile file_;
  NpyHeader header_;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view start, const std::string& where, Error::Kind kind) {
  const auto fail = [&](std::string_view what) -> void {
    throw Error(kind, fmt::format("{}: {}", where, what));
  };
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(start[i]); };
  if (start.size() < 10 || !start.starts_with("\x93NUMPY"))
    fail("is not a NumPy array: it is too short or does not start with \\x93NUMPY");
  const int major = byte(6);
  std::size_t length = byte(8) | static_cast<std::size_t>(byte(9)) << 8U;
  std::size_t begin = 10;
  if (major == 2 || major == 3) {
    if (start.size() < 12) fail("ends inside its header");
    length |= static_cast<std::size_t>(byte(10)) << 16U | static_cast<std::size_t>(byte(11)) << 24U;
    begin = 12;
  } else if (major != 1) {
    fail(fmt::format("has format version {}; 1, 2 and 3 can be read", major));
  }
  if (length > kMaxDictionary)
    fail(fmt::format("has a header of {} bytes; at most {} are accepted", length, kMaxDictionary));
  if (start.size() < begin + length) fail("ends inside its header");
  NpyHeader header = DictionaryReader(start.substr(begin, length), where, kind).read();
  header.header_bytes = static_cast<std::int64_t>(begin + length);
  std::int64_t bytes = 0;
  if (!declared_bytes(header.shape.sizes(), size_of(header.type), bytes))
    fail(fmt::format("declares the shape {}, more than memory can hold", to_string(header.shape)));
  return header;
}

void write_npy(const std::string& path, std::span<const float> values, const Shape& shape) {
  std::string sizes;
  for (const std::int64_t size : shape.sizes()) sizes += fmt::format("{},", size);
  std::string head =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", sizes);
  // Magic, version, length and dictionary end at a multiple of 64, with a newline.
  head.resize((10 + head.size() + 1 + 63) / 64 * 64 - 11, ' ');
  head.push_back('\n');
  std::string bytes = "\x93NUMPY\x01";
  bytes.push_back('\0');
  bytes.push_back(static_cast<char>(head.size() & 0xFFU));
  bytes.push_back(static_cast<char>(head.size() >> 8U));
  bytes += head;
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  write_text_file(path, bytes);
}

std::unique_ptr<ArrayFile> open_npy(const std::string& path, Error::Kind kind) {
  return std::make_unique<NpyFile>(path, kind);
}

}  // namespace tessera::io
