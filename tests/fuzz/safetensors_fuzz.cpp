// Fuzzes safetensors: what opens has tensors that tile the file and can be read.
#include <cstdint>
#include <vector>

#include "runtime/io/safetensors.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  static const fuzz::MemoryFile kFile;
  try {
    const auto file = io::open_safetensors(kFile.hold({reinterpret_cast<const char*>(data), size}),
                                           Error::Kind::weights);
    std::size_t held = 0;
    for (std::size_t i = 0; i < file->arrays().size(); ++i) {
      const io::ArrayInfo& info = file->arrays()[i];
      const std::int64_t count = info.shape.elements();
      std::vector<double> values(static_cast<std::size_t>(count));
      file->read(static_cast<int>(i), 0, count, values.data(), DType::float64);
      held += values.size() * io::size_of(info.type);
      fuzz::require(file->find(info.name) == static_cast<int>(i));
    }
    std::size_t header = 0;
    for (std::size_t i = 8; i-- > 0;) header = header << 8U | data[i];
    fuzz::require(8 + header + held == size);
  } catch (const Error& error) {
    fuzz::require(error.kind == Error::Kind::weights);
  }
  return 0;
}
