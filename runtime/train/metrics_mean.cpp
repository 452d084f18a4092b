// Means over samples: the losses as metrics, correlations, and plain means and sums of predictions.
// Formulas: keras.metrics, keras.md 5.3.
#include <array>

#include "runtime/ops/ops.h"
#include "runtime/train/metric_base.h"

namespace tessera::train {
namespace {

using ops::operator+;
using ops::operator-;
using ops::operator*;
using ops::operator/;

class MeanOfFormula final : public MeanMetric {
 public:
  MeanOfFormula(std::string name, int direction, Formula formula)
      : MeanMetric(std::move(name)), direction_(direction), formula_(std::move(formula)) {}

  int direction() const override { return direction_; }

  void update(graph::Builder& builder, SymbolicTensor y_true, SymbolicTensor y_pred,
              SymbolicTensor weight, SymbolicTensor mask) const override {
    const SampleSums sums =
        sum_samples(builder, formula_(y_true, y_pred), masked_weight(weight, mask), /*mean=*/true);
    accumulate(builder, variables_[0], sums.total);
    accumulate(builder, variables_[1], sums.count);
  }

 private:
  int direction_;
  Formula formula_;
};

// Mean and Sum take values, not targets and predictions: in a config these are the predictions.
class MeanOfPredictions final : public MeanMetric {
 public:
  using MeanMetric::MeanMetric;
  int direction() const override { return 0; }
};

std::unique_ptr<Metric> make_mean(MetricCall call) {
  return std::make_unique<MeanOfPredictions>(std::move(call.name));
}

class SumOfPredictions final : public TotalsMetric {
 public:
  SumOfPredictions(std::string name, int direction)
      : TotalsMetric(std::move(name), direction, {{"total", {}}}) {}

  void update(graph::Builder& builder, SymbolicTensor, SymbolicTensor y_pred, SymbolicTensor weight,
              SymbolicTensor mask) const override {
    const LossValues values{y_pred, {}};
    accumulate(builder, variables_[0],
               sum_samples(builder, values, masked_weight(weight, mask), /*mean=*/false).total);
  }

  double result(std::span<const std::vector<double>> totals) const override { return totals[0][0]; }
};

std::unique_ptr<Metric> make_sum(MetricCall call) {
  return std::make_unique<SumOfPredictions>(std::move(call.name), call.direction);
}

class RootMeanSquaredError final : public MeanMetric {
 public:
  explicit RootMeanSquaredError(std::string name) : MeanMetric(std::move(name)) {}

  void update(graph::Builder& builder, SymbolicTensor y_true, SymbolicTensor y_pred,
              SymbolicTensor weight, SymbolicTensor) const override {
    y_true = as_float(y_true);
    y_pred = as_float(y_pred);
    squeeze_or_expand_to_same_rank(y_true, y_pred);
    MeanMetric::update(builder, y_true, ops::square(y_pred - y_true), weight, {});
  }

  double result(std::span<const std::vector<double>> totals) const override {
    return std::sqrt(MeanMetric::result(totals));
  }
};

std::unique_ptr<Metric> make_root_mean_squared_error(MetricCall call) {
  return std::make_unique<RootMeanSquaredError>(std::move(call.name));
}

// The cosine itself; the loss of this name is its negative.
std::unique_ptr<Metric> make_cosine_similarity(MetricCall call) {
  const std::vector<int> dims = read_axis(call.arguments, {-1});
  const auto cosine = [dims](SymbolicTensor y_true, SymbolicTensor y_pred) -> LossValues {
    return {ops::sum(normalize(y_true, dims) * normalize(y_pred, dims), dims), {}};
  };
  return make_mean_of(std::move(call), {Targets::numbers, cosine});
}

SymbolicTensor centred(SymbolicTensor x, const std::vector<int>& dims) {
  return x - ops::mean(x, dims, true);
}

// Mean over `axis` of the product of both, each centred and divided by its standard deviation.
std::unique_ptr<Metric> make_pearson_correlation(MetricCall call) {
  const std::vector<int> dims = read_axis(call.arguments, {-1});
  const auto correlation = [dims](SymbolicTensor y_true, SymbolicTensor y_pred) -> LossValues {
    const auto standardised = [&](SymbolicTensor x) {
      x = centred(x, dims);
      return x / ops::sqrt(ops::mean(ops::square(x), dims, true));
    };
    return {ops::mean(standardised(y_true) * standardised(y_pred), dims), {}};
  };
  return make_mean_of(std::move(call), {Targets::numbers, correlation});
}

// Lin 1989, "A Concordance Correlation Coefficient to Evaluate Reproducibility". Keras centres both
// at the predictions' mean: the covariance is the same.
std::unique_ptr<Metric> make_concordance_correlation(MetricCall call) {
  const std::vector<int> dims = read_axis(call.arguments, {-1});
  const auto correlation = [dims](SymbolicTensor y_true, SymbolicTensor y_pred) -> LossValues {
    const SymbolicTensor true_mean = ops::mean(y_true, dims, true);
    const SymbolicTensor pred_mean = ops::mean(y_pred, dims, true);
    const SymbolicTensor covariance = (y_true - pred_mean) * (y_pred - pred_mean);
    const auto variance = [&](SymbolicTensor x) {
      return ops::mean(ops::square(centred(x, dims)), dims, true);
    };
    const SymbolicTensor norm =
        variance(y_true) + variance(y_pred) + ops::square(true_mean - pred_mean);
    return {ops::mean(2.0 * covariance / (norm + kEpsilon), dims), {}};
  };
  return make_mean_of(std::move(call), {Targets::numbers, correlation});
}

constexpr std::array kMetrics = {
    MetricEntry{"Mean", "mean", "", 0, make_mean},
    MetricEntry{"Sum", "sum", "", 0, make_sum},
    MetricEntry{"MeanSquaredError", "mean_squared_error", "mse MSE", -1, make_mean_of_loss,
                "mean_squared_error"},
    MetricEntry{"RootMeanSquaredError", "root_mean_squared_error", "", -1,
                make_root_mean_squared_error},
    MetricEntry{"MeanAbsoluteError", "mean_absolute_error", "mae MAE", -1, make_mean_of_loss,
                "mean_absolute_error"},
    MetricEntry{"MeanAbsolutePercentageError", "mean_absolute_percentage_error", "mape MAPE", -1,
                make_mean_of_loss, "mean_absolute_percentage_error"},
    MetricEntry{"MeanSquaredLogarithmicError", "mean_squared_logarithmic_error", "msle MSLE", -1,
                make_mean_of_loss, "mean_squared_logarithmic_error"},
    MetricEntry{"LogCoshError", "logcosh", "", -1, make_mean_of_loss, "log_cosh"},
    MetricEntry{"CosineSimilarity", "cosine_similarity", "", 1, make_cosine_similarity},
    MetricEntry{"PearsonCorrelation", "pearson_correlation", "", 1, make_pearson_correlation},
    MetricEntry{"ConcordanceCorrelation", "concordance_correlation", "", 1,
                make_concordance_correlation},
    MetricEntry{"KLDivergence", "kl_divergence", "", -1, make_mean_of_loss, "kl_divergence"},
    MetricEntry{"Poisson", "poisson", "", -1, make_mean_of_loss, "poisson"},
    MetricEntry{"BinaryCrossentropy", "binary_crossentropy", "bce BCE", -1, make_mean_of_loss,
                "binary_crossentropy"},
    MetricEntry{"CategoricalCrossentropy", "categorical_crossentropy", "", -1, make_mean_of_loss,
                "categorical_crossentropy"},
    MetricEntry{"SparseCategoricalCrossentropy", "sparse_categorical_crossentropy", "", -1,
                make_mean_of_loss, "sparse_categorical_crossentropy"},
    MetricEntry{"Hinge", "hinge", "", -1, make_mean_of_loss, "hinge"},
    MetricEntry{"SquaredHinge", "squared_hinge", "", -1, make_mean_of_loss, "squared_hinge"},
    MetricEntry{"CategoricalHinge", "categorical_hinge", "", -1, make_mean_of_loss,
                "categorical_hinge"},
};

}  // namespace

std::unique_ptr<Metric> make_mean_of(MetricCall call, Formula formula) {
  return std::make_unique<MeanOfFormula>(std::move(call.name), call.direction, std::move(formula));
}

std::unique_ptr<Metric> make_mean_of_loss(MetricCall call) {
  const LossEntry* loss = find_loss(call.loss);
  check(loss != nullptr, "a metric names a loss that does not exist");
  LossFunction function = loss->make(call.arguments);
  return make_mean_of(std::move(call), {loss->targets, std::move(function)});
}

std::span<const MetricEntry> mean_metrics() { return kMetrics; }

}  // namespace tessera::train
