// Dot: contraction of two tensors over one dimension of each, sample by sample.
#include <fmt/format.h>

#include "models/layers/layers.h"
#include "models/layers/norms.h"
#include "runtime/ops/ops.h"

namespace tessera::models::layers {
namespace {

class Dot : public Layer {
 public:
  Dot(LayerInfo info, json::Arguments& config)
      : Layer(std::move(info)), normalize_(config.boolean("normalize", false)) {
    const json::Value* at = config.required("axes");
    axes_ = config.integers("axes").value_or(std::vector<std::int64_t>{-1});
    if (axes_.size() == 1) axes_.push_back(axes_.front());
    if (axes_.size() != 2 && at != nullptr) {
      config.problem(*at, "axes", "expected one dimension, or one for each of the two inputs");
      axes_ = {-1, -1};
    }
  }

 protected:
  std::vector<MaskedTensor> call(Pass& /*pass*/, const CallArguments& arguments) override {
    const std::vector<MaskedTensor> inputs = arguments.tensors();
    if (inputs.size() != 2) fail(fmt::format("expected 2 inputs, got {}", inputs.size()));
    SymbolicTensor a = inputs[0].value;
    SymbolicTensor b = inputs[1].value;
    const std::size_t axis_a = positive_dim(axes_[0], a.rank(), "axes");
    const std::size_t axis_b = positive_dim(axes_[1], b.rank(), "axes");
    if (axis_a == 0 || axis_b == 0) fail("axes: the batch cannot be contracted");
    if (a.shape()[axis_a] != b.shape()[axis_b]) {
      fail(fmt::format("dimension {} of {} and dimension {} of {} differ", axis_a,
                       to_string(a.shape()), axis_b, to_string(b.shape())));
    }
    if (normalize_) {
      a = unit_norm(a, {static_cast<int>(axis_a)}, kKerasEpsilon);
      b = unit_norm(b, {static_cast<int>(axis_b)}, kKerasEpsilon);
    }
    SymbolicTensor result = ops::einsum(equation(a.rank(), axis_a, b.rank(), axis_b), a, b);
    if (result.rank() == 1) result = ops::expand_dims(result, -1);
    return {{result, {}}};
  }

 private:
  // 'a' is the batch, 'z' what is contracted; the dimensions that are left follow in order.
  static std::string equation(std::size_t rank_a, std::size_t axis_a, std::size_t rank_b,
                              std::size_t axis_b) {
    char next = 'b';
    std::string result = "a";
    const auto letters = [&](std::size_t rank, std::size_t axis) {
      std::string text = "a";
      for (std::size_t i = 1; i < rank; ++i) {
        text += i == axis ? 'z' : next;
        if (i != axis) result += next++;
      }
      return text;
    };
    const std::string a = letters(rank_a, axis_a);
    const std::string b = letters(rank_b, axis_b);
    return fmt::format("{},{}->{}", a, b, result);
  }

  bool normalize_;
  std::vector<std::int64_t> axes_;
};

}  // namespace

std::unique_ptr<Layer> make_dot(LayerInfo info, json::Arguments& config) {
  return std::make_unique<Dot>(std::move(info), config);
}

}  // namespace tessera::models::layers
