// The device mesh: how ranks are arranged along named axes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::layouts {

/// A set of mesh axes: bit i stands for axis i.
using AxisSet = std::uint32_t;

/// Shape and axis names; ranks 0..size-1 fill it in row-major order. A value type.
class Mesh {
 public:
  static constexpr int kMaxAxes = 16;

  /// A mesh of one rank and no axis that matters: shape [1], axis "batch".
  Mesh();
  /// Throws config: empty, sizes below 1, different lengths, repeated or empty names, more than
  /// kMaxAxes axes. The messages start as Keras's do ("Shape and axis_names cannot be empty",
  /// "Shape and axis_names should have same size").
  Mesh(std::vector<std::int64_t> shape, std::vector<std::string> axis_names);

  const std::vector<std::int64_t>& shape() const { return shape_; }
  const std::vector<std::string>& axis_names() const { return axis_names_; }
  int axes() const { return static_cast<int>(shape_.size()); }
  int size() const { return size_; }
  int axis_size(int axis) const { return static_cast<int>(shape_[static_cast<std::size_t>(axis)]); }
  std::optional<int> find_axis(std::string_view name) const;

  /// Position of a rank along one axis.
  int coordinate(int rank, int axis) const;
  /// Ranks that differ from `rank` only along `axes`, in row-major order of those axes (lower axis
  /// index outer).
  std::vector<int> group(int rank, AxisSet axes) const;
  /// The same with an explicit order of the axes, outer first: the order in which parts of a
  /// dimension follow each other.
  std::vector<int> group(int rank, const std::vector<int>& ordered_axes) const;
  /// Product of the sizes of `axes`.
  int group_size(AxisSet axes) const;
  std::vector<std::string> names_of(AxisSet axes) const;

  friend bool operator==(const Mesh& a, const Mesh& b) = default;

 private:
  std::vector<std::int64_t> shape_;
  std::vector<std::string> axis_names_;
  std::vector<int> strides_;
  int size_ = 1;
};

}  // namespace tessera::layouts
