// Keras's metrics: totals kept in variables (as pending sums on a mesh), results computed on the
// host when read.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/train/losses.h"

namespace tessera::train {

/// One metric of one output.
class Metric {
 public:
  virtual ~Metric() = default;
  /// As shown in logs, without the output's prefix: "accuracy" when the user wrote "accuracy".
  const std::string& name() const { return name_; }
  /// True where Keras makes the name from the class and numbers it: of several such metrics,
  /// counted over metrics and weighted_metrics together, the second is "precision_1".
  bool numbered() const { return numbered_; }
  void set_numbered(bool numbered) { numbered_ = numbered; }
  /// 1 larger is better, -1 smaller is better, 0 unknown: for callbacks in mode "auto".
  virtual int direction() const { return 0; }
  /// Declares the totals (role metric, paths "<name>/total", "<name>/count", ...; `shown_name`
  /// makes them unique). Once.
  virtual void declare(graph::VariableTable& table, const std::string& shown_name) = 0;
  const std::vector<graph::VariableId>& variables() const { return variables_; }
  /// Adds nodes that add this batch to the totals, and assigns them. weight and mask may be absent.
  virtual void update(graph::Builder& builder, SymbolicTensor y_true, SymbolicTensor y_pred,
                      SymbolicTensor weight, SymbolicTensor mask) const = 0;
  /// From the whole values of `variables()`, in that order.
  virtual double result(std::span<const std::vector<double>> totals) const = 0;

 protected:
  std::string name_;
  std::vector<graph::VariableId> variables_;

 private:
  bool numbered_ = false;
};

/// From a string or {"class_name", "config"}; unknown names, arguments and shapes that do not fit
/// are added to `problems` (nullptr is returned then).
std::unique_ptr<Metric> make_metric(const json::Value& value, const std::string& path,
                                    const OutputTypes& types, json::Problems& problems);
/// Names of the classes, as Keras spells them.
std::vector<std::string> metric_classes();

/// sum(value * weight) and sum(weight): the loss trackers ("loss", "<output>_loss") and other plain
/// means.
class MeanMetric : public Metric {
 public:
  explicit MeanMetric(std::string name) { name_ = std::move(name); }
  int direction() const override { return -1; }
  void declare(graph::VariableTable& table, const std::string& shown_name) override;
  void update(graph::Builder& builder, SymbolicTensor y_true, SymbolicTensor y_pred,
              SymbolicTensor weight, SymbolicTensor mask) const override;
  /// Adds a scalar that counts as `weight` samples.
  void update_mean(graph::Builder& builder, SymbolicTensor value, double weight) const;
  double result(std::span<const std::vector<double>> totals) const override;
};

}  // namespace tessera::train
