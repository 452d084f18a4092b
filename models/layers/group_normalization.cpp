// GroupNormalization: statistics of each sample over groups of channels.
#include <fmt/format.h>

#include "models/layers/layers.h"
#include "models/layers/norms.h"
#include "runtime/ops/ops.h"

namespace tessera::models::layers {
namespace {

using namespace ops;  // NOLINT: formulas read as formulas

class GroupNormalization : public TensorLayer {
 public:
  GroupNormalization(LayerInfo info, json::Arguments& config)
      : TensorLayer(std::move(info), MaskRule::keep),
        groups_(config.integer("groups", 32)),
        axis_(config.integer("axis", -1)),
        epsilon_(config.number("epsilon", 1e-3, 0.0)),
        center_(config.boolean("center", true)),
        scale_(config.boolean("scale", true)),
        gamma_config_(read_weight(config, "gamma", "ones")),
        beta_config_(read_weight(config, "beta", "zeros")) {
    if (groups_ < 1 && groups_ != -1) {
      config.problem(*config.value("groups"), "groups",
                     "expected a number of groups, or -1 for one group a channel");
      groups_ = 1;
    }
  }

 protected:
  void build(const Shape& input, WeightStore& store) override {
    const std::int64_t channels = input[channel_dim(input.rank())];
    if (channels % groups(channels) != 0) {
      fail(fmt::format("{} channels of {} cannot form {} groups", channels, to_string(input),
                       groups_));
    }
    if (scale_) gamma_ = add_weight(store, "gamma", Shape{channels}, gamma_config_);
    if (center_) beta_ = add_weight(store, "beta", Shape{channels}, beta_config_);
  }

  SymbolicTensor call(Pass& pass, SymbolicTensor x, SymbolicTensor /*mask*/) override {
    const Shape shape = x.shape();
    const std::size_t axis = channel_dim(shape.rank());
    const DType dtype = x.dtype();
    const DType wide = wide_dtype();
    if (dtype != wide) x = cast(x, wide);
    const std::int64_t count = groups(shape[axis]);
    Shape grouped;
    std::vector<int> dims;  // all but the batch and the groups
    for (std::size_t dim = 0; dim < shape.rank(); ++dim) {
      if (dim == axis) grouped.push_back(count);
      if (dim > 0) dims.push_back(static_cast<int>(grouped.rank()));
      grouped.push_back(dim == axis ? shape[dim] / count : shape[dim]);
    }
    const Moments m = moments(reshape(x, grouped), dims);
    SymbolicTensor y = reshape(m.centered * rsqrt(m.variance + epsilon_), shape);
    if (gamma_) y = y * spread(pass.weight(gamma_, wide), {axis}, shape.rank());
    if (beta_) y = y + spread(pass.weight(beta_, wide), {axis}, shape.rank());
    return dtype == wide ? y : cast(y, dtype);
  }

 private:
  std::size_t channel_dim(std::size_t rank) const {
    const std::size_t dim = positive_dim(axis_, rank, "axis");
    if (dim == 0) fail("axis: the batch has no channels");
    return dim;
  }
  std::int64_t groups(std::int64_t channels) const { return groups_ == -1 ? channels : groups_; }

  std::int64_t groups_;
  std::int64_t axis_;
  double epsilon_;
  bool center_;
  bool scale_;
  WeightConfig gamma_config_;
  WeightConfig beta_config_;
  Weight gamma_;  // [channels]
  Weight beta_;
};

}  // namespace

std::unique_ptr<Layer> make_group_normalization(LayerInfo info, json::Arguments& config) {
  return std::make_unique<GroupNormalization>(std::move(info), config);
}

}  // namespace tessera::models::layers
