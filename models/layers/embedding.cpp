// Embedding: rows of a table at integer ids. ReversibleEmbedding: from features back to ids too.
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
    input_dim_ = config.integer("input_dim", 1, 1, kMaxSize);
    output_dim_ = config.integer("output_dim", 1, 1, kMaxSize);
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
    SymbolicTensor ids = only_input(arguments);
    pass.limit_ids(ids, input_dim_);
    if (ids.dtype() != DType::int32 && ids.dtype() != DType::int64) {
      ids = ops::cast(ids, DType::int32);
    }
    // Rows are cast after the look-up: there are fewer of them than in the table.
    SymbolicTensor rows = ops::embedding(ids, pass.weight(embeddings_, info().policy.variable));
    if (rows.dtype() != compute_dtype()) rows = ops::cast(rows, compute_dtype());
    return {{rows, mask_zero_ ? ops::not_equal(ids, 0.0) : SymbolicTensor{}}};
  }

  SymbolicTensor only_input(const CallArguments& arguments) const {
    const std::vector<MaskedTensor> inputs = arguments.tensors();
    if (inputs.size() != 1) fail(fmt::format("takes one input, got {}", inputs.size()));
    return inputs.front().value;
  }

  WeightConfig config_;
  bool mask_zero_;
  std::int64_t input_dim_ = 1;
  std::int64_t output_dim_ = 1;
  Weight embeddings_;  // [input_dim, output_dim]
};

// With reverse=True: logits of all ids, by the transposed table or by a kernel of its own.
class ReversibleEmbedding : public Embedding {
 public:
  ReversibleEmbedding(LayerInfo info, json::Arguments& config)
      : Embedding(std::move(info), config),
        tie_weights_(config.boolean("tie_weights", true)),
        soft_cap_(config.optional_number("logit_soft_cap", 0.0)) {
    const json::Value* dtype = config.value("reverse_dtype");
    if (dtype == nullptr || dtype->is_null()) return;
    reverse_dtype_ = dtype->is_string() ? dtype_from_name(dtype->string) : std::nullopt;
    if (!reverse_dtype_ || !is_floating(*reverse_dtype_)) {
      config.problem(*dtype, "reverse_dtype", "expected the name of a floating dtype");
    }
  }

 protected:
  void build(const CallArguments& arguments, WeightStore& store) override {
    Embedding::build(arguments, store);
    if (tie_weights_) return;
    reverse_ = add_weight(store, "reverse_embeddings", Shape{output_dim_, input_dim_}, config_);
  }

  std::vector<MaskedTensor> call(Pass& pass, const CallArguments& arguments) override {
    const Argument* reverse = arguments.find("reverse");
    const bool reversed =
        reverse != nullptr && reverse->constant != nullptr && reverse->constant->boolean;
    return reversed ? std::vector<MaskedTensor>{{logits(pass, only_input(arguments)), {}}}
                    : Embedding::call(pass, arguments);
  }

 private:
  SymbolicTensor logits(Pass& pass, SymbolicTensor x) const {
    using namespace ops;  // NOLINT: formulas read as formulas
    const DType dtype = reverse_dtype_.value_or(compute_dtype());
    if (x.dtype() != dtype) x = cast(x, dtype);
    if (x.shape().back() != output_dim_) {
      fail(fmt::format("reverse: the last dimension of {} is not output_dim, {}",
                       to_string(x.shape()), output_dim_));
    }
    SymbolicTensor y;
    if (tie_weights_) {
      std::string letters;
      for (std::size_t i = 0; i + 1 < x.rank(); ++i) {
        letters += static_cast<char>('a' + static_cast<int>(i));
      }
      y = einsum(fmt::format("{0}y,zy->{0}z", letters), x, pass.weight(embeddings_, dtype));
    } else {
      y = matmul(x, pass.weight(reverse_, dtype));
    }
    return soft_cap_ ? tanh(y / *soft_cap_) * *soft_cap_ : y;
  }

  bool tie_weights_;
  std::optional<double> soft_cap_;
  std::optional<DType> reverse_dtype_;
  Weight reverse_;  // [output_dim, input_dim]
};

}  // namespace

std::unique_ptr<Layer> make_embedding(LayerInfo info, json::Arguments& config) {
  return std::make_unique<Embedding>(std::move(info), config);
}

std::unique_ptr<Layer> make_reversible_embedding(LayerInfo info, json::Arguments& config) {
  return std::make_unique<ReversibleEmbedding>(std::move(info), config);
}

}  // namespace tessera::models::layers
