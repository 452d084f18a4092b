// Add, Subtract, Multiply, Average, Maximum, Minimum, Concatenate.
#include <fmt/format.h>

#include <algorithm>

#include "models/layers/layers.h"
#include "runtime/ops/ops.h"

namespace tessera::models::layers {
namespace {

using namespace ops;  // NOLINT: formulas read as formulas

using Combine = SymbolicTensor (*)(SymbolicTensor a, SymbolicTensor b);

// Folds a list of tensors, which broadcast against each other, with a function of two.
class Merge : public Layer {
 public:
  Merge(LayerInfo info, Combine combine) : Layer(std::move(info)), combine_(combine) {}

 protected:
  std::vector<MaskedTensor> call(Pass& /*pass*/, const CallArguments& arguments) override {
    std::vector<MaskedTensor> inputs = arguments.tensors();
    check_count(inputs.size());
    std::size_t rank = 0;
    bool floating = false;
    for (const MaskedTensor& input : inputs) {
      rank = std::max(rank, input.value.rank());
      floating = floating || is_floating(input.value.dtype());
    }
    SymbolicTensor result;
    for (const MaskedTensor& input : inputs) {
      SymbolicTensor x = input.value;
      if (floating && x.dtype() != compute_dtype()) x = cast(x, compute_dtype());
      // Missing dimensions stand after the batch, as in Keras.
      while (x.rank() < rank) x = expand_dims(x, 1);
      result = result ? combine_(result, x) : x;
    }
    return {{finish(result, inputs.size()), joined_mask(inputs)}};
  }

  virtual void check_count(std::size_t count) const {
    if (count < 2) fail(fmt::format("expected at least 2 inputs, got {}", count));
  }
  virtual SymbolicTensor finish(SymbolicTensor result, std::size_t /*count*/) const {
    return result;
  }

 private:
  // A position counts when it counts in any input; without a mask on all inputs there is none.
  static SymbolicTensor joined_mask(const std::vector<MaskedTensor>& inputs) {
    SymbolicTensor result;
    for (const MaskedTensor& input : inputs) {
      if (!input.mask) return {};
      if (!result) {
        result = input.mask;
      } else if (result.id != input.mask.id) {
        result = logical_or(result, input.mask);
      }
    }
    return result;
  }

  Combine combine_;
};

class Subtract : public Merge {
 public:
  using Merge::Merge;

 protected:
  void check_count(std::size_t count) const override {
    if (count != 2) fail(fmt::format("expected 2 inputs, got {}", count));
  }
};

class Average : public Merge {
 public:
  using Merge::Merge;

 protected:
  SymbolicTensor finish(SymbolicTensor result, std::size_t count) const override {
    return result * (1.0 / static_cast<double>(count));
  }
};

class Concatenate : public Layer {
 public:
  Concatenate(LayerInfo info, json::Arguments& config)
      : Layer(std::move(info)), axis_(config.integer("axis", -1)) {}

 protected:
  std::vector<MaskedTensor> call(Pass& pass, const CallArguments& arguments) override {
    const std::vector<MaskedTensor> inputs = arguments.tensors();
    const std::size_t rank = inputs.front().value.rank();
    const std::size_t dim = positive_dim(axis_, rank, "axis");
    bool floating = false;
    for (const MaskedTensor& input : inputs) {
      floating = floating || is_floating(input.value.dtype());
    }
    std::vector<SymbolicTensor> parts;
    for (const MaskedTensor& input : inputs) {
      SymbolicTensor x = input.value;
      if (floating && x.dtype() != compute_dtype()) x = cast(x, compute_dtype());
      parts.push_back(x);
    }
    const SymbolicTensor result =
        parts.size() == 1 ? parts.front() : concat(parts, static_cast<int>(dim));
    return {{result, joined_mask(pass, inputs, dim)}};
  }

 private:
  // Of every feature of a position any may be present; an input without a mask is present
  // everywhere. Masks lack the last dimension of their values.
  static SymbolicTensor joined_mask(Pass& pass, const std::vector<MaskedTensor>& inputs,
                                    std::size_t dim) {
    const bool masked = std::any_of(inputs.begin(), inputs.end(),
                                    [](const MaskedTensor& x) { return bool{x.mask}; });
    if (!masked) return {};
    std::vector<SymbolicTensor> masks;
    for (const MaskedTensor& input : inputs) {
      masks.push_back(position_mask(pass, input));
    }
    if (dim + 1 < inputs.front().value.rank()) return concat(masks, static_cast<int>(dim));
    SymbolicTensor result = masks.front();
    for (std::size_t i = 1; i < masks.size(); ++i) result = logical_or(result, masks[i]);
    return result;
  }

  // The mask with all dimensions of the value but the last.
  static SymbolicTensor position_mask(Pass& pass, const MaskedTensor& input) {
    const Shape& shape = input.value.shape();
    const Shape positions(shape.sizes().subspan(0, shape.rank() - 1));
    if (!input.mask) return full(pass.builder(), positions, 1.0, DType::boolean);
    SymbolicTensor mask = input.mask;
    if (mask.rank() == shape.rank()) {
      return not_equal(max(cast(mask, DType::int32), {-1}), 0.0);
    }
    while (mask.rank() < positions.rank()) mask = expand_dims(mask, -1);
    return mask.shape() == positions ? mask : broadcast_to(mask, positions);
  }

  std::int64_t axis_;
};

}  // namespace

std::unique_ptr<Layer> make_add(LayerInfo info, json::Arguments& /*config*/) {
  return std::make_unique<Merge>(std::move(info),
                                 [](SymbolicTensor a, SymbolicTensor b) { return a + b; });
}

std::unique_ptr<Layer> make_subtract(LayerInfo info, json::Arguments& /*config*/) {
  return std::make_unique<Subtract>(std::move(info),
                                    [](SymbolicTensor a, SymbolicTensor b) { return a - b; });
}

std::unique_ptr<Layer> make_multiply(LayerInfo info, json::Arguments& /*config*/) {
  return std::make_unique<Merge>(std::move(info),
                                 [](SymbolicTensor a, SymbolicTensor b) { return a * b; });
}

std::unique_ptr<Layer> make_average(LayerInfo info, json::Arguments& /*config*/) {
  return std::make_unique<Average>(std::move(info),
                                   [](SymbolicTensor a, SymbolicTensor b) { return a + b; });
}

std::unique_ptr<Layer> make_maximum(LayerInfo info, json::Arguments& /*config*/) {
  return std::make_unique<Merge>(std::move(info),
                                 [](SymbolicTensor a, SymbolicTensor b) { return maximum(a, b); });
}

std::unique_ptr<Layer> make_minimum(LayerInfo info, json::Arguments& /*config*/) {
  return std::make_unique<Merge>(std::move(info),
                                 [](SymbolicTensor a, SymbolicTensor b) { return minimum(a, b); });
}

std::unique_ptr<Layer> make_concatenate(LayerInfo info, json::Arguments& config) {
  return std::make_unique<Concatenate>(std::move(info), config);
}

}  // namespace tessera::models::layers
