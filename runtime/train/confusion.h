// True and false positives and negatives over thresholds: what the confusion metrics and the areas
// under curves count.
#pragma once

#include <optional>
#include <vector>

#include "runtime/train/metric_base.h"

namespace tessera::train {

/// Predictions larger than a threshold are positive. Evenly spaced thresholds 0, 1/(n-1), ..., 1
/// are compared as p (n-1) > i, as Keras's buckets do, with predictions clipped to 0..1.
struct Thresholds {
  std::vector<double> values;
  bool even = false;
  bool zero_is_positive = false;  // evenly spaced ones whose first stands just below 0

  std::int64_t size() const { return static_cast<std::int64_t>(values.size()); }
};

/// Whether they are 0, 1/(n-1), ..., 1 with n > 2, within Keras's tolerance.
bool evenly_spaced(const std::vector<double>& thresholds);
/// n thresholds from 0 to 1, or 0.5 alone.
Thresholds spaced_thresholds(std::int64_t count);
/// The argument `thresholds`: a number or a list, each from 0 to 1.
Thresholds read_thresholds(json::Arguments& arguments, double fallback);
/// The same, empty when absent.
std::optional<std::vector<double>> read_threshold_list(json::Arguments& arguments);

struct ConfusionOptions {
  Thresholds thresholds;
  std::optional<std::int64_t> top_k;     // only the k largest scores of a row may be positive
  std::optional<std::int64_t> class_id;  // only this class counts
  bool multi_label = false;              // counts for each column
  std::vector<double> label_weights;     // of the columns, where their counts are added up
};

/// Compares one batch; each count is added to the graph when it is asked for. Counts are sums of
/// weights, [thresholds] or [thresholds, columns].
class Confusion {
 public:
  Confusion(graph::Builder& builder, SymbolicTensor y_true, SymbolicTensor y_pred,
            SymbolicTensor weight, const ConfusionOptions& options);

  SymbolicTensor true_positives() const;
  SymbolicTensor false_positives() const;
  SymbolicTensor true_negatives() const;
  SymbolicTensor false_negatives() const;

 private:
  SymbolicTensor above(SymbolicTensor labels) const;
  SymbolicTensor total(SymbolicTensor labels) const;

  SymbolicTensor positive_;  // weight where the target is positive, else 0
  SymbolicTensor negative_;
  SymbolicTensor above_;  // [..., thresholds]: 1 where the prediction lies above the threshold
  bool multi_label_;
};

}  // namespace tessera::train
