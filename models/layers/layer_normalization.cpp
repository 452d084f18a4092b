// LayerNormalization, RMSNormalization, UnitNormalization.
#include <fmt/format.h>

#include "models/layers/layers.h"
#include "models/layers/norms.h"
#include "runtime/ops/ops.h"

namespace tessera::models::layers {
namespace {

using namespace ops;  // NOLINT: formulas read as formulas

// "axis" as dimensions counted from the front, in the order given; never the batch.
std::vector<std::size_t> feature_dims(const std::vector<std::int64_t>& axes, std::size_t rank) {
  std::vector<std::size_t> dims;
  for (const int dim : positive_dims(axes, rank, "axis")) {
    if (dim == 0) throw Error(Error::Kind::config, "axis: the batch cannot be normalised over");
    dims.push_back(static_cast<std::size_t>(dim));
  }
  return dims;
}

std::vector<int> to_ints(const std::vector<std::size_t>& dims) {
  std::vector<int> result;
  for (const std::size_t dim : dims) result.push_back(static_cast<int>(dim));
  return result;
}

Shape sizes_at(const Shape& shape, const std::vector<std::size_t>& dims) {
  Shape result;
  for (const std::size_t dim : dims) result.push_back(shape[dim]);
  return result;
}

bool is_last(const std::vector<std::size_t>& dims, std::size_t rank) {
  return dims.size() == 1 && dims.front() == rank - 1;
}

// Statistics of 16-bit values are taken in float32.
SymbolicTensor widen(SymbolicTensor x, DType wide) { return x.dtype() == wide ? x : cast(x, wide); }

class LayerNormalization : public TensorLayer {
 public:
  LayerNormalization(LayerInfo info, json::Arguments& config)
      : TensorLayer(std::move(info), MaskRule::keep),
        axes_(config.integers("axis").value_or(std::vector<std::int64_t>{-1})),
        epsilon_(config.number("epsilon", 1e-3, 0.0)),
        center_(config.boolean("center", true)),
        scale_(config.boolean("scale", true)),
        rms_scaling_(config.boolean("rms_scaling", false)),
        gamma_config_(read_weight(config, "gamma", "ones")),
        beta_config_(read_weight(config, "beta", "zeros")) {}

 protected:
  void build(const Shape& input, WeightStore& store) override {
    const Shape shape = sizes_at(input, feature_dims(axes_, input.rank()));
    if (scale_ || rms_scaling_) gamma_ = add_weight(store, "gamma", shape, gamma_config_);
    if (center_ && !rms_scaling_) beta_ = add_weight(store, "beta", shape, beta_config_);
  }

  SymbolicTensor call(Pass& pass, SymbolicTensor x, SymbolicTensor /*mask*/) override {
    const std::vector<std::size_t> dims = feature_dims(axes_, x.rank());
    const SymbolicTensor gamma = gamma_ ? pass.weight(gamma_, wide_dtype()) : SymbolicTensor{};
    const SymbolicTensor beta = beta_ ? pass.weight(beta_, wide_dtype()) : SymbolicTensor{};
    if (is_last(dims, x.rank()) && !rms_scaling_) return fused(x, gamma, beta);
    const DType dtype = x.dtype();
    x = widen(x, wide_dtype());
    const Moments m = moments(x, to_ints(dims));
    // rms_scaling keeps the mean in the values; it is Keras's older name for a scale by the
    // deviation.
    SymbolicTensor y = (rms_scaling_ ? x : m.centered) * rsqrt(m.variance + epsilon_);
    if (gamma) y = y * spread(gamma, dims, x.rank());
    if (beta) y = y + spread(beta, dims, x.rank());
    return widen(y, dtype);
  }

 private:
  SymbolicTensor fused(SymbolicTensor x, SymbolicTensor gamma, SymbolicTensor beta) const {
    return layer_norm(x, gamma, beta, epsilon_);
  }

  std::vector<std::int64_t> axes_;
  double epsilon_;
  bool center_;
  bool scale_;
  bool rms_scaling_;
  WeightConfig gamma_config_;
  WeightConfig beta_config_;
  Weight gamma_;  // sizes of the axes
  Weight beta_;
};

class RmsNormalization : public TensorLayer {
 public:
  RmsNormalization(LayerInfo info, json::Arguments& config)
      : TensorLayer(std::move(info), MaskRule::keep),
        axes_(config.integers("axis").value_or(std::vector<std::int64_t>{-1})),
        epsilon_(config.number("epsilon", 1e-6, 0.0)) {}

 protected:
  void build(const Shape& input, WeightStore& store) override {
    scale_ = add_weight(store, "scale", sizes_at(input, feature_dims(axes_, input.rank())),
                        plain_weight("ones"));
  }

  SymbolicTensor call(Pass& pass, SymbolicTensor x, SymbolicTensor /*mask*/) override {
    const std::vector<std::size_t> dims = feature_dims(axes_, x.rank());
    const SymbolicTensor scale = pass.weight(scale_, wide_dtype());
    if (is_last(dims, x.rank())) return rms_norm(x, scale, epsilon_);
    const DType dtype = x.dtype();
    x = widen(x, wide_dtype());
    const SymbolicTensor squares = mean(square(x), to_ints(dims), true);
    return widen(x * rsqrt(squares + epsilon_) * spread(scale, dims, x.rank()), dtype);
  }

 private:
  std::vector<std::int64_t> axes_;
  double epsilon_;
  Weight scale_;  // sizes of the axes
};

}  // namespace

std::unique_ptr<Layer> make_layer_normalization(LayerInfo info, json::Arguments& config) {
  return std::make_unique<LayerNormalization>(std::move(info), config);
}

std::unique_ptr<Layer> make_rms_normalization(LayerInfo info, json::Arguments& config) {
  return std::make_unique<RmsNormalization>(std::move(info), config);
}

std::unique_ptr<Layer> make_unit_normalization(LayerInfo info, json::Arguments& config) {
  const auto axes = config.integers("axis").value_or(std::vector<std::int64_t>{-1});
  return std::make_unique<FunctionLayer>(std::move(info), MaskRule::keep, [axes](SymbolicTensor x) {
    constexpr double kEpsilon = 1e-12;
    const DType dtype = x.dtype();
    x = widen(x, dtype == DType::float64 ? dtype : DType::float32);
    return widen(unit_norm(x, positive_dims(axes, x.rank(), "axis"), kEpsilon), dtype);
  });
}

}  // namespace tessera::models::layers
