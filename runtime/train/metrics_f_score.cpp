// F scores: weighted harmonic means of precision and recall over classes. Formulas: keras.metrics,
// keras.md 5.3.
#include <fmt/format.h>

#include <array>
#include <optional>

#include "runtime/ops/ops.h"
#include "runtime/train/metric_base.h"

namespace tessera::train {
namespace {

using ops::operator-;
using ops::operator*;

enum class Average : std::uint8_t { none, micro, macro, weighted };

// Totals are [classes], or scalars for "micro". Without an average Keras gives a score for each
// class; their mean is given here, which is what its progress bar shows.
class FBetaScore final : public TotalsMetric {
 public:
  FBetaScore(MetricCall call, const Shape& shape, Average average, double beta,
             std::optional<double> threshold)
      : TotalsMetric(call.name, call.direction,
                     {{"true_positives", shape},
                      {"false_positives", shape},
                      {"false_negatives", shape},
                      {"intermediate_weights", shape}}),
        average_(average),
        beta_(beta),
        threshold_(threshold) {}

  void update(graph::Builder& builder, SymbolicTensor y_true, SymbolicTensor y_pred,
              SymbolicTensor weight, SymbolicTensor) const override {
    y_true = as_float(y_true);
    y_pred = chosen(as_float(y_pred));
    require_same_shape(y_true, y_pred);
    const std::vector<int> dims =
        average_ == Average::micro ? std::vector<int>{} : std::vector<int>{0};
    if (weight) weight = spread_weight(weight, y_true.shape());
    const auto sum = [&](SymbolicTensor x) { return ops::sum(weight ? x * weight : x, dims); };
    accumulate(builder, variables_[0], sum(y_pred * y_true));
    accumulate(builder, variables_[1], sum(y_pred * (1.0 - y_true)));
    accumulate(builder, variables_[2], sum((1.0 - y_pred) * y_true));
    accumulate(builder, variables_[3], sum(y_true));
  }

  double result(std::span<const std::vector<double>> totals) const override {
    const std::size_t classes = totals[0].size();
    double all = 0.0;
    for (const double weight : totals[3]) all += weight;
    double score = 0.0;
    for (std::size_t i = 0; i < classes; ++i) {
      const double share = average_ == Average::weighted ? totals[3][i] / (all + kEpsilon)
                                                         : 1.0 / static_cast<double>(classes);
      score += share * class_score(totals[0][i], totals[1][i], totals[2][i]);
    }
    return score;
  }

 private:
  // 1 for the classes that are predicted: above the threshold, or the largest of the row (all of
  // them, and none at 0).
  SymbolicTensor chosen(SymbolicTensor y_pred) const {
    if (threshold_) return as_float(ops::greater(y_pred, *threshold_));
    const SymbolicTensor largest = ops::max(y_pred, {-1}, true);
    return as_float(ops::logical_and(ops::greater_equal(y_pred, largest),
                                     ops::greater(ops::abs(y_pred), 1e-9)));
  }

  double class_score(double tp, double fp, double fn) const {
    const double precision = tp / (tp + fp + kEpsilon);
    const double recall = tp / (tp + fn + kEpsilon);
    const double beta2 = beta_ * beta_;
    return (1.0 + beta2) * precision * recall / (beta2 * precision + recall + kEpsilon);
  }

  Average average_;
  double beta_;
  std::optional<double> threshold_;
};

Average read_average(json::Arguments& arguments) {
  const std::string name = arguments.choice("average", "", {"micro", "macro", "weighted"});
  if (name == "micro") return Average::micro;
  if (name == "macro") return Average::macro;
  return name == "weighted" ? Average::weighted : Average::none;
}

std::unique_ptr<Metric> make_f_beta(MetricCall call, double beta) {
  const Average average = read_average(call.arguments);
  const std::optional<double> threshold = call.arguments.optional_number("threshold", 0.0, 1.0);
  if (threshold && *threshold == 0.0) {
    call.arguments.problem(*call.arguments.value("threshold"), "threshold",
                           "expected a number larger than 0 and at most 1, got 0");
  }
  const Shape& y_pred = call.types.y_pred.shape;
  if (y_pred.rank() != 2) {
    call.arguments.problem(call.arguments.object(), "",
                           fmt::format("expected predictions [batch, classes], got {}",
                                       sample_shape(call.types.y_pred)));
    return nullptr;
  }
  const Shape shape = average == Average::micro ? Shape{} : Shape{y_pred[1]};
  return std::make_unique<FBetaScore>(std::move(call), shape, average, beta, threshold);
}

std::unique_ptr<Metric> make_f_beta_score(MetricCall call) {
  const double beta = call.arguments.number("beta", 1.0);
  if (beta <= 0.0) {
    call.arguments.problem(*call.arguments.value("beta"), "beta",
                           fmt::format("expected a number larger than 0, got {}", beta));
  }
  return make_f_beta(std::move(call), beta);
}

std::unique_ptr<Metric> make_f1_score(MetricCall call) { return make_f_beta(std::move(call), 1.0); }

constexpr std::array kMetrics = {
    MetricEntry{"FBetaScore", "fbeta_score", "", 1, make_f_beta_score},
    MetricEntry{"F1Score", "f1_score", "", 1, make_f1_score},
};

}  // namespace

std::span<const MetricEntry> f_score_metrics() { return kMetrics; }

}  // namespace tessera::train
