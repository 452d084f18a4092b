// How a distribution places data, variables, outputs and optimizer state.
#include "layouts/distribution.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tessera::layouts {
namespace {

Placement placement_by_rule(const Rule& rule, std::string_view path, const Shape& shape,
                            const Mesh& mesh) {
  if (rule.axes.size() > shape.rank()) {
    throw Error(
        Error::Kind::config,
        fmt::format("rule \"{}\" has {} entries in its layout {}, but \"{}\" of shape {} has "
                    "{} dimensions",
                    rule.key, rule.axes.size(), to_string(rule.axes), path, to_string(shape),
                    shape.rank()));
  }
  return placement_of(rule.axes, shape.rank(), mesh);
}

}  // namespace

Distribution Distribution::data_parallel(Mesh mesh, Zero zero) {
  Distribution result;
  result.map_ = LayoutMap(std::move(mesh));
  result.zero_ = zero;
  return result;
}

Distribution Distribution::model_parallel(LayoutMap map, std::string_view batch_axis, Zero zero) {
  Distribution result;
  result.map_ = std::move(map);
  result.data_parallel_ = false;
  result.zero_ = zero;
  if (!batch_axis.empty()) {
    const std::optional<int> axis = result.mesh().find_axis(batch_axis);
    if (!axis) {
      throw Error(Error::Kind::config,
                  "batch_dim_name: " + unknown_axis(batch_axis, result.mesh()));
    }
    result.batch_axis_ = *axis;
  }
  return result;
}

const std::string& Distribution::batch_axis_name() const {
  return mesh().axis_names()[static_cast<std::size_t>(batch_axis_)];
}

Placement Distribution::data_placement(const Shape& shape) const {
  if (shape.empty()) {
    throw Error(Error::Kind::config, "a scalar has no batch dimension to cut");
  }
  Placement placement = Placement::replicated(shape.rank());
  placement.dims.front().push_back(batch_axis_);
  return placement;
}

Placement Distribution::variable_placement(std::string_view path, const Shape& shape) const {
  const std::optional<std::size_t> rule = map_.resolve(path);
  if (!rule) return Placement::replicated(shape.rank());
  return placement_by_rule(map_.rules()[*rule], path, shape, mesh());
}

std::optional<Placement> Distribution::output_placement(std::string_view path,
                                                        const Shape& shape) const {
  const std::optional<std::size_t> rule = map_.resolve_output(path);
  if (!rule) return std::nullopt;
  return placement_by_rule(map_.rules()[*rule], path, shape, mesh());
}

std::optional<std::size_t> zero_dimension(const Shape& shape, const Placement& placement, int axis,
                                          const Mesh& mesh) {
  const AxisSet used = placement.cut_axes() | placement.pending;
  if (mesh.axis_size(axis) == 1 || (used >> axis & 1U) != 0) return std::nullopt;
  std::optional<std::size_t> best;
  for (std::size_t dim = 0; dim < shape.rank(); ++dim) {
    AxisSet cuts = 0;
    for (const int cut : placement.dims[dim]) cuts |= AxisSet{1} << cut;
    // A cut over an axis of size 1 is none.
    if (mesh.group_size(cuts) == 1 && shape[dim] > (best ? shape[*best] : 1)) best = dim;
  }
  return best;
}

Placement Distribution::cut_by_zero(const Shape& shape, const Placement& placement) const {
  Placement result = placement;
  if (const auto dim = zero_dimension(shape, placement, zero_.axis, mesh())) {
    result.dims[*dim].push_back(zero_.axis);
  }
  return result;
}

Placement Distribution::parameter_storage(const Shape& shape, const Placement& compute) const {
  return zero_.stage >= 3 ? cut_by_zero(shape, compute) : compute;
}

Placement Distribution::gradient_storage(const Shape& shape, const Placement& compute) const {
  return zero_.stage >= 2 ? cut_by_zero(shape, compute) : compute;
}

Placement Distribution::slot_storage(const Shape& shape, const Placement& compute) const {
  return zero_.stage >= 1 ? cut_by_zero(shape, compute) : compute;
}

}  // namespace tessera::layouts
