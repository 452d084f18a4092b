// Embedding: rows of a table at integer ids.
#include <fmt/format.h>

#include "models/layers/layers.h"
#include "runtime/ops/ops.h"

namespace tessera::models::layers {
namespace {

class Embedding : public Layer {
 public:
  Embedding(LayerInfo info, json::Arguments& config)
      : Layer(std::move(info)),
        config_(read_weight(config, "embeddings", "random_uniform")),
        mask_zero_(config.boolean("mask_zero", false)) {
    config.required("input_dim");
    config.required("output_dim");
    input_dim_ = config.integer("input_dim", 1, 1);
    output_dim_ = config.integer("output_dim", 1, 1);
    if (const json::Value* rank = config.value("lora_rank"); rank != nullptr && !rank->is_null()) {
      config.problem(*rank, "lora_rank", "expected null: low-rank adaptation is not supported");
    }
  }

 protected:
  // Ids must keep their exact values: 16-bit floats cannot hold them.
  bool casts_inputs() const override { return false; }

  void build(const CallArguments& /*arguments*/, WeightStore& store) override {
    embeddings_ = add_weight(store, "embeddings", Shape{input_dim_, output_dim_}, config_);
  }

  std::vector<MaskedTensor> call(Pass& pass, const CallArguments& arguments) override {
    const std::vector<MaskedTensor> inputs = arguments.tensors();
    if (inputs.size() != 1) fail(fmt::format("takes one input, got {}", inputs.size()));
    SymbolicTensor ids = inputs.front().value;
    pass.limit_ids(ids, input_dim_);
    if (ids.dtype() != DType::int32 && ids.dtype() != DType::int64) {
      ids = ops::cast(ids, DType::int32);
    }
    // Rows are cast after the look-up: there are fewer of them than in the table.
    SymbolicTensor rows = ops::embedding(ids, pass.weight(embeddings_, info().policy.variable));
    if (rows.dtype() != compute_dtype()) rows = ops::cast(rows, compute_dtype());
    return {{rows, mask_zero_ ? ops::not_equal(ids, 0.0) : SymbolicTensor{}}};
  }

 private:
  WeightConfig config_;
  bool mask_zero_;
  std::int64_t input_dim_ = 1;
  std::int64_t output_dim_ = 1;
  Weight embeddings_;  // [input_dim, output_dim]
};

}  // namespace

std::unique_ptr<Layer> make_embedding(LayerInfo info, json::Arguments& config) {
  return std::make_unique<Embedding>(std::move(info), config);
}

}  // namespace tessera::models::layers
