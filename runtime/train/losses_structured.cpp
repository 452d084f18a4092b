// Losses that look at more than one row: overlaps, and pairs of the batch. Formulas: keras.losses,
// keras.md 5.2.
#include <fmt/format.h>

#include <array>
#include <limits>

#include "runtime/ops/ops.h"
#include "runtime/train/loss_base.h"

namespace tessera::train {
namespace {

using ops::operator+;
using ops::operator-;
using ops::operator*;
using ops::operator/;

// 1 - 2 |A B| / (|A| + |B|): one ratio over all dimensions, or over `axis`.
LossFunction make_dice(json::Arguments& arguments) {
  return [dims = read_axis(arguments, {})](SymbolicTensor y_true,
                                           SymbolicTensor y_pred) -> LossValues {
    const SymbolicTensor common = ops::sum(y_true * y_pred, dims);
    const SymbolicTensor sizes = ops::sum(y_true, dims) + ops::sum(y_pred, dims);
    return {1.0 - 2.0 * common / (sizes + kEpsilon), {}};
  };
}

// Salehi et al. 2017, "Tversky loss function for image segmentation using 3D fully convolutional
// deep networks". Alpha weighs what the predictions lack, as in Keras.
LossFunction make_tversky(json::Arguments& arguments) {
  const double alpha = arguments.number("alpha", 0.5);
  const double beta = arguments.number("beta", 0.5);
  return [=, dims = read_axis(arguments, {})](SymbolicTensor y_true,
                                              SymbolicTensor y_pred) -> LossValues {
    const SymbolicTensor common = ops::sum(y_true * y_pred, dims);
    const SymbolicTensor missed = ops::sum((1.0 - y_pred) * y_true, dims);
    const SymbolicTensor extra = ops::sum(y_pred * (1.0 - y_true), dims);
    return {1.0 - common / (common + missed * alpha + extra * beta + kEpsilon), {}};
  };
}

// log sum exp over the last dimension of the entries under `mask`; `present` tells the rows that
// have any, the others give 0.
struct RowLogSumExp {
  SymbolicTensor value;
  SymbolicTensor present;
};
RowLogSumExp masked_log_sum_exp(SymbolicTensor x, SymbolicTensor mask) {
  const double infinity = std::numeric_limits<double>::infinity();
  SymbolicTensor largest = ops::stop_gradient(ops::max(ops::where(mask, x, -infinity), {-1}, true));
  largest = ops::where(ops::is_finite(largest), largest, 0.0);
  const SymbolicTensor shifted = ops::where(mask, x - largest, -infinity);
  const SymbolicTensor total = ops::sum(ops::exp(shifted), {-1});
  const SymbolicTensor present = ops::greater(total, 0.0);
  // The logarithm of an empty row would give infinite gradients.
  const SymbolicTensor value =
      ops::log(ops::where(present, total, 1.0)) + ops::squeeze(largest, -1);
  return {value, present};
}

// Sun et al. 2020, "Circle Loss: A Unified Perspective of Pair Similarity Optimization".
// Predictions are embeddings [batch, d] of length 1, targets their labels; every pair of the global
// batch counts, on whichever ranks its rows lie.
LossFunction make_circle(json::Arguments& arguments) {
  const double gamma = arguments.number("gamma", 80.0);
  const double margin = arguments.number("margin", 0.4);
  const bool remove_diagonal = arguments.boolean("remove_diagonal", true);
  return [=](SymbolicTensor y_true, SymbolicTensor y_pred) -> LossValues {
    if (y_pred.rank() != 2 || y_true.shape().elements() != y_pred.shape()[0]) {
      throw Error(Error::Kind::config,
                  fmt::format("expected labels [batch] and embeddings [batch, size], got {} and {}",
                              to_string(y_true.shape()), to_string(y_pred.shape())));
    }
    const std::int64_t rows = y_pred.shape()[0];
    const Shape square{rows, rows};
    SymbolicTensor same =
        ops::equal(ops::reshape(y_true, {rows, 1}), ops::reshape(y_true, {1, rows}));
    const SymbolicTensor other = ops::logical_not(same);
    if (remove_diagonal) {
      graph::Builder& builder = *y_pred.builder;
      const SymbolicTensor pair =
          ops::not_equal(ops::iota(builder, square, 0), ops::iota(builder, square, 1));
      same = ops::logical_and(same, pair);
    }
    const SymbolicTensor distances =
        ops::maximum(1.0 - ops::einsum("ik,jk->ij", y_pred, y_pred), 0.0);
    const SymbolicTensor pull = ops::maximum(margin + distances, 0.0) * (distances - margin);
    const SymbolicTensor push =
        ops::maximum(1.0 + margin - distances, 0.0) * (1.0 - margin - distances);
    const RowLogSumExp positive = masked_log_sum_exp(gamma * pull, same);
    const RowLogSumExp negative = masked_log_sum_exp(gamma * push, other);
    const SymbolicTensor paired = ops::logical_and(positive.present, negative.present);
    const SymbolicTensor losses =
        ops::where(paired, ops::softplus(positive.value + negative.value), 0.0);
    return {losses, ops::greater(losses, 0.0)};
  };
}

constexpr std::array kLosses = {
    LossEntry{"Dice", "dice", "dice", "", Targets::numbers, make_dice},
    LossEntry{"Tversky", "tversky", "tversky", "", Targets::numbers, make_tversky},
    LossEntry{"Circle", "circle", "circle", "", Targets::labels, make_circle},
};

}  // namespace

std::span<const LossEntry> structured_losses() { return kLosses; }

}  // namespace tessera::train
