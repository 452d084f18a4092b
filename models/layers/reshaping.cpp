// Flatten, Reshape, Permute, RepeatVector, Identity.
#include <fmt/format.h>

#include "models/layers/layers.h"
#include "runtime/ops/ops.h"

namespace tessera::models::layers {
namespace {

std::unique_ptr<Layer> function_layer(LayerInfo info, MaskRule rule,
                                      FunctionLayer::Function function) {
  return std::make_unique<FunctionLayer>(std::move(info), rule, std::move(function));
}

SymbolicTensor flatten(SymbolicTensor x, bool channels_first) {
  if (channels_first && x.rank() > 2) {
    std::vector<int> order{0};
    for (int i = 2; i < static_cast<int>(x.rank()); ++i) order.push_back(i);
    order.push_back(1);
    x = ops::transpose(x, order);
  }
  if (x.rank() == 2) return x;
  if (x.rank() == 1) return ops::expand_dims(x, -1);
  const Shape& shape = x.shape();
  std::int64_t features = 1;
  for (std::size_t i = 1; i < shape.rank(); ++i) features *= shape[i];
  return ops::reshape(x, Shape{shape[0], features});
}

}  // namespace

std::unique_ptr<Layer> make_flatten(LayerInfo info, json::Arguments& config) {
  const bool channels_first =
      config.choice("data_format", "channels_last", {"channels_last", "channels_first"}) ==
      "channels_first";
  return function_layer(std::move(info), MaskRule::drop,
                        [=](SymbolicTensor x) { return flatten(x, channels_first); });
}

std::unique_ptr<Layer> make_reshape(LayerInfo info, json::Arguments& config) {
  config.required("target_shape");
  const auto target = config.integers("target_shape").value_or(std::vector<std::int64_t>{-1});
  for (const std::int64_t size : target) {
    if (size >= -1 && size <= kMaxSize) continue;
    config.problem(*config.value("target_shape"), "target_shape",
                   fmt::format("expected sizes and at most one -1, got {}", size));
  }
  return function_layer(std::move(info), MaskRule::drop, [target](SymbolicTensor x) {
    Shape shape{x.shape()[0]};
    for (const std::int64_t size : target) shape.push_back(size);
    return ops::reshape(x, shape);
  });
}

std::unique_ptr<Layer> make_permute(LayerInfo info, json::Arguments& config) {
  const json::Value* at = config.required("dims");
  const auto dims = config.integers("dims").value_or(std::vector<std::int64_t>{});
  std::vector<int> order{0};
  std::vector<bool> seen(dims.size() + 1, false);
  bool good = true;
  for (const std::int64_t dim : dims) {
    good = good && dim >= 1 && dim <= static_cast<std::int64_t>(dims.size()) &&
           !seen[static_cast<std::size_t>(dim)];
    if (good) seen[static_cast<std::size_t>(dim)] = true;
    order.push_back(static_cast<int>(dim));
  }
  if (!good && at != nullptr) {
    config.problem(*at, "dims", fmt::format("expected each of 1 to {} once", dims.size()));
  }
  return function_layer(std::move(info), MaskRule::drop, [order](SymbolicTensor x) {
    if (x.rank() != order.size()) {
      throw Error(Error::Kind::config, fmt::format("dims permutes {} dimensions after the batch, "
                                                   "the input is {}",
                                                   order.size() - 1, to_string(x.shape())));
    }
    return ops::transpose(x, order);
  });
}

std::unique_ptr<Layer> make_repeat_vector(LayerInfo info, json::Arguments& config) {
  config.required("n");
  const std::int64_t n = config.integer("n", 1, 1, kMaxSize);
  return function_layer(std::move(info), MaskRule::drop, [n](SymbolicTensor x) {
    if (x.rank() != 2) {
      throw Error(Error::Kind::config,
                  fmt::format("expected an input of 2 dimensions, got {}", to_string(x.shape())));
    }
    const Shape shape = x.shape();
    return ops::broadcast_to(ops::expand_dims(x, 1), Shape{shape[0], n, shape[1]});
  });
}

std::unique_ptr<Layer> make_identity(LayerInfo info, json::Arguments& /*config*/) {
  return function_layer(std::move(info), MaskRule::keep, FunctionLayer::Function{});
}

}  // namespace tessera::models::layers
