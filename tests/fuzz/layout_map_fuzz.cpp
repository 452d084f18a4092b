// Fuzzes distributions: a config's section and the paths of a model, separated by a zero byte.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "layouts/binding.h"

namespace {

using namespace tessera;

void require(bool condition) {
  if (!condition) std::abort();
}

/// Paths, one a line; shapes follow from their lengths.
std::vector<layouts::Bindable> bindables(std::string_view text) {
  std::vector<layouts::Bindable> result;
  while (!text.empty() && result.size() < 8) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const auto length = static_cast<std::int64_t>(end);
    Shape shape;
    for (std::int64_t dim = 0; dim < length % 4; ++dim) shape.push_back((length + dim) % 7);
    result.push_back({std::string(text.substr(0, end)), shape});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(text.find('\0'), text.size());
  const auto paths = bindables(text.substr(std::min(end + 1, size)));
  json::Problems problems;
  const json::Value section = json::parse(text.substr(0, end), "f.json", problems);
  // A path of a layout map file could name any file of this machine.
  const json::Value* config = section.find("config");
  const json::Value* map = config == nullptr ? nullptr : config->find("layout_map");
  if (!problems.empty() || (map != nullptr && map->is_string())) return 0;

  const layouts::Distribution distribution =
      layouts::read_distribution(&section, "distribution", 12, "", problems);
  if (!problems.empty()) return 0;
  require(distribution.mesh().size() == 12);
  const layouts::Binding binding = layouts::bind(distribution, paths, paths, problems);
  require(binding.variables.size() == paths.size() && binding.outputs.size() == paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    std::int64_t elements = 0;
    for (int rank = 0; rank < distribution.mesh().size(); ++rank) {
      elements +=
          layouts::box_of(paths[i].shape, binding.variables[i].storage, distribution.mesh(), rank)
              .elements();
    }
    const auto parts = distribution.mesh().group_size(binding.variables[i].storage.cut_axes());
    require(elements * parts == paths[i].shape.elements() * distribution.mesh().size());
  }
  return 0;
}
