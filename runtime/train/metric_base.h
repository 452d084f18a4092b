// What all metrics share: totals, sums of samples, the tables of classes.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/train/loss_base.h"
#include "runtime/train/metrics.h"

namespace tessera::train {

/// A total: "true_positives" of shape [200].
struct Total {
  std::string name;
  Shape shape;
};
/// Declares float32 zeros with paths "<shown_name>/<total>", in order.
std::vector<graph::VariableId> declare_totals(graph::VariableTable& table,
                                              const std::string& shown_name,
                                              const std::vector<Total>& totals);

/// A metric whose totals are known when it is made.
class TotalsMetric : public Metric {
 public:
  TotalsMetric(std::string name, int direction, std::vector<Total> totals)
      : direction_(direction), totals_(std::move(totals)) {
    name_ = std::move(name);
  }
  int direction() const override { return direction_; }
  void declare(graph::VariableTable& table, const std::string& shown_name) override {
    variables_ = declare_totals(table, shown_name, totals_);
  }

 private:
  int direction_;
  std::vector<Total> totals_;
};

/// Assigns the variable its value plus `addend`.
void accumulate(graph::Builder& builder, graph::VariableId total, SymbolicTensor addend);

/// Values summed over a batch as Keras's Mean and Sum count them.
struct SampleSums {
  SymbolicTensor total;  // scalar
  SymbolicTensor count;  // scalar: sum of weights, or the number of samples
};
/// With `mean`, each sample counts as the mean of its weighted values, and its weight as the mean
/// of its weights; else sums are taken. `values.mask` is used only where there are weights, as in
/// Keras.
SampleSums sum_samples(graph::Builder& builder, const LossValues& values, SymbolicTensor weight,
                       bool mean);

/// A constant [values.size()].
SymbolicTensor constant_vector(graph::Builder& builder, const std::vector<double>& values);
double divide_no_nan(double a, double b);

/// Weights as Keras spreads them over `values`: dimensions of size 1 are added at the end, one too
/// many is removed.
SymbolicTensor spread_weight(SymbolicTensor weight, Shape values);

/// What a metric is made from.
struct MetricCall {
  json::Arguments& arguments;
  const OutputTypes& types;
  std::string name;
  int direction;
  std::string_view loss;  // of the entry
};

/// One metric of Keras: the single place that has to be touched to add one.
struct MetricEntry {
  std::string_view class_name;    // "BinaryAccuracy"
  std::string_view default_name;  // "": the class's name in snake_case, numbered by Keras where
                                  // there are several
  std::string_view aliases;       // separated by spaces
  int direction;                  // 1 larger is better, -1 smaller is better, 0 unknown
  std::unique_ptr<Metric> (*make)(MetricCall call);
  std::string_view loss = "";  // make_mean_of_loss: the loss's function name
};

// The tables; each stands at the end of the file that holds the metrics.
std::span<const MetricEntry> mean_metrics();        // metrics_mean.cpp
std::span<const MetricEntry> accuracy_metrics();    // metrics_accuracy.cpp
std::span<const MetricEntry> confusion_metrics();   // metrics_confusion.cpp
std::span<const MetricEntry> curve_metrics();       // metrics_curves.cpp
std::span<const MetricEntry> f_score_metrics();     // metrics_f_score.cpp
std::span<const MetricEntry> iou_metrics();         // metrics_iou.cpp
std::span<const MetricEntry> regression_metrics();  // metrics_regression.cpp

/// Mean over all samples of a formula's values: most of Keras's metrics.
std::unique_ptr<Metric> make_mean_of(MetricCall call, Formula formula);
/// The same for the loss that the entry names, with the loss's arguments.
std::unique_ptr<Metric> make_mean_of_loss(MetricCall call);

}  // namespace tessera::train
