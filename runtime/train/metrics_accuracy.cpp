// Accuracies: the share of samples whose prediction is right. Formulas: keras.metrics,
// keras.md 5.3.
#include <fmt/format.h>

#include <array>

#include "runtime/ops/ops.h"
#include "runtime/train/metric_base.h"

namespace tessera::train {
namespace {

SymbolicTensor equal_values(SymbolicTensor y_true, SymbolicTensor y_pred) {
  return as_float(ops::equal(y_true, y_pred));
}

std::unique_ptr<Metric> make_accuracy(MetricCall call) {
  const auto matches = [](SymbolicTensor y_true, SymbolicTensor y_pred) -> LossValues {
    return {equal_values(y_true, y_pred), {}};
  };
  return make_mean_of(std::move(call), {Targets::numbers, matches});
}

std::unique_ptr<Metric> make_binary_accuracy(MetricCall call) {
  const double threshold = call.arguments.number("threshold", 0.5);
  const auto matches = [threshold](SymbolicTensor y_true, SymbolicTensor y_pred) -> LossValues {
    return {equal_values(y_true, as_float(ops::greater(y_pred, threshold))), {}};
  };
  return make_mean_of(std::move(call), {Targets::numbers, matches});
}

// Labels [...] for scores [..., classes]; a last dimension of size 1 is dropped.
SymbolicTensor labels_of(SymbolicTensor y_true, SymbolicTensor y_pred) {
  if (y_true.rank() == y_pred.rank() && y_true.rank() > 0 && y_true.shape().back() == 1) {
    y_true = ops::squeeze(y_true, -1);
  }
  const bool fits = y_pred.rank() > 0 && y_true.rank() + 1 == y_pred.rank();
  if (!fits) {
    throw Error(
        Error::Kind::config,
        fmt::format("expected labels of one dimension less than the predictions, got {} and {}",
                    to_string(y_true.shape()), to_string(y_pred.shape())));
  }
  return ops::cast(y_true, DType::int32);
}

SymbolicTensor class_matches(SymbolicTensor labels, SymbolicTensor y_pred) {
  SymbolicTensor matches = equal_values(labels, ops::argmax(y_pred, -1));
  if (matches.rank() > 1 && matches.shape().back() == 1) matches = ops::squeeze(matches, -1);
  return matches;
}

// 1 where fewer than k classes have a larger score than the labelled one: ties count as right. A
// label that is no class is wrong.
SymbolicTensor in_top_k(SymbolicTensor labels, SymbolicTensor y_pred, std::int64_t k) {
  const SymbolicTensor is_class =
      ops::logical_and(ops::greater_equal(labels, 0.0),
                       ops::less(labels, static_cast<double>(y_pred.shape().back())));
  const SymbolicTensor safe = ops::where(is_class, labels, 0.0);
  const SymbolicTensor score = ops::expand_dims(ops::pick(y_pred, safe), -1);
  const SymbolicTensor larger = ops::sum(as_float(ops::greater(y_pred, score)), {-1});
  return as_float(ops::logical_and(ops::less(larger, static_cast<double>(k)), is_class));
}

std::unique_ptr<Metric> make_categorical_accuracy(MetricCall call) {
  const auto matches = [](SymbolicTensor y_true, SymbolicTensor y_pred) -> LossValues {
    require_same_shape(y_true, y_pred);
    return {equal_values(ops::argmax(y_true, -1), ops::argmax(y_pred, -1)), {}};
  };
  return make_mean_of(std::move(call), {Targets::numbers, matches});
}

std::unique_ptr<Metric> make_sparse_categorical_accuracy(MetricCall call) {
  const auto matches = [](SymbolicTensor y_true, SymbolicTensor y_pred) -> LossValues {
    return {class_matches(labels_of(y_true, y_pred), y_pred), {}};
  };
  return make_mean_of(std::move(call), {Targets::labels, matches});
}

std::unique_ptr<Metric> make_top_k_categorical_accuracy(MetricCall call) {
  const std::int64_t k = call.arguments.integer("k", 5, 1);
  const auto matches = [k](SymbolicTensor y_true, SymbolicTensor y_pred) -> LossValues {
    require_same_shape(y_true, y_pred);
    return {in_top_k(ops::argmax(y_true, -1), y_pred, k), {}};
  };
  return make_mean_of(std::move(call), {Targets::numbers, matches});
}

std::unique_ptr<Metric> make_sparse_top_k_categorical_accuracy(MetricCall call) {
  const std::int64_t k = call.arguments.integer("k", 5, 1);
  const bool from_sorted_ids = call.arguments.boolean("from_sorted_ids", false);
  const auto matches = [=](SymbolicTensor y_true, SymbolicTensor y_pred) -> LossValues {
    const SymbolicTensor labels = labels_of(y_true, y_pred);
    if (!from_sorted_ids) return {in_top_k(labels, y_pred, k), {}};
    // The predictions are ids, the best first.
    const SymbolicTensor best = ops::slice(y_pred, -1, 0, std::min(k, y_pred.shape().back()));
    const SymbolicTensor wanted = ops::expand_dims(as_float(labels), -1);
    return {ops::max(equal_values(wanted, best), {-1}), {}};
  };
  return make_mean_of(std::move(call), {Targets::labels, matches});
}

constexpr std::array kMetrics = {
    MetricEntry{"Accuracy", "accuracy", "", 1, make_accuracy},
    MetricEntry{"BinaryAccuracy", "binary_accuracy", "", 1, make_binary_accuracy},
    MetricEntry{"CategoricalAccuracy", "categorical_accuracy", "", 1, make_categorical_accuracy},
    MetricEntry{"SparseCategoricalAccuracy", "sparse_categorical_accuracy", "", 1,
                make_sparse_categorical_accuracy},
    MetricEntry{"TopKCategoricalAccuracy", "top_k_categorical_accuracy", "", 1,
                make_top_k_categorical_accuracy},
    MetricEntry{"SparseTopKCategoricalAccuracy", "sparse_top_k_categorical_accuracy", "", 1,
                make_sparse_top_k_categorical_accuracy},
};

}  // namespace

std::span<const MetricEntry> accuracy_metrics() { return kMetrics; }

}  // namespace tessera::train
