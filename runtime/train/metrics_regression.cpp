// Metrics of numbers that are no means over samples. Formulas: keras.metrics, keras.md 5.3.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "runtime/ops/ops.h"
#include "runtime/train/metric_base.h"

namespace tessera::train {
namespace {

using ops::operator-;
using ops::operator*;

enum class Aggregation : std::uint8_t { uniform, variance };

// Coefficient of determination of each output over everything seen: 1 - sum (t - p)^2 / sum (t -
// mean t)^2. Without an aggregation Keras gives a score for each output; their mean is given here,
// which is what its progress bar shows.
class R2Score final : public TotalsMetric {
 public:
  R2Score(MetricCall call, std::int64_t outputs, Aggregation aggregation, double regressors)
      : TotalsMetric(call.name, call.direction,
                     {{"num_samples", {}},
                      {"squared_sum", Shape{outputs}},
                      {"sum", Shape{outputs}},
                      {"residual", Shape{outputs}},
                      {"count", Shape{outputs}}}),
        aggregation_(aggregation),
        regressors_(regressors) {}

  void update(graph::Builder& builder, SymbolicTensor y_true, SymbolicTensor y_pred,
              SymbolicTensor weight, SymbolicTensor) const override {
    y_true = as_float(y_true);
    y_pred = as_float(y_pred);
    squeeze_or_expand_to_same_rank(y_true, y_pred);
    require_same_shape(y_true, y_pred);
    weight =
        weight ? spread_weight(weight, y_true.shape()) : ops::full(builder, y_true.shape(), 1.0);
    const SymbolicTensor weighted = y_true * weight;
    const auto samples = static_cast<double>(y_true.shape().elements());
    accumulate(builder, variables_[0], ops::full(builder, Shape{}, samples));
    accumulate(builder, variables_[1], ops::sum(y_true * weighted, {0}));
    accumulate(builder, variables_[2], ops::sum(weighted, {0}));
    accumulate(builder, variables_[3], ops::sum(ops::square(y_true - y_pred) * weight, {0}));
    accumulate(builder, variables_[4], ops::sum(weight, {0}));
  }

  double result(std::span<const std::vector<double>> totals) const override {
    double scores = 0.0;
    double weights = 0.0;
    for (std::size_t i = 0; i < totals[1].size(); ++i) {
      const double spread = totals[1][i] - totals[2][i] * (totals[2][i] / totals[4][i]);
      const double raw = 1.0 - totals[3][i] / spread;
      const double weight = aggregation_ == Aggregation::variance ? spread : 1.0;
      scores += weight * (std::isinf(raw) ? 0.0 : raw);
      weights += weight;
    }
    const double score = scores / weights;
    // Adjusted for the number of predictors, where there are samples enough.
    const double samples = totals[0][0];
    if (regressors_ == 0.0 || regressors_ >= samples - 1.0) return score;
    return 1.0 - (1.0 - score) * (samples - 1.0) / (samples - regressors_ - 1.0);
  }

 private:
  Aggregation aggregation_;
  double regressors_;
};

std::unique_ptr<Metric> make_r2_score(MetricCall call) {
  const std::string aggregation = call.arguments.choice(
      "class_aggregation", "uniform_average", {"uniform_average", "variance_weighted_average"});
  const auto regressors = static_cast<double>(call.arguments.integer("num_regressors", 0, 0));
  // Predictions [batch] become [batch, 1] next to targets [batch, 1], and the other way round.
  const Shape& y_pred = call.types.y_pred.shape;
  const Shape& y_true = call.types.y_true.shape;
  const Shape& wide = y_pred.rank() >= y_true.rank() ? y_pred : y_true;
  if (wide.rank() != 2) {
    call.arguments.problem(call.arguments.object(), "",
                           fmt::format("expected predictions [batch, outputs], got {}",
                                       sample_shape(call.types.y_pred)));
    return nullptr;
  }
  return std::make_unique<R2Score>(
      std::move(call), wide[1],
      aggregation == "uniform_average" ? Aggregation::uniform : Aggregation::variance, regressors);
}

constexpr std::array kMetrics = {
    MetricEntry{"R2Score", "r2_score", "", 1, make_r2_score},
};

}  // namespace

std::span<const MetricEntry> regression_metrics() { return kMetrics; }

}  // namespace tessera::train
