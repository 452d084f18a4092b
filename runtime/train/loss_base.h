// What all losses share: formulas with their arguments, fitting of ranks, weights, masks and
// reductions.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/arguments.h"
#include "runtime/train/losses.h"

namespace tessera::train {

/// Keras's fuzz factor: the smallest number that is divided by or taken the logarithm of.
inline constexpr double kEpsilon = 1e-7;

/// What a formula gives. `mask` (boolean, of the values' shape) is valid where the formula itself
/// leaves values out: `ignore_class`, rows of Circle without a pair.
struct LossValues {
  SymbolicTensor values;
  SymbolicTensor mask;
};

/// Whether targets are numbers (cast to float32) or labels (integers are kept, all else is cast to
/// int32).
enum class Targets : std::uint8_t { numbers, labels };

/// A loss with its arguments, as a function of fitted targets and predictions.
struct LossFunction {
  template <typename Function>
  LossFunction(Function function) : apply(std::move(function)) {}

  LossValues operator()(SymbolicTensor y_true, SymbolicTensor y_pred) const {
    return apply(y_true, y_pred);
  }

  std::function<LossValues(SymbolicTensor, SymbolicTensor)> apply;
  /// Set where targets are ids of classes: the dimension of the predictions that counts them.
  std::optional<int> class_axis;
  std::optional<std::int64_t> ignored_class;  // an id that stands for "no target"
};

/// A function of targets and predictions together with what is done to them before: casts, then one
/// dimension of size 1 squeezed or added at the end where ranks differ by one.
struct Formula {
  Targets targets;
  LossFunction function;

  LossValues operator()(SymbolicTensor y_true, SymbolicTensor y_pred) const;
};

/// One loss of Keras: the single place that has to be touched to add one.
struct LossEntry {
  std::string_view class_name;     // "MeanSquaredError"
  std::string_view function_name;  // "mean_squared_error"
  std::string_view default_name;   // of the class's objects
  std::string_view aliases;        // separated by spaces: "mse MSE"
  Targets targets;
  LossFunction (*make)(json::Arguments& arguments);  // reads the loss's own arguments
};

// The tables; each stands at the end of the file that holds the formulas.
std::span<const LossEntry> regression_losses();      // losses_regression.cpp
std::span<const LossEntry> classification_losses();  // losses_classification.cpp
std::span<const LossEntry> structured_losses();      // losses_structured.cpp
std::span<const LossEntry> sequence_losses();        // losses_sequence.cpp

/// By class, function or alias; nullptr when there is none.
const LossEntry* find_loss(std::string_view name);
/// Every name that `find_loss` knows.
std::vector<std::string> loss_names();
/// The words of a list that are separated by spaces.
std::vector<std::string> words_of(std::string_view list);
bool is_word_of(std::string_view name, std::string_view list);

/// A `make` of losses without arguments.
template <SymbolicTensor (*kFunction)(SymbolicTensor, SymbolicTensor)>
LossFunction without_arguments(json::Arguments&) {
  return [](SymbolicTensor y_true, SymbolicTensor y_pred) {
    return LossValues{kFunction(y_true, y_pred), {}};
  };
}

/// Which of the crossentropies or accuracies the shapes ask for: predictions of last dimension 1
/// are binary; targets of lower rank, or of last dimension 1 where the predictions' is larger, are
/// sparse (keras.md 5.2).
enum class LabelKind : std::uint8_t { binary, sparse, categorical };
LabelKind label_kind(const OutputTypes& types);

enum class Reduction : std::uint8_t {
  sum_over_batch_size,
  mean,
  mean_with_sample_weight,
  sum,
  none
};

/// The scalar loss; see Loss::operator(). Weights of lower rank than the values are those of their
/// leading dimensions.
SymbolicTensor reduce_loss(const LossValues& losses, SymbolicTensor weight, SymbolicTensor mask,
                           Reduction reduction);

/// Squeezes or adds one last dimension of size 1 where the ranks differ by one.
void squeeze_or_expand_to_same_rank(SymbolicTensor& a, SymbolicTensor& b);
/// The product, the operand of lower rank being given dimensions of size 1 at its end.
SymbolicTensor multiply_leading(SymbolicTensor a, SymbolicTensor b);
/// Weight times mask; either may be absent, the result is where both are.
SymbolicTensor masked_weight(SymbolicTensor weight, SymbolicTensor mask);
/// a / b, 0 where b is 0.
SymbolicTensor divide_no_nan(SymbolicTensor a, SymbolicTensor b);
/// x divided by its length along `dims`, which is at least kEpsilon.
SymbolicTensor normalize(SymbolicTensor x, const std::vector<int>& dims);
SymbolicTensor as_float(SymbolicTensor x);
SymbolicTensor as_labels(SymbolicTensor x);
/// The argument `axis`: an integer or a list of them.
std::vector<int> read_axis(json::Arguments& arguments, std::vector<int> fallback);
/// Throws config unless both shapes are the same.
void require_same_shape(SymbolicTensor y_true, SymbolicTensor y_pred);

/// "[batch, 3]".
std::string sample_shape(const graph::ValueType& type);
/// Adds a problem at `value`.
void add_problem(json::Problems& problems, const json::Value& value, const std::string& path,
                 std::string message);
/// Builds what `build` builds into a graph that is thrown away, given targets and predictions of
/// these types; an Error about shapes becomes a problem at `value`. Returns whether all was well
/// (also where a type is unknown: an empty shape).
bool fits(const OutputTypes& types, const json::Value& value, const std::string& path,
          std::string_view noun, std::string_view name, json::Problems& problems,
          const std::function<void(graph::Builder&, SymbolicTensor, SymbolicTensor)>& build);

}  // namespace tessera::train
