// Distribution: what a run asks to know how data, variables, outputs and optimizer state are cut.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/shape.h"
#include "layouts/layout_map.h"
#include "layouts/mesh.h"
#include "layouts/placement.h"

namespace tessera::layouts {

/// ZeRO: optimizer state (stage 1), gradients too (2), parameters too (3) are cut over one axis.
struct Zero {
  int stage = 0;  // 0: off
  int axis = 0;
};

/// A pure value: mesh, batch axis, rules, switches.
class Distribution {
 public:
  /// Data parallel on a mesh of one rank.
  Distribution() = default;
  /// Keras's DataParallel: every variable is whole on every rank, data is cut over the mesh's first
  /// axis.
  static Distribution data_parallel(Mesh mesh, Zero zero = {});
  /// Keras's ModelParallel on the map's mesh. Throws config when `batch_axis` is no axis of it;
  /// empty: the first one.
  static Distribution model_parallel(LayoutMap map, std::string_view batch_axis = {},
                                     Zero zero = {});

  const Mesh& mesh() const { return map_.mesh(); }
  bool is_data_parallel() const { return data_parallel_; }
  int batch_axis() const { return batch_axis_; }
  const std::string& batch_axis_name() const;
  const LayoutMap& map() const { return map_; }
  const Zero& zero() const { return zero_; }
  /// Ranks along the batch axis.
  int replicas() const { return mesh().axis_size(batch_axis_); }

  /// [batch, ...]: the first dimension is cut over the batch axis. Throws config for a scalar.
  Placement data_placement(const Shape& shape) const;
  /// What the rules say about a variable, without ZeRO: how it is used in computation. Throws
  /// config when several rules match or the layout is longer than the shape (`bind` reports these
  /// with positions).
  Placement variable_placement(std::string_view path, const Shape& shape) const;
  /// Placement that a rule asks for a layer output "<layer path>/output"; nullopt without a rule.
  /// Throws as above.
  std::optional<Placement> output_placement(std::string_view path, const Shape& shape) const;

  /// How a variable is stored that is used as `compute`: cut further under ZeRO stage 3.
  Placement parameter_storage(const Shape& shape, const Placement& compute) const;
  /// How a reduced gradient is placed: cut further under stages 2 and 3.
  Placement gradient_storage(const Shape& shape, const Placement& compute) const;
  /// How an optimizer slot of the variable's shape is stored: cut further under stages 1 to 3.
  Placement slot_storage(const Shape& shape, const Placement& compute) const;

  bool allow_unused_rules = false;
  bool require_divisible = false;

 private:
  Placement cut_by_zero(const Shape& shape, const Placement& placement) const;

  LayoutMap map_;
  int batch_axis_ = 0;
  bool data_parallel_ = true;
  Zero zero_;
};

/// The dimension that ZeRO cuts over `axis`: the largest that is not cut yet, the first of equals;
/// nullopt when the axis cuts the tensor already or has size 1, and where no free dimension has
/// more than one element.
std::optional<std::size_t> zero_dimension(const Shape& shape, const Placement& placement, int axis,
                                          const Mesh& mesh);

/// Reads a config's `distribution` section (interface 2.1) for a job of `ranks` ranks. `section`
/// null or nullptr: DataParallel over all ranks. Paths of layout map files resolve against
/// `folder`. All problems are collected; the result is then not to be used.
Distribution read_distribution(const json::Value* section, const std::string& path, int ranks,
                               const std::string& folder, json::Problems& problems);

}  // namespace tessera::layouts
