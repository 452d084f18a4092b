// Placements, and the one place that knows how a dimension is cut.
#include "layouts/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tessera::layouts {

bool Placement::is_replicated() const { return pending == 0 && cut_axes() == 0; }

AxisSet Placement::cut_axes() const {
  AxisSet axes = 0;
  for (const AxisList& list : dims) {
    for (const int axis : list) axes |= AxisSet{1} << axis;
  }
  return axes;
}

int Placement::dim_of(int axis) const {
  for (std::size_t dim = 0; dim < dims.size(); ++dim) {
    if (std::find(dims[dim].begin(), dims[dim].end(), axis) != dims[dim].end()) {
      return static_cast<int>(dim);
    }
  }
  return -1;
}

Interval balanced_part(std::int64_t size, std::int64_t parts, std::int64_t index) {
  const std::int64_t base = size / parts;
  const std::int64_t extra = size % parts;
  return {index * base + std::min(index, extra), base + (index < extra ? 1 : 0)};
}

Interval interval_of(std::int64_t size, const AxisList& axes, const Mesh& mesh, int rank) {
  Interval part{0, size};
  for (const int axis : axes) {
    const Interval inner =
        balanced_part(part.size, mesh.axis_size(axis), mesh.coordinate(rank, axis));
    part = {part.begin + inner.begin, inner.size};
  }
  return part;
}

Box box_of(const Shape& shape, const Placement& placement, const Mesh& mesh, int rank) {
  check(placement.dims.size() == shape.rank(), "placement and shape differ in rank");
  Box box{shape, shape};
  for (std::size_t dim = 0; dim < shape.rank(); ++dim) {
    const Interval part = interval_of(shape[dim], placement.dims[dim], mesh, rank);
    box.begin[dim] = part.begin;
    box.size[dim] = part.size;
  }
  return box;
}

std::string to_string(const Placement& placement, const Mesh& mesh) {
  const auto name = [&mesh](int axis) { return mesh.axis_names()[static_cast<std::size_t>(axis)]; };
  std::vector<std::string> parts;
  for (const AxisList& axes : placement.dims) {
    if (axes.empty()) {
      parts.emplace_back("null");
    } else if (axes.size() == 1) {
      parts.push_back(name(axes.front()));
    } else {
      std::vector<std::string> names;
      for (const int axis : axes) names.push_back(name(axis));
      parts.push_back(fmt::format("[{}]", fmt::join(names, ", ")));
    }
  }
  std::string text = fmt::format("[{}]", fmt::join(parts, ", "));
  if (placement.pending != 0) {
    text += fmt::format(" pending over {}", fmt::join(mesh.names_of(placement.pending), ", "));
  }
  return text;
}

}  // namespace tessera::layouts
