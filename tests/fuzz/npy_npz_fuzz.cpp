// Fuzzes NumPy's files: what opens must be readable whole, and fit into the file.
#include <cstdint>
#include <vector>

#include "runtime/io/array_file.h"
#include "runtime/io/npy.h"
#include "tests/fuzz/memory_file.h"

namespace {

using namespace tessera;

void read_all(const io::ArrayFile& file) {
  for (std::size_t i = 0; i < file.arrays().size(); ++i) {
    const io::ArrayInfo& info = file.arrays()[i];
    std::vector<float> values(static_cast<std::size_t>(info.shape.elements()));
    file.read(static_cast<int>(i), 0, info.shape.elements(), values.data(), DType::float32);
    fuzz::require(file.find(info.name) >= 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile kFile;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const auto npy = io::open_npy(kFile.hold(bytes), Error::Kind::data);
    const io::ArrayInfo& info = npy->arrays().front();
    fuzz::require(static_cast<std::size_t>(info.shape.elements()) * io::size_of(info.type) < size);
    read_all(*npy);
  } catch (const Error& error) {
    fuzz::require(error.kind == Error::Kind::data);
  }
  try {
    read_all(*io::open_npz(kFile.hold(bytes), Error::Kind::data));
  } catch (const Error& error) {
    fuzz::require(error.kind == Error::Kind::data);
  }
  return 0;
}
