// Dense: x times a kernel over the last dimension, plus bias, activated.
#include <fmt/format.h>

#include "models/activations.h"
#include "models/layers/layers.h"
#include "runtime/ops/ops.h"

namespace tessera::models::layers {
namespace {

class Dense : public TensorLayer {
 public:
  Dense(LayerInfo info, json::Arguments& config)
      : TensorLayer(std::move(info), MaskRule::keep),
        activation_(make_activation(config.value("activation"), config.path_of("activation"),
                                    config.problems())),
        use_bias_(config.boolean("use_bias", true)),
        kernel_config_(read_weight(config, "kernel", "glorot_uniform")),
        bias_config_(read_weight(config, "bias", "zeros")) {
    config.required("units");
    units_ = config.integer("units", 1, 1, kMaxSize);
    // A low-rank adaptation would add weights that this layer does not have.
    if (const json::Value* rank = config.value("lora_rank"); rank != nullptr && !rank->is_null()) {
      config.problem(*rank, "lora_rank", "expected null: low-rank adaptation is not supported");
    }
  }

 protected:
  void build(const Shape& input, WeightStore& store) override {
    if (input.rank() < 2) {
      fail(fmt::format("expected an input of at least 2 dimensions, got {}", to_string(input)));
    }
    kernel_ = add_weight(store, "kernel", Shape{input.back(), units_}, kernel_config_);
    if (use_bias_) bias_ = add_weight(store, "bias", Shape{units_}, bias_config_);
  }

  SymbolicTensor call(Pass& pass, SymbolicTensor x, SymbolicTensor /*mask*/) override {
    using namespace ops;  // NOLINT: formulas read as formulas
    SymbolicTensor y = matmul(x, pass.weight(kernel_, x.dtype()));
    if (bias_) y = y + pass.weight(bias_, y.dtype());
    return activation_ ? activation_(y) : y;
  }

 private:
  Activation activation_;
  bool use_bias_;
  WeightConfig kernel_config_;
  WeightConfig bias_config_;
  std::int64_t units_ = 1;
  Weight kernel_;  // [features, units]
  Weight bias_;    // [units]
};

}  // namespace

std::unique_ptr<Layer> make_dense(LayerInfo info, json::Arguments& config) {
  return std::make_unique<Dense>(std::move(info), config);
}

}  // namespace tessera::models::layers
