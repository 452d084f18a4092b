#include "runtime/io/array_file.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <limits>
#include <type_traits>

#include "runtime/io/npy.h"
#include "runtime/io/raw_file.h"
#include "runtime/io/safetensors.h"

namespace tessera::io {
namespace {

struct TypeRow {
  FileType type;
  std::string_view name;
  std::size_t size;
  bool floating;
};

constexpr std::array<TypeRow, 13> kTypes{{
    {FileType::float16, "float16", 2, true},
    {FileType::bfloat16, "bfloat16", 2, true},
    {FileType::float32, "float32", 4, true},
    {FileType::float64, "float64", 8, true},
    {FileType::int8, "int8", 1, false},
    {FileType::int16, "int16", 2, false},
    {FileType::int32, "int32", 4, false},
    {FileType::int64, "int64", 8, false},
    {FileType::uint8, "uint8", 1, false},
    {FileType::uint16, "uint16", 2, false},
    {FileType::uint32, "uint32", 4, false},
    {FileType::uint64, "uint64", 8, false},
    {FileType::boolean, "bool", 1, false},
}};

const TypeRow& row_of(FileType type) { return kTypes[static_cast<std::size_t>(type)]; }

template <typename T>
T load(const std::byte* in, std::int64_t index) {
  T value;
  std::memcpy(&value, in + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

template <typename To>
To to_integer(double value) {
  // Out of range is undefined for a plain cast; such values are refused by the callers' checks.
  const double low = static_cast<double>(std::numeric_limits<To>::min());
  const double high = static_cast<double>(std::numeric_limits<To>::max());
  if (!(value >= low)) return std::numeric_limits<To>::min();
  if (value >= high) return std::numeric_limits<To>::max();
  return static_cast<To>(value);
}

template <typename From, typename To>
To converted(From value) {
  if constexpr (std::is_same_v<From, To>) {
    return value;
  } else if constexpr (std::is_same_v<From, Float16> || std::is_same_v<From, BFloat16>) {
    return converted<float, To>(to_float(value));
  } else if constexpr (std::is_same_v<To, Float16>) {
    return to_float16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return to_bfloat16(static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return to_integer<To>(static_cast<double>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <typename From, typename To>
void convert_all(const std::byte* in, void* out, std::int64_t count) {
  To* target = static_cast<To*>(out);
  for (std::int64_t i = 0; i < count; ++i) target[i] = converted<From, To>(load<From>(in, i));
}

template <typename From>
void convert_from(const std::byte* in, DType to, void* out, std::int64_t count) {
  switch (to) {
    case DType::float32:
      return convert_all<From, float>(in, out, count);
    case DType::float64:
      return convert_all<From, double>(in, out, count);
    case DType::bfloat16:
      return convert_all<From, BFloat16>(in, out, count);
    case DType::float16:
      return convert_all<From, Float16>(in, out, count);
    case DType::int32:
      return convert_all<From, std::int32_t>(in, out, count);
    case DType::int64:
      return convert_all<From, std::int64_t>(in, out, count);
    case DType::uint8:
      return convert_all<From, std::uint8_t>(in, out, count);
    case DType::boolean: {
      auto* target = static_cast<std::uint8_t*>(out);
      for (std::int64_t i = 0; i < count; ++i) {
        target[i] = converted<From, double>(load<From>(in, i)) != 0.0 ? 1 : 0;
      }
      return;
    }
  }
}

}  // namespace

std::string_view name_of(FileType type) { return row_of(type).name; }
std::size_t size_of(FileType type) { return row_of(type).size; }
bool is_floating(FileType type) { return row_of(type).floating; }

FileType file_type_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return FileType::float32;
    case DType::float64:
      return FileType::float64;
    case DType::bfloat16:
      return FileType::bfloat16;
    case DType::float16:
      return FileType::float16;
    case DType::int32:
      return FileType::int32;
    case DType::int64:
      return FileType::int64;
    case DType::uint8:
      return FileType::uint8;
    case DType::boolean:
      return FileType::boolean;
  }
  return FileType::float32;
}

void convert(FileType from, const std::byte* in, DType to, void* out, std::int64_t count) {
  switch (from) {
    case FileType::float16:
      return convert_from<Float16>(in, to, out, count);
    case FileType::bfloat16:
      return convert_from<BFloat16>(in, to, out, count);
    case FileType::float32:
      return convert_from<float>(in, to, out, count);
    case FileType::float64:
      return convert_from<double>(in, to, out, count);
    case FileType::int8:
      return convert_from<std::int8_t>(in, to, out, count);
    case FileType::int16:
      return convert_from<std::int16_t>(in, to, out, count);
    case FileType::int32:
      return convert_from<std::int32_t>(in, to, out, count);
    case FileType::int64:
      return convert_from<std::int64_t>(in, to, out, count);
    case FileType::uint8:
    case FileType::boolean:
      return convert_from<std::uint8_t>(in, to, out, count);
    case FileType::uint16:
      return convert_from<std::uint16_t>(in, to, out, count);
    case FileType::uint32:
      return convert_from<std::uint32_t>(in, to, out, count);
    case FileType::uint64:
      return convert_from<std::uint64_t>(in, to, out, count);
  }
}

int ArrayFile::find(std::string_view name) const {
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    if (arrays_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

void ArrayFile::read(int array, std::int64_t first, std::int64_t count, void* out, DType to) const {
  // Pieces bound the extra memory that a conversion takes.
  constexpr std::int64_t kPiece = 1 << 18;
  const FileType type = arrays_[static_cast<std::size_t>(array)].type;
  std::vector<std::byte> raw(static_cast<std::size_t>(std::min(count, kPiece)) * size_of(type));
  auto* target = static_cast<std::byte*>(out);
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t piece = std::min(kPiece, count - done);
    read_raw(array, first + done, piece, raw.data());
    convert(type, raw.data(), to, target + static_cast<std::size_t>(done) * tessera::size_of(to),
            piece);
    done += piece;
  }
}

bool declared_bytes(std::span<const std::int64_t> sizes, std::size_t width, std::int64_t& bytes) {
  bytes = static_cast<std::int64_t>(width);
  bool empty = false;
  for (const std::int64_t size : sizes) {
    empty = empty || size == 0;
    if (size < 0 || (size > 0 && __builtin_mul_overflow(bytes, size, &bytes))) return false;
  }
  if (empty) bytes = 0;
  return true;
}

std::unique_ptr<ArrayFile> open_array_file(const std::string& path, Error::Kind kind,
                                           std::string_view expected) {
  const RawFile file(path, kind);
  std::array<char, 8> start{};
  file.read(0, std::min<std::int64_t>(file.size(), 8), start.data());
  const std::string_view head(start.data(), start.size());
  const auto refuse = [&](std::string_view what) {
    throw Error(kind, fmt::format("{}: {} (the file has {} bytes)", path, what, file.size()));
  };
  const bool zip = head.starts_with("PK\x03\x04") || head.starts_with("PK\x05\x06");
  const bool npy = head.starts_with("\x93NUMPY");
  if (expected.empty()) {
    expected = zip ? "npz" : npy ? "npy" : "safetensors";
    if (!zip && !npy && path.ends_with(".npz")) expected = "npz";
    if (!zip && !npy && path.ends_with(".npy")) expected = "npy";
  }
  if (expected == "npz") {
    if (!zip) refuse("not an .npz archive: it does not start as a zip file does");
    return open_npz(path, kind);
  }
  if (expected == "npy") {
    if (!npy) refuse("not an .npy file: it does not start with \\x93NUMPY");
    return open_npy(path, kind);
  }
  return open_safetensors(path, kind);
}

}  // namespace tessera::io
