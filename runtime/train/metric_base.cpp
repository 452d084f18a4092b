// Totals and sums of samples; the plain mean.
#include "runtime/train/metric_base.h"

#include <fmt/format.h>

#include "runtime/ops/ops.h"

namespace tessera::train {

using ops::operator+;
using ops::operator*;

std::vector<graph::VariableId> declare_totals(graph::VariableTable& table,
                                              const std::string& shown_name,
                                              const std::vector<Total>& totals) {
  std::vector<graph::VariableId> ids;
  for (const Total& total : totals) {
    graph::Variable variable;
    variable.path = fmt::format("{}/{}", shown_name, total.name);
    variable.shape = total.shape;
    variable.trainable = false;
    variable.role = graph::Role::metric;
    ids.push_back(table.declare(std::move(variable)));
  }
  return ids;
}

void accumulate(graph::Builder& builder, graph::VariableId total, SymbolicTensor addend) {
  builder.assign(total, builder.variable(total) + addend);
}

namespace {

std::vector<int> dims_from(std::size_t first, std::size_t rank) {
  std::vector<int> dims;
  for (std::size_t dim = first; dim < rank; ++dim) dims.push_back(static_cast<int>(dim));
  return dims;
}

SymbolicTensor reduce_from(SymbolicTensor x, std::size_t first, bool mean) {
  if (x.rank() <= first) return x;
  const std::vector<int> dims = dims_from(first, x.rank());
  return mean ? ops::mean(x, dims) : ops::sum(x, dims);
}

// The sum over all samples; a sample of several values counts as their mean where `mean` is set.
SymbolicTensor sum_all(SymbolicTensor x, bool mean) {
  if (x.rank() == 0) return x;
  const SymbolicTensor total = ops::sum(x);
  const std::int64_t samples = x.shape()[0];
  if (!mean || samples == 0 || x.shape().elements() == samples) return total;
  return total * (static_cast<double>(samples) / static_cast<double>(x.shape().elements()));
}

}  // namespace

SampleSums sum_samples(graph::Builder& builder, const LossValues& values, SymbolicTensor weight,
                       bool mean) {
  SymbolicTensor x = as_float(values.values);
  if (!weight) {
    const double samples = x.rank() == 0 ? 1.0 : static_cast<double>(x.shape()[0]);
    return {sum_all(x, mean), ops::full(builder, Shape{}, samples)};
  }
  weight = masked_weight(weight, values.mask);
  squeeze_or_expand_to_same_rank(x, weight);
  x = reduce_from(x, weight.rank(), mean);
  // Where a weight stands for a whole dimension its mean over that dimension is itself: no need to
  // spread it first.
  return {sum_all(x * weight, mean), sum_all(weight, mean)};
}

SymbolicTensor constant_vector(graph::Builder& builder, const std::vector<double>& values) {
  return ops::constant(builder, Shape{static_cast<std::int64_t>(values.size())}, values);
}

double divide_no_nan(double a, double b) { return b == 0.0 ? 0.0 : a / b; }

SymbolicTensor spread_weight(SymbolicTensor weight, Shape values) {
  weight = as_float(weight);
  if (weight.rank() == values.rank() + 1 && weight.shape().back() == 1) {
    weight = ops::squeeze(weight, -1);
  }
  while (weight.rank() > 0 && weight.rank() < values.rank()) weight = ops::expand_dims(weight, -1);
  return weight.shape() == values ? weight : ops::broadcast_to(weight, values);
}

void MeanMetric::declare(graph::VariableTable& table, const std::string& shown_name) {
  variables_ = declare_totals(table, shown_name, {{"total", {}}, {"count", {}}});
}

void MeanMetric::update(graph::Builder& builder, SymbolicTensor, SymbolicTensor y_pred,
                        SymbolicTensor weight, SymbolicTensor mask) const {
  const SampleSums sums =
      sum_samples(builder, {y_pred, {}}, masked_weight(weight, mask), /*mean=*/true);
  accumulate(builder, variables_[0], sums.total);
  accumulate(builder, variables_[1], sums.count);
}

void MeanMetric::update_mean(graph::Builder& builder, SymbolicTensor value, double weight) const {
  accumulate(builder, variables_[0], as_float(value) * weight);
  accumulate(builder, variables_[1], ops::full(builder, Shape{}, weight));
}

double MeanMetric::result(std::span<const std::vector<double>> totals) const {
  return divide_no_nan(totals[0][0], totals[1][0]);
}

}  // namespace tessera::train
