// Keras's losses as formulas over graph values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "runtime/graph/builder.h"

namespace tessera::train {

using graph::SymbolicTensor;

/// One loss with its arguments. Predictions and targets are cast to float32 first; targets are
/// squeezed or expanded by one last dimension where Keras does so.
class Loss {
 public:
  virtual ~Loss() = default;
  /// Name used for metric names and messages: "mean_squared_error".
  virtual const std::string& name() const = 0;
  /// Losses of every element: [batch, ...] without the class dimension. For the cases in which the
  /// reduction is done outside.
  virtual SymbolicTensor values(SymbolicTensor y_true, SymbolicTensor y_pred) const = 0;
  /// The scalar loss of the global batch: reduction "sum_over_batch_size" (sum of values times
  /// weights, divided by the static number of values), "sum", "mean", "mean_with_sample_weight",
  /// "none" (summed as Keras's trainer does). `weight`: [batch] or broadcastable to the values;
  /// `mask`: boolean, of the values' shape; both may be absent. A mask is rescaled by total / valid
  /// as in Keras.
  virtual SymbolicTensor operator()(SymbolicTensor y_true, SymbolicTensor y_pred,
                                    SymbolicTensor weight, SymbolicTensor mask) const = 0;
  /// Number of classes that integer targets are checked against, for predictions of this sample
  /// shape; 0: targets are no class ids.
  virtual std::int64_t classes(const Shape& /*prediction*/) const { return 0; }
  /// A class id that stands for "no target" (ignore_class), allowed besides.
  virtual std::optional<std::int64_t> ignored_class() const { return std::nullopt; }
};

/// Shapes of one output (with the batch dimension; its size does not matter), for names that depend
/// on them ("crossentropy", "accuracy").
struct OutputTypes {
  graph::ValueType y_true;
  graph::ValueType y_pred;
};

/// From a string or {"class_name", "config"}; unknown names and arguments are added to `problems`
/// (nullptr is returned then).
std::unique_ptr<Loss> make_loss(const json::Value& value, const std::string& path,
                                const OutputTypes& types, json::Problems& problems);
/// Names of the classes, as Keras spells them.
std::vector<std::string> loss_classes();

}  // namespace tessera::train
