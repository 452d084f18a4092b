// Counts of true and false positives and negatives, precision and recall. Formulas: keras.metrics,
// keras.md 5.3.
#include <array>

#include "runtime/train/confusion.h"

namespace tessera::train {
namespace {

using Count = SymbolicTensor (Confusion::*)() const;

// One or two counts over thresholds; `result` is the first, or first / (first + second). Several
// thresholds give the mean over them, which is what Keras's progress bar shows.
class CountMetric final : public TotalsMetric {
 public:
  struct Part {
    const char* name;
    Count count;
  };

  CountMetric(MetricCall call, std::vector<Part> parts, ConfusionOptions options)
      : TotalsMetric(call.name, call.direction, totals_of(parts, options.thresholds.size())),
        parts_(std::move(parts)),
        options_(std::move(options)) {}

  void update(graph::Builder& builder, SymbolicTensor y_true, SymbolicTensor y_pred,
              SymbolicTensor weight, SymbolicTensor) const override {
    const Confusion confusion(builder, y_true, y_pred, weight, options_);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      accumulate(builder, variables_[i], (confusion.*parts_[i].count)());
    }
  }

  double result(std::span<const std::vector<double>> totals) const override {
    const std::size_t thresholds = totals[0].size();
    double sum = 0.0;
    for (std::size_t i = 0; i < thresholds; ++i) {
      const double first = totals[0][i];
      sum += totals.size() == 1 ? first : divide_no_nan(first, first + totals[1][i]);
    }
    return sum / static_cast<double>(thresholds);
  }

 private:
  static std::vector<Total> totals_of(const std::vector<Part>& parts, std::int64_t thresholds) {
    std::vector<Total> totals;
    for (const Part& part : parts) totals.push_back({part.name, Shape{thresholds}});
    return totals;
  }

  std::vector<Part> parts_;
  ConfusionOptions options_;
};

template <Count kCount>
std::unique_ptr<Metric> make_count(MetricCall call) {
  ConfusionOptions options;
  options.thresholds = read_thresholds(call.arguments, 0.5);
  return std::make_unique<CountMetric>(
      std::move(call), std::vector<CountMetric::Part>{{"accumulator", kCount}}, std::move(options));
}

constexpr CountMetric::Part kTruePositives{"true_positives", &Confusion::true_positives};
constexpr CountMetric::Part kFalsePositives{"false_positives", &Confusion::false_positives};
constexpr CountMetric::Part kFalseNegatives{"false_negatives", &Confusion::false_negatives};

// True positives among `other` and themselves.
std::unique_ptr<Metric> make_share(MetricCall call, CountMetric::Part other) {
  ConfusionOptions options;
  options.top_k = call.arguments.optional_integer("top_k", 1);
  options.class_id = call.arguments.optional_integer("class_id", 0);
  // With top_k every one of the k largest is positive.
  options.thresholds = read_thresholds(call.arguments, options.top_k ? -1e10 : 0.5);
  return std::make_unique<CountMetric>(
      std::move(call), std::vector<CountMetric::Part>{kTruePositives, other}, std::move(options));
}

std::unique_ptr<Metric> make_precision(MetricCall call) {
  return make_share(std::move(call), kFalsePositives);
}

std::unique_ptr<Metric> make_recall(MetricCall call) {
  return make_share(std::move(call), kFalseNegatives);
}

constexpr std::array kMetrics = {
    MetricEntry{"TruePositives", "", "", 0, make_count<&Confusion::true_positives>},
    MetricEntry{"TrueNegatives", "", "", 0, make_count<&Confusion::true_negatives>},
    MetricEntry{"FalsePositives", "", "", 0, make_count<&Confusion::false_positives>},
    MetricEntry{"FalseNegatives", "", "", 0, make_count<&Confusion::false_negatives>},
    MetricEntry{"Precision", "", "", 1, make_precision},
    MetricEntry{"Recall", "", "", 1, make_recall},
};

}  // namespace

std::span<const MetricEntry> confusion_metrics() { return kMetrics; }

}  // namespace tessera::train
