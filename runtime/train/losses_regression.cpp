// Losses of numbers. Formulas: keras.losses, keras.md 5.2. Each gives one value a row: the mean (or
// sum) over the last dimension.
#include <array>
#include <numbers>

#include "runtime/ops/ops.h"
#include "runtime/train/loss_base.h"

namespace tessera::train {
namespace {

using ops::operator+;
using ops::operator-;
using ops::operator*;
using ops::operator/;

SymbolicTensor row_mean(SymbolicTensor x) { return ops::mean(x, {-1}); }

SymbolicTensor mean_squared_error(SymbolicTensor y_true, SymbolicTensor y_pred) {
  return row_mean(ops::square(y_true - y_pred));
}

SymbolicTensor mean_absolute_error(SymbolicTensor y_true, SymbolicTensor y_pred) {
  return row_mean(ops::abs(y_true - y_pred));
}

SymbolicTensor mean_absolute_percentage_error(SymbolicTensor y_true, SymbolicTensor y_pred) {
  return 100.0 * row_mean(ops::abs((y_true - y_pred) / ops::maximum(ops::abs(y_true), kEpsilon)));
}

SymbolicTensor mean_squared_logarithmic_error(SymbolicTensor y_true, SymbolicTensor y_pred) {
  const auto logarithm = [](SymbolicTensor x) { return ops::log(ops::maximum(x, kEpsilon) + 1.0); };
  return row_mean(ops::square(logarithm(y_pred) - logarithm(y_true)));
}

// x + softplus(-2 x) - log 2 is log(cosh(x)) without overflow.
SymbolicTensor log_cosh(SymbolicTensor y_true, SymbolicTensor y_pred) {
  const SymbolicTensor error = y_pred - y_true;
  return row_mean(error + ops::softplus(error * -2.0) - std::numbers::ln2);
}

SymbolicTensor poisson(SymbolicTensor y_true, SymbolicTensor y_pred) {
  return row_mean(y_pred - y_true * ops::log(y_pred + kEpsilon));
}

SymbolicTensor kl_divergence(SymbolicTensor y_true, SymbolicTensor y_pred) {
  y_true = ops::clip(y_true, kEpsilon, 1.0);
  y_pred = ops::clip(y_pred, kEpsilon, 1.0);
  return ops::sum(y_true * ops::log(y_true / y_pred), {-1});
}

LossFunction make_huber(json::Arguments& arguments) {
  const double delta = arguments.number("delta", 1.0);
  return [delta](SymbolicTensor y_true, SymbolicTensor y_pred) -> LossValues {
    const SymbolicTensor error = ops::abs(y_pred - y_true);
    const SymbolicTensor inside = 0.5 * ops::square(error);
    const SymbolicTensor outside = delta * error - 0.5 * delta * delta;
    return {row_mean(ops::where(ops::less_equal(error, delta), inside, outside)), {}};
  };
}

LossFunction make_cosine_similarity(json::Arguments& arguments) {
  return [dims = read_axis(arguments, {-1})](SymbolicTensor y_true,
                                             SymbolicTensor y_pred) -> LossValues {
    return {-ops::sum(normalize(y_true, dims) * normalize(y_pred, dims), dims), {}};
  };
}

// Labels 0 and 1 become -1 and 1, but only where the whole batch has no others.
SymbolicTensor signed_labels(SymbolicTensor y_true) {
  const SymbolicTensor other =
      ops::logical_and(ops::not_equal(y_true, 0.0), ops::not_equal(y_true, 1.0));
  const SymbolicTensor all_binary = ops::equal(ops::sum(as_float(other)), 0.0);
  return ops::where(all_binary, 2.0 * y_true - 1.0, y_true);
}

SymbolicTensor hinge(SymbolicTensor y_true, SymbolicTensor y_pred) {
  return row_mean(ops::maximum(1.0 - signed_labels(y_true) * y_pred, 0.0));
}

SymbolicTensor squared_hinge(SymbolicTensor y_true, SymbolicTensor y_pred) {
  return row_mean(ops::square(ops::maximum(1.0 - signed_labels(y_true) * y_pred, 0.0)));
}

constexpr std::array kLosses = {
    LossEntry{"MeanSquaredError", "mean_squared_error", "mean_squared_error", "mse MSE",
              Targets::numbers, without_arguments<mean_squared_error>},
    LossEntry{"MeanAbsoluteError", "mean_absolute_error", "mean_absolute_error", "mae MAE",
              Targets::numbers, without_arguments<mean_absolute_error>},
    LossEntry{"MeanAbsolutePercentageError", "mean_absolute_percentage_error",
              "mean_absolute_percentage_error", "mape MAPE", Targets::numbers,
              without_arguments<mean_absolute_percentage_error>},
    LossEntry{"MeanSquaredLogarithmicError", "mean_squared_logarithmic_error",
              "mean_squared_logarithmic_error", "msle MSLE", Targets::numbers,
              without_arguments<mean_squared_logarithmic_error>},
    LossEntry{"LogCosh", "log_cosh", "log_cosh", "", Targets::numbers, without_arguments<log_cosh>},
    LossEntry{"Poisson", "poisson", "poisson", "", Targets::numbers, without_arguments<poisson>},
    LossEntry{"KLDivergence", "kl_divergence", "kl_divergence", "kld KLD", Targets::numbers,
              without_arguments<kl_divergence>},
    LossEntry{"Huber", "huber", "huber_loss", "", Targets::numbers, make_huber},
    LossEntry{"CosineSimilarity", "cosine_similarity", "cosine_similarity", "", Targets::numbers,
              make_cosine_similarity},
    LossEntry{"Hinge", "hinge", "hinge", "", Targets::numbers, without_arguments<hinge>},
    LossEntry{"SquaredHinge", "squared_hinge", "squared_hinge", "", Targets::numbers,
              without_arguments<squared_hinge>},
};

}  // namespace

std::span<const LossEntry> regression_losses() { return kLosses; }

}  // namespace tessera::train
