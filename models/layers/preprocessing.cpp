// Normalization (with given or stored statistics), Rescaling.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/layers/layers.h"
#include "models/layers/norms.h"
#include "runtime/ops/ops.h"

namespace tessera::models::layers {
namespace {

using namespace ops;  // NOLINT: formulas read as formulas

// A number or nested arrays of numbers, row-major.
bool collect_numbers(const json::Value& value, std::vector<double>& numbers) {
  if (value.is_number()) {
    numbers.push_back(value.number);
    return true;
  }
  if (!value.is_array()) return false;
  return std::all_of(value.array.begin(), value.array.end(),
                     [&](const json::Value& item) { return collect_numbers(item, numbers); });
}

std::optional<std::vector<double>> read_numbers(json::Arguments& config, const char* key) {
  const json::Value* value = config.value(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  std::vector<double> numbers;
  if (collect_numbers(*value, numbers) && !numbers.empty()) return numbers;
  config.problem(*value, key, "expected a number or an array of numbers");
  return std::nullopt;
}

// (x - mean) / deviation, statistics per index of the axes; inverted on request.
class Normalization : public TensorLayer {
 public:
  Normalization(LayerInfo info, json::Arguments& config)
      : TensorLayer(std::move(info), MaskRule::drop),
        invert_(config.boolean("invert", false)),
        mean_(read_numbers(config, "mean")),
        variance_(read_numbers(config, "variance")) {
    const json::Value* axis = config.value("axis");
    if (axis == nullptr) {
      axes_ = {-1};
    } else if (!axis->is_null()) {
      axes_ = config.integers("axis").value_or(std::vector<std::int64_t>{-1});
    }
    if (mean_.has_value() != variance_.has_value()) {
      config.problem(config.object(), mean_ ? "variance" : "mean",
                     "mean and variance are given together or not at all");
    }
  }

 protected:
  void build(const Shape& input, WeightStore& store) override {
    Shape shape;
    for (const std::size_t dim : dims(input.rank())) shape.push_back(input[dim]);
    if (mean_) {
      check_size(*mean_, "mean", shape);
      check_size(*variance_, "variance", shape);
      return;
    }
    mean_weight_ = add_weight(store, "mean", shape, plain_weight("zeros"), {false, {}, {}});
    variance_weight_ = add_weight(store, "variance", shape, plain_weight("ones"), {false, {}, {}});
    // Keras counts what it has seen of the data; nothing reads it here, but weights files hold it.
    add_weight(store, "count", Shape{}, plain_weight("zeros"), {false, DType::int32, {}});
  }

  SymbolicTensor call(Pass& pass, SymbolicTensor x, SymbolicTensor /*mask*/) override {
    if (x.dtype() != compute_dtype()) x = cast(x, compute_dtype());
    const std::vector<std::size_t> axes = dims(x.rank());
    SymbolicTensor mean;
    SymbolicTensor deviation;
    if (mean_) {
      std::vector<double> deviations = *variance_;
      for (double& v : deviations) v = std::max(std::sqrt(v), kKerasEpsilon);
      mean = statistic(pass, x, axes, *mean_);
      deviation = statistic(pass, x, axes, deviations);
    } else {
      mean = spread(pass.weight(mean_weight_, x.dtype()), axes, x.rank());
      deviation = maximum(sqrt(spread(pass.weight(variance_weight_, x.dtype()), axes, x.rank())),
                          kKerasEpsilon);
    }
    return invert_ ? mean + x * deviation : (x - mean) / deviation;
  }

 private:
  std::vector<std::size_t> dims(std::size_t rank) const {
    std::vector<std::size_t> result;
    for (const std::int64_t axis : axes_) {
      result.push_back(positive_dim(axis, rank, "axis"));
      if (result.back() == 0) fail("axis: the batch cannot keep its own statistics");
    }
    std::sort(result.begin(), result.end());
    return result;
  }

  void check_size(const std::vector<double>& values, const char* key, const Shape& shape) const {
    const auto size = static_cast<std::int64_t>(values.size());
    if (size != 1 && size != shape.elements()) {
      fail(fmt::format("{} has {} values, expected {} or 1", key, size, shape.elements()));
    }
  }

  static SymbolicTensor statistic(Pass& pass, SymbolicTensor x,
                                  const std::vector<std::size_t>& axes,
                                  const std::vector<double>& values) {
    if (values.size() == 1) return full(pass.builder(), Shape{}, values.front(), x.dtype());
    Shape shape;
    for (const std::size_t axis : axes) shape.push_back(x.shape()[axis]);
    return spread(constant(pass.builder(), shape, values, x.dtype()), axes, x.rank());
  }

  bool invert_;
  std::optional<std::vector<double>> mean_;
  std::optional<std::vector<double>> variance_;
  std::vector<std::int64_t> axes_;  // empty: one statistic for all
  Weight mean_weight_;              // sizes of the axes
  Weight variance_weight_;
};

// x * scale + offset; arrays broadcast over the trailing dimensions.
class Rescaling : public TensorLayer {
 public:
  Rescaling(LayerInfo info, json::Arguments& config)
      : TensorLayer(std::move(info), MaskRule::keep),
        scale_(read_numbers(config, "scale").value_or(std::vector<double>{1.0})),
        offset_(read_numbers(config, "offset").value_or(std::vector<double>{0.0})) {
    config.required("scale");
  }

 protected:
  SymbolicTensor call(Pass& pass, SymbolicTensor x, SymbolicTensor /*mask*/) override {
    if (x.dtype() != compute_dtype()) x = cast(x, compute_dtype());
    const auto vector = [&](const std::vector<double>& values) {
      return constant(pass.builder(), Shape{static_cast<std::int64_t>(values.size())}, values,
                      x.dtype());
    };
    const SymbolicTensor scaled = scale_.size() == 1 ? x * scale_.front() : x * vector(scale_);
    if (offset_.size() > 1) return scaled + vector(offset_);
    return offset_.front() == 0.0 ? scaled : scaled + offset_.front();
  }

 private:
  std::vector<double> scale_;
  std::vector<double> offset_;
};

}  // namespace

std::unique_ptr<Layer> make_normalization(LayerInfo info, json::Arguments& config) {
  return std::make_unique<Normalization>(std::move(info), config);
}

std::unique_ptr<Layer> make_rescaling(LayerInfo info, json::Arguments& config) {
  return std::make_unique<Rescaling>(std::move(info), config);
}

}  // namespace tessera::models::layers
