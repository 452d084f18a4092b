// Areas under curves and best values under a constraint, over thresholds from 0 to 1. Formulas:
// keras.metrics, keras.md 5.3.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "runtime/ops/ops.h"
#include "runtime/train/confusion.h"

namespace tessera::train {
namespace {

using Totals = std::span<const std::vector<double>>;

// Keeps all four counts over thresholds.
class CurveMetric : public TotalsMetric {
 public:
  CurveMetric(MetricCall call, const Shape& shape, ConfusionOptions options, bool from_logits)
      : TotalsMetric(call.name, call.direction,
                     {{"true_positives", shape},
                      {"false_positives", shape},
                      {"true_negatives", shape},
                      {"false_negatives", shape}}),
        options_(std::move(options)),
        from_logits_(from_logits) {}

  void update(graph::Builder& builder, SymbolicTensor y_true, SymbolicTensor y_pred,
              SymbolicTensor weight, SymbolicTensor) const override {
    if (from_logits_) y_pred = ops::sigmoid(as_float(y_pred));
    const Confusion confusion(builder, y_true, y_pred, weight, options_);
    accumulate(builder, variables_[0], confusion.true_positives());
    accumulate(builder, variables_[1], confusion.false_positives());
    accumulate(builder, variables_[2], confusion.true_negatives());
    accumulate(builder, variables_[3], confusion.false_negatives());
  }

 protected:
  // Counts at threshold t of column c.
  struct Counts {
    double tp, fp, tn, fn;

    double recall() const {
      return divide_no_nan(tp, tp + fn);
    }  // also: sensitivity, true positive rate
    double precision() const { return divide_no_nan(tp, tp + fp); }
    double specificity() const { return divide_no_nan(tn, tn + fp); }
    double fall_out() const { return divide_no_nan(fp, fp + tn); }
  };
  static Counts counts_at(Totals totals, std::size_t i) {
    return {totals[0][i], totals[1][i], totals[2][i], totals[3][i]};
  }

 private:
  ConfusionOptions options_;
  bool from_logits_;
};

enum class Curve : std::uint8_t { roc, precision_recall, gain };
enum class Summation : std::uint8_t { interpolation, minoring, majoring };

class AreaUnderCurve final : public CurveMetric {
 public:
  AreaUnderCurve(MetricCall call, const Shape& shape, ConfusionOptions options, bool from_logits,
                 Curve curve, Summation summation, std::vector<double> label_weights)
      : CurveMetric(std::move(call), shape, std::move(options), from_logits),
        columns_(shape.rank() == 2 ? static_cast<std::size_t>(shape[1]) : 1),
        curve_(curve),
        summation_(summation),
        label_weights_(std::move(label_weights)) {}

  double result(Totals totals) const override {
    double area = 0.0;
    double weights = 0.0;
    for (std::size_t column = 0; column < columns_; ++column) {
      const double weight = label_weights_.empty() ? 1.0 : label_weights_[column];
      area += weight * column_area(totals, column);
      weights += weight;
    }
    return divide_no_nan(area, weights);
  }

 private:
  double column_area(Totals totals, std::size_t column) const {
    const bool slopes = curve_ == Curve::precision_recall && summation_ == Summation::interpolation;
    double area = 0.0;
    for (std::size_t i = column; i + columns_ < totals[0].size(); i += columns_) {
      const Counts low = counts_at(totals, i);
      const Counts high = counts_at(totals, i + columns_);
      area += slopes ? interpolated_precision(low, high) : strip(low, high);
    }
    return area;
  }

  // Area between neighbouring thresholds under the curve through both.
  double strip(const Counts& low, const Counts& high) const {
    const auto [x0, y0] = point(low);
    const auto [x1, y1] = point(high);
    switch (summation_) {
      case Summation::interpolation:
        return (x0 - x1) * (y0 + y1) / 2.0;
      case Summation::minoring:
        return (x0 - x1) * std::min(y0, y1);
      case Summation::majoring:
        break;
    }
    return (x0 - x1) * std::max(y0, y1);
  }

  std::pair<double, double> point(const Counts& counts) const {
    switch (curve_) {
      case Curve::roc:
        return {counts.fall_out(), counts.recall()};
      case Curve::precision_recall:
        return {counts.recall(), counts.precision()};
      case Curve::gain:
        break;
    }
    // Flach and Kull 2015, "Precision-Recall-Gain Curves".
    if (counts.tp == 0.0) return {0.0, 1.0};
    const double scale = divide_no_nan(counts.tp + counts.fn, counts.tn + counts.fp);
    return {std::max(1.0 - scale * counts.fn / counts.tp, 0.0),
            1.0 - scale * counts.fp / counts.tp};
  }

  // Davis and Goadrich 2006, "The Relationship Between Precision-Recall and ROC Curves": between
  // two thresholds the true positives grow linearly with the positives, not the precision.
  static double interpolated_precision(const Counts& low, const Counts& high) {
    const double positives_low = low.tp + low.fp;
    const double positives_high = high.tp + high.fp;
    const double gained = low.tp - high.tp;
    const double slope = divide_no_nan(gained, std::max(positives_low - positives_high, 0.0));
    const double intercept = high.tp - slope * positives_high;
    const double ratio =
        positives_low > 0.0 && positives_high > 0.0 ? positives_low / positives_high : 1.0;
    return divide_no_nan(slope * (gained + intercept * std::log(ratio)),
                         std::max(high.tp + high.fn, 0.0));
  }

  std::size_t columns_;
  Curve curve_;
  Summation summation_;
  std::vector<double> label_weights_;  // multi-label: of the columns' areas
};

// Thresholds just outside 0 and 1 around `inner`, or evenly spaced ones.
Thresholds auc_thresholds(json::Arguments& arguments) {
  const std::int64_t count = arguments.integer("num_thresholds", 200, 2, 1 << 20);
  std::optional<std::vector<double>> inner = read_threshold_list(arguments);
  if (!inner) {
    Thresholds thresholds = spaced_thresholds(count);
    thresholds.zero_is_positive = true;
    return thresholds;
  }
  std::sort(inner->begin(), inner->end());
  std::vector<double> all = {0.0};
  all.insert(all.end(), inner->begin(), inner->end());
  all.push_back(1.0);
  const bool even = evenly_spaced(all);
  all.front() -= kEpsilon;
  all.back() += kEpsilon;
  return {std::move(all), even, true};
}

Curve read_curve(json::Arguments& arguments) {
  const std::string name =
      arguments.choice("curve", "ROC", {"ROC", "PR", "PRGAIN", "roc", "pr", "prgain"});
  if (name == "PR" || name == "pr") return Curve::precision_recall;
  return name == "ROC" || name == "roc" ? Curve::roc : Curve::gain;
}

Summation read_summation(json::Arguments& arguments) {
  const std::string name = arguments.choice(
      "summation_method", "interpolation",
      {"interpolation", "minoring", "majoring", "Interpolation", "Minoring", "Majoring"});
  if (name == "minoring" || name == "Minoring") return Summation::minoring;
  return name == "majoring" || name == "Majoring" ? Summation::majoring : Summation::interpolation;
}

// Columns of the predictions that are counted apart; 0 where they are not.
std::int64_t read_columns(MetricCall& call) {
  const bool multi_label = call.arguments.boolean("multi_label", false);
  const auto given = call.arguments.optional_integer("num_labels", 1);
  if (!multi_label) {
    if (given) {
      call.arguments.problem(*call.arguments.value("num_labels"), "num_labels",
                             "`num_labels` is needed only when `multi_label` is true");
    }
    return 0;
  }
  const Shape& shape = call.types.y_pred.shape;
  if (shape.rank() != 2 || (given && *given != shape[1])) {
    call.arguments.problem(call.arguments.object(), "multi_label",
                           fmt::format("predictions must be [batch, labels], got {}",
                                       sample_shape(call.types.y_pred)));
  }
  return given.value_or(shape.rank() == 2 ? shape[1] : 1);
}

std::unique_ptr<Metric> make_auc(MetricCall call) {
  json::Arguments& arguments = call.arguments;
  ConfusionOptions options;
  options.thresholds = auc_thresholds(arguments);
  const std::int64_t columns = read_columns(call);
  options.multi_label = columns > 0;
  const Curve curve = read_curve(arguments);
  const Summation summation = read_summation(arguments);
  const bool from_logits = arguments.boolean("from_logits", false);
  std::vector<double> label_weights =
      arguments.numbers("label_weights").value_or(std::vector<double>{});
  const Shape& y_pred = call.types.y_pred.shape;
  if (!label_weights.empty() && !y_pred.empty() &&
      static_cast<std::int64_t>(label_weights.size()) != y_pred.back()) {
    arguments.problem(*arguments.value("label_weights"), "label_weights",
                      fmt::format("expected one weight for each of {} labels, got {}",
                                  y_pred.back(), label_weights.size()));
    return nullptr;
  }
  if (!options.multi_label) options.label_weights = std::exchange(label_weights, {});
  Shape shape{options.thresholds.size()};
  if (options.multi_label) shape.push_back(columns);
  return std::make_unique<AreaUnderCurve>(std::move(call), shape, std::move(options), from_logits,
                                          curve, summation, std::move(label_weights));
}

enum class Rate : std::uint8_t { recall, precision, specificity };

// The largest `wanted` among the thresholds at which `constrained` reaches `least`; 0 where none
// does.
class BestUnderConstraint final : public CurveMetric {
 public:
  BestUnderConstraint(MetricCall call, ConfusionOptions options, Rate wanted, Rate constrained,
                      double least)
      : CurveMetric(std::move(call), Shape{options.thresholds.size()}, options, false),
        wanted_(wanted),
        constrained_(constrained),
        least_(static_cast<float>(least)) {}

  double result(Totals totals) const override {
    double best = 0.0;
    for (std::size_t i = 0; i < totals[0].size(); ++i) {
      const Counts counts = counts_at(totals, i);
      // Keras divides in float32: 7 of 10 reaches 0.7.
      if (static_cast<float>(rate(counts, constrained_)) < least_) continue;
      best = std::max(best, rate(counts, wanted_));
    }
    return best;
  }

 private:
  static double rate(const Counts& counts, Rate rate) {
    switch (rate) {
      case Rate::recall:
        return counts.recall();
      case Rate::precision:
        return counts.precision();
      case Rate::specificity:
        break;
    }
    return counts.specificity();
  }

  Rate wanted_;
  Rate constrained_;
  float least_;
};

std::unique_ptr<Metric> make_best(MetricCall call, Rate wanted, Rate constrained, const char* key) {
  call.arguments.required(key);
  const double least = call.arguments.number(key, 0.0, 0.0, 1.0);
  ConfusionOptions options;
  options.thresholds = spaced_thresholds(call.arguments.integer("num_thresholds", 200, 1, 1 << 20));
  options.class_id = call.arguments.optional_integer("class_id", 0);
  return std::make_unique<BestUnderConstraint>(std::move(call), std::move(options), wanted,
                                               constrained, least);
}

std::unique_ptr<Metric> make_sensitivity_at_specificity(MetricCall call) {
  return make_best(std::move(call), Rate::recall, Rate::specificity, "specificity");
}
std::unique_ptr<Metric> make_specificity_at_sensitivity(MetricCall call) {
  return make_best(std::move(call), Rate::specificity, Rate::recall, "sensitivity");
}
std::unique_ptr<Metric> make_precision_at_recall(MetricCall call) {
  return make_best(std::move(call), Rate::precision, Rate::recall, "recall");
}
std::unique_ptr<Metric> make_recall_at_precision(MetricCall call) {
  return make_best(std::move(call), Rate::recall, Rate::precision, "precision");
}

constexpr std::array kMetrics = {
    MetricEntry{"AUC", "", "", 1, make_auc},
    MetricEntry{"SensitivityAtSpecificity", "", "", 1, make_sensitivity_at_specificity},
    MetricEntry{"SpecificityAtSensitivity", "", "", 1, make_specificity_at_sensitivity},
    MetricEntry{"PrecisionAtRecall", "", "", 1, make_precision_at_recall},
    MetricEntry{"RecallAtPrecision", "", "", 1, make_recall_at_precision},
};

}  // namespace

std::span<const MetricEntry> curve_metrics() { return kMetrics; }

}  // namespace tessera::train
