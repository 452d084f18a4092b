// Activation, ReLU, LeakyReLU, ELU, PReLU, Softmax.
#include <fmt/format.h>

#include "models/activations.h"
#include "models/layers/layers.h"
#include "runtime/ops/ops.h"

namespace tessera::models::layers {
namespace {

std::unique_ptr<Layer> function_layer(LayerInfo info, FunctionLayer::Function function) {
  return std::make_unique<FunctionLayer>(std::move(info), MaskRule::keep, std::move(function));
}

// max(x, 0) + alpha * min(x, 0), alpha learned.
class PReLU : public TensorLayer {
 public:
  PReLU(LayerInfo info, json::Arguments& config)
      : TensorLayer(std::move(info), MaskRule::keep),
        config_(read_weight(config, "alpha", "zeros")),
        shared_axes_(config.integers("shared_axes").value_or(std::vector<std::int64_t>{})) {}

 protected:
  void build(const Shape& input, WeightStore& store) override {
    Shape shape = Shape(input.sizes().subspan(1));
    for (const std::int64_t axis : shared_axes_) {
      if (axis < 1 || axis >= static_cast<std::int64_t>(input.rank())) {
        fail(fmt::format("shared_axes: {} is no dimension of {} after the batch", axis,
                         to_string(input)));
      }
      shape[static_cast<std::size_t>(axis - 1)] = 1;
    }
    alpha_ = add_weight(store, "alpha", shape, config_);
  }

  SymbolicTensor call(Pass& pass, SymbolicTensor x, SymbolicTensor /*mask*/) override {
    using namespace ops;  // NOLINT: formulas read as formulas
    return relu(x) - pass.weight(alpha_, compute_dtype()) * relu(-x);
  }

 private:
  WeightConfig config_;
  std::vector<std::int64_t> shared_axes_;
  Weight alpha_;
};

// Softmax over one dimension or several; masked positions get 0.
class Softmax : public TensorLayer {
 public:
  Softmax(LayerInfo info, json::Arguments& config)
      : TensorLayer(std::move(info), MaskRule::keep),
        axes_(config.integers("axis").value_or(std::vector<std::int64_t>{-1})) {}

 protected:
  SymbolicTensor call(Pass& /*pass*/, SymbolicTensor x, SymbolicTensor mask) override {
    if (mask) {
      while (mask.rank() < x.rank()) mask = ops::expand_dims(mask, -1);
      mask = mask.shape() == x.shape() ? mask : ops::broadcast_to(mask, x.shape());
      const double low = x.dtype() == DType::float16 ? -3e4 : -1e9;
      x = ops::where(mask, x, low);
    }
    const SymbolicTensor result = softmax_over_axes(x);
    return mask ? ops::where(mask, result, 0.0) : result;
  }

 private:
  SymbolicTensor softmax_over_axes(SymbolicTensor x) const {
    using namespace ops;  // NOLINT: formulas read as formulas
    const std::vector<int> dims = positive_dims(axes_, x.rank(), "axis");
    if (dims.size() == 1) return softmax(x, dims.front());
    const SymbolicTensor exponents = exp(x - stop_gradient(max(x, dims, true)));
    return exponents / sum(exponents, dims, true);
  }

  std::vector<std::int64_t> axes_;
};

}  // namespace

std::unique_ptr<Layer> make_activation_layer(LayerInfo info, json::Arguments& config) {
  return function_layer(std::move(info),
                        make_activation(config.required("activation"), config.path_of("activation"),
                                        config.problems()));
}

std::unique_ptr<Layer> make_relu(LayerInfo info, json::Arguments& config) {
  const auto max_value = config.optional_number("max_value", 0.0);
  const double slope = config.number("negative_slope", 0.0, 0.0);
  const double threshold = config.number("threshold", 0.0, 0.0);
  return function_layer(std::move(info),
                        [=](SymbolicTensor x) { return rectify(x, slope, max_value, threshold); });
}

std::unique_ptr<Layer> make_leaky_relu(LayerInfo info, json::Arguments& config) {
  // Keras 2 called the slope alpha.
  const double slope = config.number("negative_slope", config.number("alpha", 0.3));
  return function_layer(std::move(info), [=](SymbolicTensor x) { return leaky_relu(x, slope); });
}

std::unique_ptr<Layer> make_elu(LayerInfo info, json::Arguments& config) {
  const double alpha = config.number("alpha", 1.0);
  return function_layer(std::move(info), [=](SymbolicTensor x) { return elu(x, alpha); });
}

std::unique_ptr<Layer> make_prelu(LayerInfo info, json::Arguments& config) {
  return std::make_unique<PReLU>(std::move(info), config);
}

std::unique_ptr<Layer> make_softmax(LayerInfo info, json::Arguments& config) {
  return std::make_unique<Softmax>(std::move(info), config);
}

}  // namespace tessera::models::layers
