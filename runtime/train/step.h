// Builds the graphs of a run: training, evaluation and prediction steps of a given batch size.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layouts/distribution.h"
#include "runtime/train/losses.h"
#include "runtime/train/metrics.h"
#include "runtime/train/optimizers.h"

namespace tessera::train {

/// What a model gives for one batch.
struct ForwardResult {
  std::vector<SymbolicTensor> outputs;
  std::vector<SymbolicTensor> masks;         // per output; invalid: none
  std::vector<SymbolicTensor> added_losses;  // scalars of the global batch: activity regularizers;
                                             // weight penalties are added by the step
};

/// Adds the model's nodes: inputs [batch, ...] in the order of ModelInterface::inputs. Updates of
/// moving statistics are assigned through the builder when `training`.
using Forward = std::function<ForwardResult(
    graph::Builder& builder, const std::vector<SymbolicTensor>& inputs, bool training)>;

struct TensorSpec {
  std::string name;
  Shape sample_shape;  // without the batch dimension
  DType dtype = DType::float32;
  std::int64_t limit = 0;  // integer ids of this input must lie below it (vocabulary of the
                           // Embedding that reads it); 0: none
};

/// The model as training sees it.
struct ModelInterface {
  std::string name;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;  // names as Keras's metric prefixes use them
  Forward forward;
};

/// What `compile` was told, resolved for the model: one entry per output where lists stand.
struct CompiledLosses {
  std::vector<std::unique_ptr<Loss>> losses;  // null: none for that output
  std::vector<double> weights;                // loss_weights; 1 where not given
};
struct CompiledMetric {
  std::unique_ptr<Metric> metric;
  std::size_t output = 0;
  bool weighted = false;   // from weighted_metrics
  std::string shown_name;  // with the output's prefix where there are several outputs
};
struct CompiledTraining {
  CompiledLosses losses;
  std::vector<CompiledMetric> metrics;
  std::unique_ptr<Optimizer> optimizer;  // null for evaluation and prediction alone
};

/// Reads the config's `compile` section (or Keras's compile_config). Target specs (shape and dtype
/// of one sample per output) come from the data. All problems are collected.
CompiledTraining read_compile(const json::Value& compile, const std::string& path,
                              const ModelInterface& model, const std::vector<TensorSpec>& targets,
                              bool mixed_float16, json::Problems& problems);

/// Checks names and arguments where the targets are not known yet: what can be told before data is opened.
void check_compile(const json::Value& compile, const std::string& path, const ModelInterface& model, bool mixed_float16,
                   json::Problems& problems);

/// Order of a step's inputs: model inputs, then targets (in the order of `targets`, matched to
/// outputs by name: "target/<output>"), then sample weights where given. class_weight is no matter
/// of the step: the data side multiplies it into the sample weights.
struct StepOptions {
  std::int64_t batch = 0;  // global batch of this program
  std::vector<TensorSpec> targets;
  bool sample_weights = false;  // [batch, ...] inputs "sample_weight/<output>": one per target, or
                                // one for all outputs
  std::vector<Shape>
      sample_weight_shapes;  // one per such input; of one sample: [] for one weight a sample
  bool loss_output = false;  // the batch's total loss as output "loss" (whole on every rank)
};

/// Outputs "predictions/<i>", float32 and whole on every rank. Needs no compile.
graph::Graph prediction_step(const ModelInterface& model, graph::VariableTable& table,
                             const layouts::Distribution& distribution, std::int64_t batch);

class StepBuilder {
 public:
  /// Everything outlives the builder. Declares optimizer slots and metric totals in `table`, and
  /// binds storage placements of optimizer slots (they inherit their variable's; ZeRO cuts them
  /// further). Weights must be declared and placed already.
  StepBuilder(const ModelInterface& model, CompiledTraining& training, graph::VariableTable& table,
              const layouts::Distribution& distribution);

  graph::Graph training_step(const StepOptions& options) const;
  /// Losses and metrics only. Uses the same totals.
  graph::Graph evaluation_step(const StepOptions& options) const;
  /// Outputs "predictions/<i>", whole on every rank.
  graph::Graph prediction_step(std::int64_t batch) const;
  /// Ends fit (EMA); nullopt when there is nothing to do.
  std::optional<graph::Graph> finishing_step() const;
  /// Names and results of all totals, in Keras's order of logs: from whole values of metric
  /// variables.
  struct Reported {
    std::string name;
    const Metric* metric;
  };
  const std::vector<Reported>& reported() const { return reported_; }

 private:
  struct Losses;
  Losses add_losses(graph::Builder& builder, const StepOptions& options, bool training) const;
  void add_data(graph::Builder& builder, const StepOptions& options, Losses& result) const;
  void add_totals(graph::Builder& builder, const StepOptions& options, const Losses& losses) const;

  const ModelInterface& model_;
  CompiledTraining& training_;
  graph::VariableTable& table_;
  const layouts::Distribution& distribution_;
  MeanMetric total_loss_{"loss"};
  std::vector<MeanMetric> output_losses_;
  std::vector<Reported> reported_;
};

}  // namespace tessera::train
