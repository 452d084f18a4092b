// Counting over thresholds as one contraction of labels with a matrix of comparisons.
#include "runtime/train/confusion.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "runtime/ops/ops.h"

namespace tessera::train {

using ops::operator-;
using ops::operator*;

bool evenly_spaced(const std::vector<double>& thresholds) {
  if (thresholds.size() < 3) return false;
  const auto last = static_cast<double>(thresholds.size() - 1);
  for (std::size_t i = 0; i < thresholds.size(); ++i) {
    const double even = static_cast<double>(static_cast<float>(static_cast<double>(i) / last));
    // numpy.allclose: an absolute and a relative tolerance.
    if (std::abs(thresholds[i] - even) > kEpsilon + 1e-5 * even) return false;
  }
  return true;
}

Thresholds spaced_thresholds(std::int64_t count) {
  if (count == 1) return {{0.5}, false, false};
  Thresholds thresholds;
  for (std::int64_t i = 0; i < count; ++i) {
    thresholds.values.push_back(static_cast<double>(i) / static_cast<double>(count - 1));
  }
  thresholds.even = true;
  return thresholds;
}

std::optional<std::vector<double>> read_threshold_list(json::Arguments& arguments) {
  std::optional<std::vector<double>> list = arguments.numbers("thresholds");
  for (const double threshold : list.value_or(std::vector<double>{})) {
    if (threshold >= 0.0 && threshold <= 1.0) continue;
    arguments.problem(*arguments.value("thresholds"), "thresholds",
                      fmt::format("Threshold values must be in [0, 1], got {}", threshold));
    return std::nullopt;
  }
  return list;
}

Thresholds read_thresholds(json::Arguments& arguments, double fallback) {
  Thresholds thresholds;
  thresholds.values = read_threshold_list(arguments).value_or(std::vector<double>{fallback});
  if (thresholds.values.empty()) {
    arguments.problem(*arguments.value("thresholds"), "thresholds", "expected at least one number");
    thresholds.values = {fallback};
  }
  thresholds.even = evenly_spaced(thresholds.values);
  return thresholds;
}

namespace {

// 1 for the k largest of each row, the first of equal ones.
SymbolicTensor top_k_mask(SymbolicTensor x, std::int64_t k) {
  const std::int64_t classes = x.shape().back();
  SymbolicTensor taken;
  for (std::int64_t i = 0; i < k; ++i) {
    const SymbolicTensor left =
        taken ? ops::where(taken, -std::numeric_limits<double>::infinity(), x) : x;
    const SymbolicTensor largest = ops::one_hot(ops::argmax(left, -1), classes, DType::boolean);
    taken = taken ? ops::logical_or(taken, largest) : largest;
  }
  return taken;
}

// Scores outside the k largest fall below every threshold.
constexpr double kNever = -1e10;

SymbolicTensor keep_top_k(SymbolicTensor y_pred, std::int64_t k) {
  if (k >= y_pred.shape().back()) return y_pred;
  return ops::where(top_k_mask(y_pred, k), y_pred, kNever);
}

// [..., thresholds]: 1 where the prediction lies above the threshold.
SymbolicTensor above_thresholds(graph::Builder& builder, SymbolicTensor y_pred,
                                const Thresholds& thresholds) {
  const SymbolicTensor column = ops::expand_dims(y_pred, -1);
  if (!thresholds.even) {
    return as_float(ops::greater(column, constant_vector(builder, thresholds.values)));
  }
  const double last = static_cast<double>(thresholds.size() - 1);
  const SymbolicTensor index = ops::iota(builder, Shape{thresholds.size()}, 0, DType::float32);
  const SymbolicTensor above = ops::greater(ops::clip(column, 0.0, 1.0) * last, index);
  if (!thresholds.zero_is_positive) return as_float(above);
  return as_float(ops::logical_or(above, ops::equal(index, 0.0)));
}

SymbolicTensor column_of(SymbolicTensor x, std::int64_t class_id) {
  if (x.rank() < 2 || class_id >= x.shape().back()) {
    throw Error(Error::Kind::config,
                fmt::format("class_id {} is no class of {}", class_id, to_string(x.shape())));
  }
  return ops::slice(x, -1, class_id, 1);
}

}  // namespace

Confusion::Confusion(graph::Builder& builder, SymbolicTensor y_true, SymbolicTensor y_pred,
                     SymbolicTensor weight, const ConfusionOptions& options)
    : multi_label_(options.multi_label) {
  y_true = as_float(ops::not_equal(as_float(y_true), 0.0));
  y_pred = as_float(y_pred);
  squeeze_or_expand_to_same_rank(y_true, y_pred);
  require_same_shape(y_true, y_pred);
  if (options.top_k) y_pred = keep_top_k(y_pred, *options.top_k);
  if (options.class_id) {
    y_true = column_of(y_true, *options.class_id);
    y_pred = column_of(y_pred, *options.class_id);
  }
  positive_ = y_true;
  negative_ = 1.0 - y_true;
  if (weight) {
    // A weight for each class is cut down with them.
    if (options.class_id && weight.rank() == y_true.rank() && weight.shape().back() > 1) {
      weight = column_of(weight, *options.class_id);
    }
    weight = spread_weight(weight, y_true.shape());
  }
  if (!options.label_weights.empty() && !options.multi_label) {
    const SymbolicTensor labels = constant_vector(builder, options.label_weights);
    weight = weight ? weight * labels : ops::broadcast_to(labels, y_true.shape());
  }
  if (weight) {
    positive_ = positive_ * weight;
    negative_ = negative_ * weight;
  }
  above_ = above_thresholds(builder, y_pred, options.thresholds);
}

// Labels [samples, columns] times comparisons [samples, columns, thresholds], summed over the
// samples.
SymbolicTensor Confusion::above(SymbolicTensor labels) const {
  const std::string_view dims = std::string_view("abcdefgh").substr(0, labels.rank());
  const std::string_view kept = multi_label_ ? dims.substr(1) : "";
  return ops::einsum(fmt::format("{0},{0}t->t{1}", dims, kept), labels, above_);
}

SymbolicTensor Confusion::total(SymbolicTensor labels) const {
  return multi_label_ ? ops::sum(labels, {0}, true) : ops::sum(labels);
}

SymbolicTensor Confusion::true_positives() const { return above(positive_); }
SymbolicTensor Confusion::false_positives() const { return above(negative_); }
SymbolicTensor Confusion::true_negatives() const { return total(negative_) - above(negative_); }
SymbolicTensor Confusion::false_negatives() const { return total(positive_) - above(positive_); }

}  // namespace tessera::train
