// BatchNormalization: statistics of the global batch in training, moving ones otherwise.
#include <fmt/format.h>

#include "models/layers/layers.h"
#include "models/layers/norms.h"
#include "runtime/ops/ops.h"

namespace tessera::models::layers {
namespace {

using namespace ops;  // NOLINT: formulas read as formulas

class BatchNormalization : public TensorLayer {
 public:
  BatchNormalization(LayerInfo info, json::Arguments& config)
      : TensorLayer(std::move(info), MaskRule::keep),
        momentum_(config.number("momentum", 0.99, 0.0, 1.0)),
        epsilon_(config.number("epsilon", 1e-3, 0.0)),
        center_(config.boolean("center", true)),
        scale_(config.boolean("scale", true)),
        gamma_config_(read_weight(config, "gamma", "ones")),
        beta_config_(read_weight(config, "beta", "zeros")),
        mean_config_(read_weight(config, "moving_mean", "zeros")),
        variance_config_(read_weight(config, "moving_variance", "ones")) {
    const std::vector<std::int64_t> axes =
        config.integers("axis").value_or(std::vector<std::int64_t>{-1});
    if (axes.size() == 1) {
      axis_ = axes.front();
    } else {
      config.problem(*config.value("axis"), "axis", "expected one dimension");
    }
    if (config.boolean("renorm", false)) {
      config.problem(*config.value("renorm"), "renorm",
                     "expected false: batch renormalisation is not supported");
    }
  }

 protected:
  void build(const Shape& input, WeightStore& store) override {
    const std::size_t dim = positive_dim(axis_, input.rank(), "axis");
    if (dim == 0) fail("axis: the batch has no channels");
    const Shape shape{input[dim]};
    if (scale_) gamma_ = add_weight(store, "gamma", shape, gamma_config_);
    if (center_) beta_ = add_weight(store, "beta", shape, beta_config_);
    moving_mean_ = add_weight(store, "moving_mean", shape, mean_config_, {false, {}, {}});
    moving_variance_ =
        add_weight(store, "moving_variance", shape, variance_config_, {false, {}, {}});
  }

  SymbolicTensor call(Pass& pass, SymbolicTensor x, SymbolicTensor mask) override {
    const std::size_t rank = x.rank();
    const std::vector<std::size_t> channel{positive_dim(axis_, rank, "axis")};
    const DType dtype = x.dtype();
    const DType wide = wide_dtype();
    if (dtype != wide) x = cast(x, wide);
    Moments m;
    // A frozen layer works as in inference.
    if (pass.training() && info().trainable) {
      std::vector<int> dims;
      for (std::size_t dim = 0; dim < rank; ++dim) {
        if (dim != channel.front()) dims.push_back(static_cast<int>(dim));
      }
      m = mask ? masked_moments(x, mask, dims) : moments(x, dims);
      move(pass, moving_mean_, m.mean);
      move(pass, moving_variance_, m.variance);
    } else {
      m.variance = spread(pass.weight(moving_variance_, wide), channel, rank);
      m.centered = x - spread(pass.weight(moving_mean_, wide), channel, rank);
    }
    SymbolicTensor factor = rsqrt(m.variance + epsilon_);
    if (gamma_) factor = factor * spread(pass.weight(gamma_, wide), channel, rank);
    SymbolicTensor y = m.centered * factor;
    if (beta_) y = y + spread(pass.weight(beta_, wide), channel, rank);
    return dtype == wide ? y : cast(y, dtype);
  }

 private:
  // Positions that are masked have weight 0.
  static Moments masked_moments(SymbolicTensor x, SymbolicTensor mask,
                                const std::vector<int>& dims) {
    while (mask.rank() < x.rank()) mask = expand_dims(mask, -1);
    const SymbolicTensor weights = broadcast_to(cast(mask, x.dtype()), x.shape());
    const SymbolicTensor count = sum(weights, dims, true) + kKerasEpsilon;
    Moments result;
    result.mean = sum(weights * x, dims, true) / count;
    result.centered = x - result.mean;
    result.variance = sum(weights * square(result.centered), dims, true) / count;
    return result;
  }

  void move(Pass& pass, Weight weight, SymbolicTensor statistic) const {
    const SymbolicTensor old = pass.weight(weight, wide_dtype());
    const SymbolicTensor now = stop_gradient(reshape(statistic, old.shape()));
    pass.update(weight, old * momentum_ + now * (1.0 - momentum_));
  }

  std::int64_t axis_ = -1;
  double momentum_;
  double epsilon_;
  bool center_;
  bool scale_;
  WeightConfig gamma_config_;
  WeightConfig beta_config_;
  WeightConfig mean_config_;
  WeightConfig variance_config_;
  Weight gamma_;  // all: [channels]
  Weight beta_;
  Weight moving_mean_;
  Weight moving_variance_;
};

}  // namespace

std::unique_ptr<Layer> make_batch_normalization(LayerInfo info, json::Arguments& config) {
  return std::make_unique<BatchNormalization>(std::move(info), config);
}

}  // namespace tessera::models::layers
