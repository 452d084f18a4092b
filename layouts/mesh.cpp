// The device mesh: ranks in row-major order along named axes.
#include "layouts/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace tessera::layouts {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(Error::Kind::config, message); }

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void check_names(const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) refuse(fmt::format("name of mesh axis {} is empty", i));
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i)) {
      refuse(fmt::format("mesh axis name \"{}\" occurs twice in axis_names", names[i]));
    }
  }
}

}  // namespace

Mesh::Mesh() : Mesh({1}, {"batch"}) {}

Mesh::Mesh(std::vector<std::int64_t> shape, std::vector<std::string> axis_names)
    : shape_(std::move(shape)), axis_names_(std::move(axis_names)) {
  if (shape_.empty() || axis_names_.empty()) {
    refuse(fmt::format("Shape and axis_names cannot be empty. Received: shape={}, axis_names=[{}]",
                       shape_text(shape_), fmt::join(axis_names_, ", ")));
  }
  if (shape_.size() != axis_names_.size()) {
    refuse(fmt::format(
        "Shape and axis_names should have same size. Received: shape={}, axis_names=[{}]",
        shape_text(shape_), fmt::join(axis_names_, ", ")));
  }
  if (shape_.size() > static_cast<std::size_t>(kMaxAxes)) {
    refuse(fmt::format("a mesh has {} axes; at most {} are supported", shape_.size(), kMaxAxes));
  }
  check_names(axis_names_);

  strides_.resize(shape_.size());
  std::int64_t size = 1;
  for (std::size_t axis = shape_.size(); axis-- > 0;) {
    if (shape_[axis] < 1) {
      refuse(fmt::format("mesh shape {} has size {} for axis \"{}\"; sizes must be at least 1",
                         shape_text(shape_), shape_[axis], axis_names_[axis]));
    }
    strides_[axis] = static_cast<int>(size);
    if (shape_[axis] > std::numeric_limits<int>::max() / size) {
      refuse(fmt::format("mesh shape {} has more ranks than can be counted", shape_text(shape_)));
    }
    size *= shape_[axis];
  }
  size_ = static_cast<int>(size);
}

std::optional<int> Mesh::find_axis(std::string_view name) const {
  const auto found = std::find(axis_names_.begin(), axis_names_.end(), name);
  if (found == axis_names_.end()) return std::nullopt;
  return static_cast<int>(found - axis_names_.begin());
}

int Mesh::coordinate(int rank, int axis) const {
  return rank / strides_[static_cast<std::size_t>(axis)] % axis_size(axis);
}

std::vector<int> Mesh::group(int rank, AxisSet axes) const {
  std::vector<int> ordered;
  for (int axis = 0; axis < this->axes(); ++axis) {
    if ((axes >> axis & 1U) != 0) ordered.push_back(axis);
  }
  return group(rank, ordered);
}

std::vector<int> Mesh::group(int rank, const std::vector<int>& ordered_axes) const {
  int origin = rank;
  for (const int axis : ordered_axes) {
    origin -= coordinate(rank, axis) * strides_[static_cast<std::size_t>(axis)];
  }
  std::vector<int> members{origin};
  for (const int axis : ordered_axes) {
    std::vector<int> longer;
    longer.reserve(members.size() * static_cast<std::size_t>(axis_size(axis)));
    for (const int member : members) {
      for (int i = 0; i < axis_size(axis); ++i) {
        longer.push_back(member + i * strides_[static_cast<std::size_t>(axis)]);
      }
    }
    members = std::move(longer);
  }
  return members;
}

int Mesh::group_size(AxisSet axes) const {
  int product = 1;
  for (int axis = 0; axis < this->axes(); ++axis) {
    if ((axes >> axis & 1U) != 0) product *= axis_size(axis);
  }
  return product;
}

std::vector<std::string> Mesh::names_of(AxisSet axes) const {
  std::vector<std::string> names;
  for (int axis = 0; axis < this->axes(); ++axis) {
    if ((axes >> axis & 1U) != 0) names.push_back(axis_names_[static_cast<std::size_t>(axis)]);
  }
  return names;
}

}  // namespace tessera::layouts
