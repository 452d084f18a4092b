// Intersection over union of classes, from a confusion matrix. Formulas: keras.metrics,
// keras.md 5.3.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "runtime/ops/ops.h"
#include "runtime/train/metric_base.h"

namespace tessera::train {
namespace {

using ops::operator*;

struct IouOptions {
  std::int64_t classes = 0;
  std::vector<std::int64_t> targets;    // classes that count
  std::optional<std::int64_t> ignored;  // targets of this class do not count
  bool sparse_y_true = true;            // class ids, else scores of all classes
  bool sparse_y_pred = true;
  int axis = -1;                    // of the classes
  std::optional<double> threshold;  // predictions are class 1 from here on, else 0
};

// Total: matrix [classes (target), classes (prediction)] of sums of weights.
class IntersectionOverUnion final : public TotalsMetric {
 public:
  IntersectionOverUnion(MetricCall call, IouOptions options)
      : TotalsMetric(call.name, call.direction,
                     {{"total_confusion_matrix", Shape{options.classes, options.classes}}}),
        options_(std::move(options)) {}

  void update(graph::Builder& builder, SymbolicTensor y_true, SymbolicTensor y_pred,
              SymbolicTensor weight, SymbolicTensor) const override {
    if (options_.threshold) {
      y_pred = ops::greater_equal(as_float(y_pred), *options_.threshold);
    }
    y_true = flat_ids(y_true, options_.sparse_y_true);
    y_pred = flat_ids(y_pred, options_.sparse_y_pred);
    require_same_shape(y_true, y_pred);
    // Ids outside the classes are rows of zeros: they count nowhere.
    SymbolicTensor rows = ops::one_hot(y_true, options_.classes);
    if (options_.ignored) {
      const auto ignored = static_cast<double>(*options_.ignored);
      rows = rows * ops::expand_dims(as_float(ops::not_equal(y_true, ignored)), -1);
    }
    if (weight) rows = rows * ops::expand_dims(whole_weight(weight, y_true.shape()), -1);
    const SymbolicTensor columns = ops::one_hot(y_pred, options_.classes);
    accumulate(builder, variables_[0], ops::einsum("nt,np->tp", rows, columns));
  }

  // Mean over the target classes that occur at all.
  double result(std::span<const std::vector<double>> totals) const override {
    const std::vector<double>& matrix = totals[0];
    const auto classes = static_cast<std::size_t>(options_.classes);
    double sum = 0.0;
    double present = 0.0;
    for (const std::int64_t target : options_.targets) {
      const auto id = static_cast<std::size_t>(target);
      double either = -matrix[id * classes + id];
      for (std::size_t i = 0; i < classes; ++i) {
        either += matrix[id * classes + i] + matrix[i * classes + id];
      }
      if (either <= 1e-9) continue;
      sum += matrix[id * classes + id] / (either + kEpsilon);
      present += 1.0;
    }
    return sum / (present + kEpsilon);
  }

 private:
  SymbolicTensor flat_ids(SymbolicTensor x, bool sparse) const {
    if (!sparse) x = ops::argmax(x, options_.axis);
    return ops::reshape(ops::cast(x, DType::int32), {x.shape().elements()});
  }

  // Keras's matrix is of integers, and so are its weights: fractions are cut off.
  static SymbolicTensor whole_weight(SymbolicTensor weight, Shape flat) {
    weight = as_float(ops::cast(weight, DType::int32));
    if (weight.rank() > 1) weight = ops::reshape(weight, {weight.shape().elements()});
    return weight.shape() == flat ? weight : ops::broadcast_to(weight, flat);
  }

  IouOptions options_;
};

std::int64_t read_classes(json::Arguments& arguments) {
  arguments.required("num_classes");
  return arguments.integer("num_classes", 1, 1, 1 << 15);
}

std::vector<std::int64_t> all_classes(std::int64_t classes) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(classes));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

std::vector<std::int64_t> read_targets(json::Arguments& arguments, std::int64_t classes) {
  arguments.required("target_class_ids");
  std::vector<std::int64_t> ids =
      arguments.integers("target_class_ids").value_or(std::vector<std::int64_t>{0});
  for (const std::int64_t id : ids) {
    if (id >= 0 && id < classes) continue;
    arguments.problem(
        *arguments.value("target_class_ids"), "target_class_ids",
        fmt::format("Target class id {} is out of range, which is [0, {})", id, classes));
    return {0};
  }
  return ids;
}

void read_common(json::Arguments& arguments, IouOptions& options) {
  options.ignored = arguments.optional_integer("ignore_class");
  options.axis = static_cast<int>(arguments.integer("axis", -1, -static_cast<int>(Shape::kMaxRank),
                                                    static_cast<int>(Shape::kMaxRank) - 1));
}

std::unique_ptr<Metric> make_iou_of(MetricCall call, bool all, bool one_hot) {
  json::Arguments& arguments = call.arguments;
  IouOptions options;
  options.classes = read_classes(arguments);
  options.targets = all ? all_classes(options.classes) : read_targets(arguments, options.classes);
  read_common(arguments, options);
  options.sparse_y_true = one_hot ? false : arguments.boolean("sparse_y_true", true);
  options.sparse_y_pred = arguments.boolean("sparse_y_pred", !one_hot);
  return std::make_unique<IntersectionOverUnion>(std::move(call), std::move(options));
}

std::unique_ptr<Metric> make_iou(MetricCall call) {
  return make_iou_of(std::move(call), false, false);
}
std::unique_ptr<Metric> make_mean_iou(MetricCall call) {
  return make_iou_of(std::move(call), true, false);
}
std::unique_ptr<Metric> make_one_hot_iou(MetricCall call) {
  return make_iou_of(std::move(call), false, true);
}
std::unique_ptr<Metric> make_one_hot_mean_iou(MetricCall call) {
  return make_iou_of(std::move(call), true, true);
}

std::unique_ptr<Metric> make_binary_iou(MetricCall call) {
  IouOptions options;
  options.classes = 2;
  options.targets =
      call.arguments.has("target_class_ids") ? read_targets(call.arguments, 2) : all_classes(2);
  options.threshold = call.arguments.number("threshold", 0.5);
  return std::make_unique<IntersectionOverUnion>(std::move(call), std::move(options));
}

constexpr std::array kMetrics = {
    MetricEntry{"IoU", "", "", 1, make_iou},
    MetricEntry{"BinaryIoU", "", "", 1, make_binary_iou},
    MetricEntry{"MeanIoU", "", "", 1, make_mean_iou},
    MetricEntry{"OneHotIoU", "", "", 1, make_one_hot_iou},
    MetricEntry{"OneHotMeanIoU", "", "", 1, make_one_hot_mean_iou},
};

}  // namespace

std::span<const MetricEntry> iou_metrics() { return kMetrics; }

}  // namespace tessera::train
