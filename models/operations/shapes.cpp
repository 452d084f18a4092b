// Operations that move elements (Reshape, Transpose, GetItem, ...), and Matmul.
#include <fmt/format.h>

#include <algorithm>

#include "models/operations/operation.h"
#include "runtime/ops/ops.h"

namespace tessera::models::operations {
namespace {

constexpr auto kMaxRank = static_cast<std::int64_t>(Shape::kMaxRank);

std::unique_ptr<Layer> make_reshape(LayerInfo info, json::Arguments& config) {
  const auto target = config.integers("newshape").value_or(std::vector<std::int64_t>{-1});
  return make_operation(
      std::move(info), [target](Pass& pass, const std::vector<Argument>& arguments) {
        const bool good = std::all_of(target.begin(), target.end(), [](std::int64_t size) {
          return size >= -1 && size <= kMaxSize;
        });
        if (!good) throw Error(Error::Kind::config, "newshape: expected sizes and at most one -1");
        return ops::reshape(tensor_at(pass, arguments, 0), Shape(target));
      });
}

std::unique_ptr<Layer> make_transpose(LayerInfo info, json::Arguments& config) {
  const auto axes = config.integers("axes");
  return make_operation(std::move(info),
                        [axes](Pass& pass, const std::vector<Argument>& arguments) {
                          const SymbolicTensor x = tensor_at(pass, arguments, 0);
                          std::vector<int> order;
                          if (axes) order = positive_dims(*axes, x.rank(), "axes");
                          for (std::size_t i = x.rank(); !axes && i > 0; --i)
                            order.push_back(static_cast<int>(i) - 1);
                          return ops::transpose(x, order);
                        });
}

std::unique_ptr<Layer> make_expand_dims(LayerInfo info, json::Arguments& config) {
  const auto axes = config.integers("axis").value_or(std::vector<std::int64_t>{-1});
  return make_operation(std::move(info),
                        [axes](Pass& pass, const std::vector<Argument>& arguments) {
                          SymbolicTensor x = tensor_at(pass, arguments, 0);
                          for (const std::int64_t axis : axes) {
                            const std::size_t dim = positive_dim(axis, x.rank() + 1, "axis");
                            x = ops::expand_dims(x, static_cast<int>(dim));
                          }
                          return x;
                        });
}

std::unique_ptr<Layer> make_squeeze(LayerInfo info, json::Arguments& config) {
  const auto axes = config.integers("axis");
  return make_operation(
      std::move(info), [axes](Pass& pass, const std::vector<Argument>& arguments) {
        SymbolicTensor x = tensor_at(pass, arguments, 0);
        std::vector<std::size_t> dims;
        for (std::size_t dim = 1; !axes && dim < x.rank(); ++dim) {
          if (x.shape()[dim] == 1) dims.push_back(dim);
        }
        for (const std::int64_t axis : axes.value_or(std::vector<std::int64_t>{})) {
          dims.push_back(positive_dim(axis, x.rank(), "axis"));
        }
        std::sort(dims.rbegin(), dims.rend());
        for (const std::size_t dim : dims) x = ops::squeeze(x, static_cast<int>(dim));
        return x;
      });
}

// Concatenate(list): all tensors of the first argument.
std::unique_ptr<Layer> make_concatenate(LayerInfo info, json::Arguments& config) {
  const auto dim = static_cast<int>(config.integer("axis", 0, -kMaxRank, kMaxRank));
  return make_operation(
      std::move(info), [dim](Pass& /*pass*/, const std::vector<Argument>& arguments) {
        std::vector<SymbolicTensor> parts;
        for (const Argument& argument : arguments) {
          for_each_tensor(argument, [&](const MaskedTensor& part) { parts.push_back(part.value); });
        }
        return ops::concat(parts, dim);
      });
}

// Stack(list) along a new dimension.
std::unique_ptr<Layer> make_stack(LayerInfo info, json::Arguments& config) {
  const auto dim = static_cast<int>(config.integer("axis", 0, -kMaxRank, kMaxRank));
  return make_operation(std::move(info),
                        [dim](Pass& /*pass*/, const std::vector<Argument>& arguments) {
                          std::vector<SymbolicTensor> parts;
                          for (const Argument& argument : arguments) {
                            for_each_tensor(argument, [&](const MaskedTensor& part) {
                              parts.push_back(ops::expand_dims(part.value, dim));
                            });
                          }
                          return ops::concat(parts, dim);
                        });
}

// a[..., m, k] times b[..., k, n]; leading dimensions broadcast.
SymbolicTensor matmul(SymbolicTensor a, SymbolicTensor b) {
  if (a.rank() < 2 || b.rank() < 2) {
    throw Error(Error::Kind::config, fmt::format("expected matrices, got {} and {}",
                                                 to_string(a.shape()), to_string(b.shape())));
  }
  if (b.rank() == 2) return ops::matmul(a, b);
  while (a.rank() < b.rank()) a = ops::expand_dims(a, 0);
  while (b.rank() < a.rank()) b = ops::expand_dims(b, 0);
  Shape shape_a = a.shape();
  Shape shape_b = b.shape();
  std::string letters;
  for (std::size_t i = 0; i + 2 < shape_a.rank(); ++i) {
    letters += static_cast<char>('a' + static_cast<int>(i));
    const std::int64_t size = std::max(shape_a[i], shape_b[i]);
    shape_a[i] = size;
    shape_b[i] = size;
  }
  if (shape_a != a.shape()) a = ops::broadcast_to(a, shape_a);
  if (shape_b != b.shape()) b = ops::broadcast_to(b, shape_b);
  return ops::einsum(fmt::format("{0}xy,{0}yz->{0}xz", letters), a, b);
}

std::unique_ptr<Layer> make_matmul(LayerInfo info, json::Arguments& /*config*/) {
  return make_operation(std::move(info), [](Pass& pass, const std::vector<Argument>& arguments) {
    const auto [a, b] = promote(tensor_at(pass, arguments, 0), tensor_at(pass, arguments, 1));
    return matmul(a, b);
  });
}

bool is_class(const json::Value& value, std::string_view name) {
  const json::Value* class_name = value.find("class_name");
  return class_name != nullptr && class_name->string == name;
}

std::optional<std::int64_t> bound(const json::Value& slice, const char* key) {
  const json::Value* config = slice.find("config");
  const json::Value* value = config == nullptr ? nullptr : config->find(key);
  if (value == nullptr || value->kind != json::Kind::integer) return std::nullopt;
  return value->integer;
}

// Elements start..stop-1 of a dimension, as Python counts them.
SymbolicTensor take_slice(SymbolicTensor x, std::size_t dim, const json::Value& slice) {
  const std::int64_t size = x.shape()[dim];
  const auto place = [size](std::optional<std::int64_t> at, std::int64_t fallback) {
    const std::int64_t from_front = !at ? fallback : (*at < 0 ? *at + size : *at);
    return std::clamp<std::int64_t>(from_front, 0, size);
  };
  if (bound(slice, "step").value_or(1) != 1) {
    throw Error(Error::Kind::config, "a slice with a step is not supported");
  }
  const std::int64_t start = place(bound(slice, "start"), 0);
  const std::int64_t stop = std::max(start, place(bound(slice, "stop"), size));
  if (start == 0 && stop == size) return x;
  return ops::slice(x, static_cast<int>(dim), start, stop - start);
}

// x[...] with whole numbers, slices, null (a new dimension) and one ellipsis.
SymbolicTensor get_item(SymbolicTensor x, const std::vector<const json::Value*>& keys) {
  std::size_t taken = 0;
  for (const json::Value* key : keys) {
    if (!key->is_null() && !is_class(*key, "__ellipsis__")) ++taken;
  }
  if (taken > x.rank()) {
    throw Error(Error::Kind::config,
                fmt::format("{} indices for a tensor of shape {}", taken, to_string(x.shape())));
  }
  std::size_t dim = 0;
  const std::size_t untaken = x.rank() - taken;
  for (const json::Value* key : keys) {
    if (key->is_null()) {
      x = ops::expand_dims(x, static_cast<int>(dim++));
    } else if (is_class(*key, "__ellipsis__")) {
      dim += untaken;
    } else if (is_class(*key, "__slice__")) {
      x = take_slice(x, dim, *key);
      ++dim;
    } else if (key->kind == json::Kind::integer) {
      const std::int64_t size = x.shape()[dim];
      const std::int64_t at = key->integer < 0 ? key->integer + size : key->integer;
      if (at < 0 || at >= size) {
        throw Error(Error::Kind::config,
                    fmt::format("index {} is out of range for dimension {} of {}", key->integer,
                                dim, to_string(x.shape())));
      }
      x = ops::squeeze(ops::slice(x, static_cast<int>(dim), at, 1), static_cast<int>(dim));
    } else {
      throw Error(Error::Kind::config, "an index must be a whole number, a slice or null");
    }
  }
  return x;
}

std::unique_ptr<Layer> make_get_item(LayerInfo info, json::Arguments& /*config*/) {
  return make_operation(std::move(info), [](Pass& pass, const std::vector<Argument>& arguments) {
    const SymbolicTensor x = tensor_at(pass, arguments, 0);
    std::vector<const json::Value*> keys;
    if (arguments.size() == 2 && arguments[1].constant != nullptr) {
      const json::Value& key = *arguments[1].constant;
      for (const json::Value& item : key.array) keys.push_back(&item);
      if (!key.is_array()) keys.push_back(&key);
    } else {
      throw Error(Error::Kind::config, "expected a tensor and constant indices");
    }
    return get_item(x, keys);
  });
}

}  // namespace

const std::vector<LayerEntry>& shape_table() {
  static const std::vector<LayerEntry> table{
      {"Concatenate", make_concatenate},
      {"ExpandDims", make_expand_dims},
      {"GetItem", make_get_item},
      {"Matmul", make_matmul},
      {"Reshape", make_reshape},
      {"Squeeze", make_squeeze},
      {"Stack", make_stack},
      {"Transpose", make_transpose},
  };
  return table;
}

}  // namespace tessera::models::operations
