// Fitting of ranks, weights, masks and reductions of losses.
#include "runtime/train/loss_base.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/ops/ops.h"

namespace tessera::train {

using ops::operator*;
using ops::operator/;

LossValues Formula::operator()(SymbolicTensor y_true, SymbolicTensor y_pred) const {
  y_pred = as_float(y_pred);
  y_true = targets == Targets::labels ? as_labels(y_true) : as_float(y_true);
  squeeze_or_expand_to_same_rank(y_true, y_pred);
  return function(y_true, y_pred);
}

std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(' '), list.size());
    if (end > 0) words.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

bool is_word_of(std::string_view name, std::string_view list) {
  const std::vector<std::string> words = words_of(list);
  return std::find(words.begin(), words.end(), name) != words.end();
}

LabelKind label_kind(const OutputTypes& types) {
  const Shape& y_true = types.y_true.shape;
  const Shape& y_pred = types.y_pred.shape;
  if (!y_pred.empty() && y_pred.back() == 1) return LabelKind::binary;
  const bool column = !y_true.empty() && y_true.back() == 1 && !y_pred.empty() && y_pred.back() > 1;
  return y_true.rank() < y_pred.rank() || column ? LabelKind::sparse : LabelKind::categorical;
}

SymbolicTensor as_float(SymbolicTensor x) {
  return x.dtype() == DType::float32 ? x : ops::cast(x, DType::float32);
}

SymbolicTensor as_labels(SymbolicTensor x) {
  const bool kept = x.dtype() == DType::int32 || x.dtype() == DType::int64;
  return kept ? x : ops::cast(x, DType::int32);
}

void squeeze_or_expand_to_same_rank(SymbolicTensor& a, SymbolicTensor& b) {
  if (a.rank() == b.rank() + 1) {
    if (a.shape().back() != 1) return;
    if (b.rank() == 1) {
      b = ops::expand_dims(b, -1);
    } else {
      a = ops::squeeze(a, -1);
    }
  } else if (b.rank() == a.rank() + 1) {
    squeeze_or_expand_to_same_rank(b, a);
  }
}

SymbolicTensor multiply_leading(SymbolicTensor a, SymbolicTensor b) {
  while (a.rank() < b.rank() && a.rank() > 0) a = ops::expand_dims(a, -1);
  while (b.rank() < a.rank() && b.rank() > 0) b = ops::expand_dims(b, -1);
  return a * b;
}

SymbolicTensor masked_weight(SymbolicTensor weight, SymbolicTensor mask) {
  if (!mask) return weight ? as_float(weight) : weight;
  return weight ? multiply_leading(as_float(weight), as_float(mask)) : as_float(mask);
}

SymbolicTensor divide_no_nan(SymbolicTensor a, SymbolicTensor b) {
  const SymbolicTensor zero = ops::equal(b, 0.0);
  return ops::where(zero, 0.0, a / ops::where(zero, 1.0, b));
}

SymbolicTensor normalize(SymbolicTensor x, const std::vector<int>& dims) {
  const SymbolicTensor squares = ops::sum(ops::square(x), dims, true);
  return x * ops::minimum(ops::rsqrt(squares), 1.0 / kEpsilon);
}

std::vector<int> read_axis(json::Arguments& arguments, std::vector<int> fallback) {
  const auto read = arguments.integers("axis");
  if (!read) return fallback;
  std::vector<int> dims;
  for (const std::int64_t dim : *read) {
    if (dim < -static_cast<std::int64_t>(Shape::kMaxRank) ||
        dim >= static_cast<std::int64_t>(Shape::kMaxRank)) {
      arguments.problem(*arguments.value("axis"), "axis",
                        fmt::format("expected a dimension of a tensor, got {}", dim));
      return fallback;
    }
    dims.push_back(static_cast<int>(dim));
  }
  return dims;
}

void require_same_shape(SymbolicTensor y_true, SymbolicTensor y_pred) {
  if (y_true.shape() == y_pred.shape()) return;
  throw Error(Error::Kind::config,
              fmt::format("targets and predictions must have the same shape, got {} and {}",
                          to_string(y_true.shape()), to_string(y_pred.shape())));
}

namespace {

SymbolicTensor both_masks(SymbolicTensor a, SymbolicTensor b) {
  if (!a || !b) return a ? a : b;
  squeeze_or_expand_to_same_rank(a, b);
  return ops::logical_and(a, b);
}

double inverse(std::int64_t count) { return count == 0 ? 0.0 : 1.0 / static_cast<double>(count); }

}  // namespace

SymbolicTensor reduce_loss(const LossValues& losses, SymbolicTensor weight, SymbolicTensor mask,
                           Reduction reduction) {
  SymbolicTensor values = losses.values;
  const SymbolicTensor valid = both_masks(mask, losses.mask);
  weight = masked_weight(weight, valid);
  if (weight) values = multiply_leading(values, weight);
  const SymbolicTensor total = values.rank() == 0 ? values : ops::sum(values);
  if (reduction == Reduction::sum || reduction == Reduction::none) return total;
  if (reduction == Reduction::mean_with_sample_weight) {
    return weight ? divide_no_nan(total, ops::sum(weight))
                  : total * inverse(values.shape().elements());
  }
  const double share = inverse(values.shape().elements());
  if (!valid) return values.rank() == 0 ? total : total * share;
  // A mask makes the divisor the number of valid entries. Keras scales every entry by
  // total / valid; one factor on the sum is the same and costs nothing per element.
  const SymbolicTensor entries =
      ops::full(*valid.builder, Shape{}, static_cast<double>(valid.shape().elements()) * share);
  return total * divide_no_nan(entries, ops::sum(as_float(valid)));
}

std::string sample_shape(const graph::ValueType& type) {
  std::string text = "[batch";
  for (std::size_t i = 1; i < type.shape.rank(); ++i) text += fmt::format(", {}", type.shape[i]);
  return text + "]";
}

void add_problem(json::Problems& problems, const json::Value& value, const std::string& path,
                 std::string message) {
  problems.add({value.file ? *value.file : "", value.position, path, std::move(message)});
}

bool fits(const OutputTypes& types, const json::Value& value, const std::string& path,
          std::string_view noun, std::string_view name, json::Problems& problems,
          const std::function<void(graph::Builder&, SymbolicTensor, SymbolicTensor)>& build) {
  if (types.y_true.shape.empty() || types.y_pred.shape.empty()) return true;
  graph::VariableTable table;
  graph::Graph graph(table);
  graph::Builder builder(graph);
  // Any batch size does, but one of its own so that a wrong shape cannot fit by chance.
  constexpr std::int64_t kBatch = 7919;
  const auto input = [&](std::string input_name, graph::ValueType type) {
    type.shape[0] = kBatch;
    return builder.input(std::move(input_name), type.shape, type.dtype);
  };
  try {
    const SymbolicTensor y_true = input("targets", types.y_true);
    build(builder, y_true, input("predictions", types.y_pred));
    return true;
  } catch (const Error& error) {
    if (error.kind != Error::Kind::config) throw;
    add_problem(problems, value, path,
                fmt::format("{} \"{}\" does not fit targets {} and predictions {}: {}", noun, name,
                            sample_shape(types.y_true), sample_shape(types.y_pred), error.what()));
    return false;
  }
}

}  // namespace tessera::train
