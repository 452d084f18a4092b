// Fuzzes models: what can be read declares weights whose shapes and paths are sound.
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "models/model.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  json::Problems problems;
  const json::Value value =
      json::parse({reinterpret_cast<const char*>(data), size}, "m.json", problems);
  if (!problems.empty()) return 0;
  try {
    const auto model = models::Model::read(value, "model", "float32", problems);
    fuzz::require((model == nullptr) == !problems.empty());
    if (model == nullptr) return 0;
    graph::VariableTable table;
    model->declare(table, problems);
    if (!problems.empty()) return 0;
    fuzz::require(model->weights().size() == table.size());
    std::set<std::string> paths;
    for (const graph::VariableId id : model->weights()) {
      fuzz::require(paths.insert(table[id].path).second && !table[id].path.empty());
      for (const std::int64_t dim : table[id].shape.sizes()) fuzz::require(dim >= 0);
    }
    fuzz::require(!model->inputs().empty() && !model->outputs().empty());
    for (const models::LayerRow& row : model->rows()) fuzz::require(row.parameters >= 0);
    model->output_paths(3);
  } catch (const Error& error) {
    fuzz::require(error.kind == Error::Kind::config);
  }
  return 0;
}
