// Layers that act in training only (dropout and noise), ActivityRegularization, Masking.
#include <fmt/format.h>

#include <cmath>

#include "models/layers/layers.h"
#include "runtime/ops/ops.h"

namespace tessera::models::layers {
namespace {

using namespace ops;  // NOLINT: formulas read as formulas

std::optional<std::uint64_t> read_seed(json::Arguments& config) {
  const json::Value* seed = config.value("seed");
  if (seed == nullptr || seed->kind != json::Kind::integer) return std::nullopt;
  return static_cast<std::uint64_t>(seed->integer);
}

// Dropout and its kin: a shape of independent draws, broadcast over the input.
class Dropout : public TensorLayer {
 public:
  // Shape of the draws for an input; a whole copy of the input's shape where nothing is shared.
  using NoiseShape = std::function<Shape(const Shape& input)>;

  Dropout(LayerInfo info, json::Arguments& config, NoiseShape noise_shape)
      : TensorLayer(std::move(info), MaskRule::keep),
        rate_(config.number("rate", 0.5, 0.0, 1.0)),
        seed_(read_seed(config)),
        noise_shape_(std::move(noise_shape)) {}

 protected:
  SymbolicTensor call(Pass& pass, SymbolicTensor x, SymbolicTensor /*mask*/) override {
    if (!pass.training() || rate_ == 0.0) return x;
    return drop(x, kept(pass, x));
  }
  // `kept`: boolean, of the draws' shape.
  virtual SymbolicTensor drop(SymbolicTensor x, SymbolicTensor kept) const {
    if (rate_ == 1.0) return x * 0.0;
    return where(kept, x * (1.0 / (1.0 - rate_)), 0.0);
  }
  double rate() const { return rate_; }

 private:
  SymbolicTensor kept(Pass& pass, SymbolicTensor x) const {
    const Shape shape = noise_shape_ ? noise_shape_(x.shape()) : x.shape();
    const SymbolicTensor draws =
        random_uniform(pass.builder(), shape, pass.stream(*this, seed_), DType::float32);
    return greater_equal(draws, rate_);
  }

  double rate_;
  std::optional<std::uint64_t> seed_;
  NoiseShape noise_shape_;
};

// "noise_shape": sizes, null where the input's size counts.
Dropout::NoiseShape read_noise_shape(json::Arguments& config) {
  const json::Value* value = config.value("noise_shape");
  if (value == nullptr || value->is_null()) return {};
  std::vector<std::int64_t> sizes;
  bool good = value->is_array();
  for (const json::Value& size : value->array) {
    good = good && (size.is_null() || (size.kind == json::Kind::integer && size.integer >= 1));
    sizes.push_back(size.is_null() ? -1 : size.integer);
  }
  if (!good) {
    config.problem(*value, "noise_shape", "expected an array of sizes or null");
    return {};
  }
  return [sizes](const Shape& input) {
    if (sizes.size() != input.rank()) {
      throw Error(Error::Kind::config, fmt::format("noise_shape has {} dimensions, the input {}",
                                                   sizes.size(), to_string(input)));
    }
    Shape shape = input;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      // The first size is the batch: the whole of it unless draws are shared over it.
      if (sizes[i] == 1 || (i > 0 && sizes[i] >= 0)) shape[i] = sizes[i];
      if (shape[i] != 1 && shape[i] != input[i]) {
        throw Error(Error::Kind::config,
                    fmt::format("noise_shape: size {} of dimension {} does not fit the input {}",
                                sizes[i], i, to_string(input)));
      }
    }
    return shape;
  };
}

// Whole channels are dropped: one draw for all positions in space.
std::unique_ptr<Layer> spatial_dropout(LayerInfo info, json::Arguments& config, std::size_t rank) {
  const bool channels_first =
      rank > 3 && config.choice("data_format", "channels_last",
                                {"channels_last", "channels_first"}) == "channels_first";
  return std::make_unique<Dropout>(
      std::move(info), config, [rank, channels_first](const Shape& input) {
        if (input.rank() != rank) {
          throw Error(Error::Kind::config, fmt::format("expected an input of {} dimensions, got {}",
                                                       rank, to_string(input)));
        }
        Shape shape = input;
        for (std::size_t i = 1; i < rank; ++i) {
          if (i != (channels_first ? 1 : rank - 1)) shape[i] = 1;
        }
        return shape;
      });
}

// Klambauer et al., "Self-Normalizing Neural Networks" (2017): dropped values become the negative
// saturation value of selu, and mean and variance are kept.
class AlphaDropout : public Dropout {
 public:
  using Dropout::Dropout;

 protected:
  SymbolicTensor drop(SymbolicTensor x, SymbolicTensor kept) const override {
    constexpr double kSaturation = -1.6732632423543772848 * 1.0507009873554804934;
    const double scale =
        1.0 / std::sqrt((1.0 - rate()) * (1.0 + rate() * kSaturation * kSaturation));
    const double offset = -scale * kSaturation * rate();
    return where(kept, x, kSaturation) * scale + offset;
  }
};

// Adds noise, or multiplies by 1 + noise; normal, mean 0.
class GaussianLayer : public TensorLayer {
 public:
  GaussianLayer(LayerInfo info, double deviation, bool multiply, std::optional<std::uint64_t> seed)
      : TensorLayer(std::move(info), MaskRule::keep),
        deviation_(deviation),
        multiply_(multiply),
        seed_(seed) {}

 protected:
  SymbolicTensor call(Pass& pass, SymbolicTensor x, SymbolicTensor /*mask*/) override {
    if (!pass.training() || deviation_ == 0.0) return x;
    const SymbolicTensor noise =
        random_normal(pass.builder(), x.shape(), pass.stream(*this, seed_), x.dtype()) * deviation_;
    return multiply_ ? x * (noise + 1.0) : x + noise;
  }

 private:
  double deviation_;
  bool multiply_;
  std::optional<std::uint64_t> seed_;
};

// Positions whose features all equal a value become 0 and are masked from here on.
class Masking : public Layer {
 public:
  Masking(LayerInfo info, json::Arguments& config)
      : Layer(std::move(info)), mask_value_(config.number("mask_value", 0.0)) {}

 protected:
  std::vector<MaskedTensor> call(Pass& /*pass*/, const CallArguments& arguments) override {
    const std::vector<MaskedTensor> inputs = arguments.tensors();
    const SymbolicTensor x = inputs.front().value;
    if (inputs.size() != 1 || x.rank() < 2) fail("takes one input of at least 2 dimensions");
    const SymbolicTensor differs = cast(not_equal(x, mask_value_), DType::float32);
    const SymbolicTensor present = not_equal(sum(differs, {-1}), 0.0);
    return {{x * cast(expand_dims(present, -1), x.dtype()), present}};
  }

 private:
  double mask_value_;
};

}  // namespace

std::unique_ptr<Layer> make_dropout(LayerInfo info, json::Arguments& config) {
  config.required("rate");
  auto noise_shape = read_noise_shape(config);
  return std::make_unique<Dropout>(std::move(info), config, std::move(noise_shape));
}

std::unique_ptr<Layer> make_alpha_dropout(LayerInfo info, json::Arguments& config) {
  config.required("rate");
  auto noise_shape = read_noise_shape(config);
  return std::make_unique<AlphaDropout>(std::move(info), config, std::move(noise_shape));
}

std::unique_ptr<Layer> make_spatial_dropout_1d(LayerInfo info, json::Arguments& config) {
  return spatial_dropout(std::move(info), config, 3);
}
std::unique_ptr<Layer> make_spatial_dropout_2d(LayerInfo info, json::Arguments& config) {
  return spatial_dropout(std::move(info), config, 4);
}
std::unique_ptr<Layer> make_spatial_dropout_3d(LayerInfo info, json::Arguments& config) {
  return spatial_dropout(std::move(info), config, 5);
}

std::unique_ptr<Layer> make_gaussian_noise(LayerInfo info, json::Arguments& config) {
  config.required("stddev");
  const double deviation = config.number("stddev", 0.0, 0.0);
  return std::make_unique<GaussianLayer>(std::move(info), deviation, false, read_seed(config));
}

std::unique_ptr<Layer> make_gaussian_dropout(LayerInfo info, json::Arguments& config) {
  config.required("rate");
  const double rate = config.number("rate", 0.0, 0.0, std::nextafter(1.0, 0.0));
  return std::make_unique<GaussianLayer>(std::move(info), std::sqrt(rate / (1.0 - rate)), true,
                                         read_seed(config));
}

std::unique_ptr<Layer> make_activity_regularization(LayerInfo info, json::Arguments& config) {
  const double l1 = config.number("l1", 0.0, 0.0);
  const double l2 = config.number("l2", 0.0, 0.0);
  auto layer =
      std::make_unique<FunctionLayer>(std::move(info), MaskRule::keep, FunctionLayer::Function{});
  if (l1 != 0.0 || l2 != 0.0) {
    layer->set_activity_regularizer([=](SymbolicTensor x) {
      // Sums over many values are kept in float32.
      const SymbolicTensor wide = x.dtype() == DType::float64 ? x : cast(x, DType::float32);
      SymbolicTensor loss;
      if (l1 != 0.0) loss = sum(abs(wide)) * l1;
      if (l2 != 0.0) {
        const SymbolicTensor squares = sum(square(wide)) * l2;
        loss = loss ? loss + squares : squares;
      }
      return loss;
    });
  }
  return layer;
}

std::unique_ptr<Layer> make_masking(LayerInfo info, json::Arguments& config) {
  return std::make_unique<Masking>(std::move(info), config);
}

}  // namespace tessera::models::layers
