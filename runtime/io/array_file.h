// Files of named arrays: .npz, .npy and .safetensors, read in pieces.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/shape.h"

namespace tessera::io {

/// Element types as files have them (little endian in memory after reading).
enum class FileType : std::uint8_t {
  float16,
  bfloat16,
  float32,
  float64,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  boolean
};
std::string_view name_of(FileType type);
std::size_t size_of(FileType type);
bool is_floating(FileType type);
FileType file_type_of(DType dtype);

struct ArrayInfo {
  std::string name;
  FileType type = FileType::float32;
  Shape shape;
};

/// A file that holds arrays. Opening checks the structure: sizes against the file, names, types,
/// declared sizes before memory is asked for. All errors name the file and, where there is one, the
/// array; they are of the kind given to `open`.
class ArrayFile {
 public:
  virtual ~ArrayFile() = default;
  const std::string& path() const { return path_; }
  const std::vector<ArrayInfo>& arrays() const { return arrays_; }
  /// Index of the array called `name`, or -1.
  int find(std::string_view name) const;
  /// Elements first..first+count-1 (row-major) of an array, converted to `to`: integers to floats
  /// rounded, floats to integers towards zero (callers that must refuse fractions look at the
  /// values as float64 first). float16 to float32 is exact.
  void read(int array, std::int64_t first, std::int64_t count, void* out, DType to) const;

 protected:
  /// Raw elements of the file's type, native byte order.
  virtual void read_raw(int array, std::int64_t first, std::int64_t count,
                        std::byte* out) const = 0;

  std::string path_;
  Error::Kind kind_ = Error::Kind::data;
  std::vector<ArrayInfo> arrays_;
};

/// By content first, then by ending: a zip archive is .npz, "\x93NUMPY" is .npy (one array named
/// ""), else .safetensors. `expected` may force one of "npz", "npy", "safetensors". A .npz member
/// is inflated when first read and kept.
std::unique_ptr<ArrayFile> open_array_file(const std::string& path, Error::Kind kind,
                                           std::string_view expected = "");

/// Bytes of an array of these sizes, or false where they do not fit into 63 bits. Empty dimensions
/// do not excuse the others: a part of the array would have their size.
bool declared_bytes(std::span<const std::int64_t> sizes, std::size_t width, std::int64_t& bytes);

/// Converts `count` elements.
void convert(FileType from, const std::byte* in, DType to, void* out, std::int64_t count);

}  // namespace tessera::io
