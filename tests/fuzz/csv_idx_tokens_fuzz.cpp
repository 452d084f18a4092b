// Fuzzes CSV, IDX, token shards and texts: the first byte chooses the reader, the rest is the file.
#include <cstdint>
#include <numeric>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/formats.h"
#include "tests/fuzz/memory_file.h"

namespace {

using namespace tessera;

void read_all(const data::Source& source) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(source.rows()));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  std::vector<std::int64_t> values(rows.size() *
                                   static_cast<std::size_t>(source.sample_elements()));
  source.read(rows, DType::int64, values.data());
  for (const std::int64_t row : rows) {
    if (source.sample_elements() > 0)
      fuzz::require(!source.place(row, source.sample_elements() - 1).empty());
  }
  const data::Violation found = data::find_violation(source, {.classes = 10}, 0, source.rows());
  fuzz::require(found.row < source.rows() && (found.row < 0) == found.message.empty());
}

void read_table(const std::string& path, char separator, bool header) {
  const data::CsvTable table(path, separator, header);
  std::vector<std::size_t> columns(table.columns().size());
  std::iota(columns.begin(), columns.end(), std::size_t{0});
  const auto source = table.select(columns, false);
  fuzz::require(source->rows() == table.rows() && source->rows() > 0);
  read_all(*source);
}

void read_windows(const data::Windows& windows) {
  fuzz::require(windows.x->rows() == windows.y->rows() && windows.x->rows() > 0);
  read_all(*windows.x);
  read_all(*windows.y);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile kFile;
  if (size == 0) return 0;
  const unsigned choice = data[0];
  const std::string& path = kFile.hold({reinterpret_cast<const char*>(data) + 1, size - 1});
  const std::int64_t length = 1 + choice / 16;
  try {
    switch (choice % 8) {
      case 0:
        read_table(path, ',', true);
        break;
      case 1:
        read_table(path, ';', false);
        break;
      case 2:
        read_all(*data::open_idx(path));
        break;
      case 3:
        read_windows(data::open_tokens({path, path}, "", length));
        break;
      case 4:
        read_windows(data::open_tokens({path}, "uint16", length));
        break;
      case 5:
        read_windows(data::open_tokens({path}, "uint32", length));
        break;
      case 6:
        read_windows(data::open_text(path, "char", length, 0.25, 1.0));
        break;
      default:
        read_windows(data::open_text(path, "byte", length, 0.0, 0.5));
    }
  } catch (const Error& error) {
    fuzz::require(error.kind == Error::Kind::data);
  }
  return 0;
}
