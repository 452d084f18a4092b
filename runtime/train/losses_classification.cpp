// Losses of classes. Formulas: keras.losses, keras.md 5.2. Each gives one value a row, without the
// class dimension.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "runtime/ops/ops.h"
#include "runtime/train/loss_base.h"

namespace tessera::train {
namespace {

using ops::operator+;
using ops::operator-;
using ops::operator*;
using ops::operator/;

SymbolicTensor clipped(SymbolicTensor probabilities) {
  return ops::clip(probabilities, kEpsilon, 1.0 - kEpsilon);
}

// Probabilities divided by their sum along `axis` and kept away from 0 and 1.
SymbolicTensor normalised(SymbolicTensor y_pred, int axis) {
  return clipped(y_pred / ops::sum(y_pred, {axis}, true));
}

// Every element's loss. From logits z: t softplus(-z) + (1 - t) softplus(z), which is -t log
// sigmoid(z) - (1 - t) log sigmoid(-z).
SymbolicTensor binary_values(SymbolicTensor y_true, SymbolicTensor y_pred, bool from_logits) {
  if (from_logits) {
    return y_true * ops::softplus(-y_pred) + (1.0 - y_true) * ops::softplus(y_pred);
  }
  const SymbolicTensor p = clipped(y_pred);
  return -(y_true * ops::log(p) + (1.0 - y_true) * ops::log(1.0 - p));
}

double read_label_smoothing(json::Arguments& arguments) {
  return arguments.number("label_smoothing", 0.0, 0.0, 1.0);
}

SymbolicTensor smooth_binary(SymbolicTensor y_true, double smoothing) {
  return smoothing == 0.0 ? y_true : y_true * (1.0 - smoothing) + 0.5 * smoothing;
}

// Smoothing spreads over the classes of the whole model, wherever they lie on a mesh.
SymbolicTensor smooth_classes(SymbolicTensor y_true, double smoothing) {
  if (smoothing == 0.0) return y_true;
  const auto classes = static_cast<double>(y_true.shape().back());
  return y_true * (1.0 - smoothing) + smoothing / classes;
}

LossFunction make_binary_crossentropy(json::Arguments& arguments) {
  const bool from_logits = arguments.boolean("from_logits", false);
  const double smoothing = read_label_smoothing(arguments);
  return [=, dims = read_axis(arguments, {-1})](SymbolicTensor y_true,
                                                SymbolicTensor y_pred) -> LossValues {
    require_same_shape(y_true, y_pred);
    return {ops::mean(binary_values(smooth_binary(y_true, smoothing), y_pred, from_logits), dims),
            {}};
  };
}

// Focal losses: Lin et al. 2017, "Focal Loss for Dense Object Detection".
LossFunction make_binary_focal_crossentropy(json::Arguments& arguments) {
  const bool balanced = arguments.boolean("apply_class_balancing", false);
  const double alpha = arguments.number("alpha", 0.25);
  const double gamma = arguments.number("gamma", 2.0);
  const bool from_logits = arguments.boolean("from_logits", false);
  const double smoothing = read_label_smoothing(arguments);
  return [=, dims = read_axis(arguments, {-1})](SymbolicTensor y_true,
                                                SymbolicTensor y_pred) -> LossValues {
    require_same_shape(y_true, y_pred);
    const SymbolicTensor t = smooth_binary(y_true, smoothing);
    const SymbolicTensor p = from_logits ? ops::sigmoid(y_pred) : y_pred;
    const SymbolicTensor right = t * p + (1.0 - t) * (1.0 - p);
    SymbolicTensor losses = ops::pow(1.0 - right, gamma) * binary_values(t, p, false);
    if (balanced) losses = (t * alpha + (1.0 - t) * (1.0 - alpha)) * losses;
    return {ops::mean(losses, dims), {}};
  };
}

int read_class_axis(json::Arguments& arguments) {
  return static_cast<int>(arguments.integer("axis", -1, -static_cast<int>(Shape::kMaxRank),
                                            static_cast<int>(Shape::kMaxRank) - 1));
}

LossFunction make_categorical_crossentropy(json::Arguments& arguments) {
  const bool from_logits = arguments.boolean("from_logits", false);
  const double smoothing = read_label_smoothing(arguments);
  const int axis = read_class_axis(arguments);
  return [=](SymbolicTensor y_true, SymbolicTensor y_pred) -> LossValues {
    require_same_shape(y_true, y_pred);
    const SymbolicTensor logarithms =
        from_logits ? ops::log_softmax(y_pred, axis) : ops::log(normalised(y_pred, axis));
    return {-ops::sum(smooth_classes(y_true, smoothing) * logarithms, {axis}), {}};
  };
}

LossFunction make_categorical_focal_crossentropy(json::Arguments& arguments) {
  const double alpha = arguments.number("alpha", 0.25);
  const double gamma = arguments.number("gamma", 2.0);
  const bool from_logits = arguments.boolean("from_logits", false);
  const double smoothing = read_label_smoothing(arguments);
  const int axis = read_class_axis(arguments);
  return [=](SymbolicTensor y_true, SymbolicTensor y_pred) -> LossValues {
    require_same_shape(y_true, y_pred);
    const SymbolicTensor p = normalised(from_logits ? ops::softmax(y_pred, axis) : y_pred, axis);
    const SymbolicTensor crossentropy = -smooth_classes(y_true, smoothing) * ops::log(p);
    return {ops::sum(alpha * ops::pow(1.0 - p, gamma) * crossentropy, {axis}), {}};
  };
}

// x with dimension `axis` moved to the end.
SymbolicTensor class_axis_last(SymbolicTensor x, int axis) {
  const int rank = static_cast<int>(x.rank());
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) {
    throw Error(Error::Kind::config,
                fmt::format("axis {} is no dimension of {}", axis, to_string(x.shape())));
  }
  if (axis == rank - 1) return x;
  std::vector<int> order;
  for (int i = 0; i < rank; ++i) {
    if (i != axis) order.push_back(i);
  }
  order.push_back(axis);
  return ops::transpose(x, order);
}

// Labels without a class dimension: shape of the predictions without their last one.
SymbolicTensor fit_labels(SymbolicTensor labels, Shape classes_last, int axis) {
  if (labels.rank() == classes_last.rank()) {
    const int rank = static_cast<int>(labels.rank());
    const int dim = axis < 0 ? axis + rank : axis;
    if (labels.shape()[static_cast<std::size_t>(dim)] == 1) {
      labels = ops::squeeze(labels, dim);
    } else if (labels.shape().back() == 1) {
      labels = ops::squeeze(labels, -1);
    }
  }
  const Shape expected(classes_last.sizes().first(classes_last.rank() - 1));
  if (labels.shape() == expected) return labels;
  throw Error(Error::Kind::config, fmt::format("expected labels of shape {}, got {}",
                                               to_string(expected), to_string(labels.shape())));
}

// Loss of the labelled class, 0 where the label is no class. Only the labelled probability is
// divided by the row's sum: the same number as when all are, without a tensor of all classes.
SymbolicTensor sparse_values(SymbolicTensor labels, SymbolicTensor y_pred, bool from_logits) {
  const SymbolicTensor is_class =
      ops::logical_and(ops::greater_equal(labels, 0.0),
                       ops::less(labels, static_cast<double>(y_pred.shape().back())));
  const SymbolicTensor safe = ops::where(is_class, labels, 0.0);
  const SymbolicTensor losses =
      from_logits ? ops::sparse_softmax_cross_entropy(y_pred, safe)
                  : -ops::log(clipped(ops::pick(y_pred, safe) / ops::sum(y_pred, {-1})));
  return ops::where(is_class, losses, 0.0);
}

LossFunction make_sparse_categorical_crossentropy(json::Arguments& arguments) {
  const bool from_logits = arguments.boolean("from_logits", false);
  const auto ignored = arguments.optional_integer("ignore_class");
  const int axis = read_class_axis(arguments);
  LossFunction loss = [=](SymbolicTensor y_true, SymbolicTensor y_pred) -> LossValues {
    const SymbolicTensor scores = class_axis_last(y_pred, axis);
    const SymbolicTensor labels = fit_labels(y_true, scores.shape(), axis);
    const SymbolicTensor losses = sparse_values(labels, scores, from_logits);
    if (!ignored) return {losses, {}};
    const SymbolicTensor kept = ops::not_equal(labels, static_cast<double>(*ignored));
    return {ops::where(kept, losses, 0.0), kept};
  };
  loss.class_axis = axis;
  loss.ignored_class = ignored;
  return loss;
}

SymbolicTensor categorical_hinge(SymbolicTensor y_true, SymbolicTensor y_pred) {
  const SymbolicTensor right = ops::sum(y_true * y_pred, {-1});
  const SymbolicTensor wrong = ops::max((1.0 - y_true) * y_pred, {-1});
  return ops::maximum(wrong - right + 1.0, 0.0);
}

// Zhang and Sabuncu 2018, "Generalized Cross Entropy Loss for Training Deep Neural Networks with
// Noisy Labels": (1 - p^q) / q.
LossFunction make_categorical_generalized_cross_entropy(json::Arguments& arguments) {
  const double q = arguments.number("q", 0.5);
  if (q <= 0.0 || q >= 1.0) {
    arguments.problem(*arguments.value("q"), "q", "q must be in the interval (0, 1)");
  }
  LossFunction loss = [q](SymbolicTensor y_true, SymbolicTensor y_pred) -> LossValues {
    const SymbolicTensor labels = fit_labels(y_true, y_pred.shape(), -1);
    return {(1.0 - ops::pow(ops::pick(y_pred, labels), q)) / q, {}};
  };
  loss.class_axis = -1;
  return loss;
}

constexpr std::array kLosses = {
    LossEntry{"BinaryCrossentropy", "binary_crossentropy", "binary_crossentropy", "bce BCE",
              Targets::numbers, make_binary_crossentropy},
    LossEntry{"BinaryFocalCrossentropy", "binary_focal_crossentropy", "binary_focal_crossentropy",
              "", Targets::numbers, make_binary_focal_crossentropy},
    LossEntry{"CategoricalCrossentropy", "categorical_crossentropy", "categorical_crossentropy", "",
              Targets::numbers, make_categorical_crossentropy},
    LossEntry{"CategoricalFocalCrossentropy", "categorical_focal_crossentropy",
              "categorical_focal_crossentropy", "", Targets::numbers,
              make_categorical_focal_crossentropy},
    LossEntry{"SparseCategoricalCrossentropy", "sparse_categorical_crossentropy",
              "sparse_categorical_crossentropy", "", Targets::labels,
              make_sparse_categorical_crossentropy},
    LossEntry{"CategoricalHinge", "categorical_hinge", "categorical_hinge", "", Targets::numbers,
              without_arguments<categorical_hinge>},
    LossEntry{"CategoricalGeneralizedCrossEntropy", "categorical_generalized_cross_entropy",
              "categorical_generalized_cross_entropy", "", Targets::labels,
              make_categorical_generalized_cross_entropy},
};

}  // namespace

std::span<const LossEntry> classification_losses() { return kLosses; }

}  // namespace tessera::train
