// One model on one job: variables in memory, programs compiled on demand, batches run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "kernels/device.h"
#include "layouts/distribution.h"
#include "runtime/compile/compile.h"
#include "runtime/data/batches.h"
#include "runtime/data/dataset.h"
#include "runtime/exec/executor.h"
#include "runtime/train/step.h"

namespace tessera::train {

/// Names and values as logs show them, in Keras's order of collection (loss first, then metrics as
/// declared).
using Logs = std::vector<std::pair<std::string, double>>;
const double* find_log(const Logs& logs, std::string_view name);

/// The part of a run that `compile` fixes, for data of a given kind.
struct DataTypes {
  std::vector<TensorSpec> targets;  // one per output that has data
  bool sample_weights = false;
  std::vector<Shape> sample_weight_shapes;
};
/// Types of a data set's targets and weights: integers become int32, everything else float32.
DataTypes types_of(const data::Dataset& dataset);

/// The kinds of step there are.
enum class StepKind : std::uint8_t { train, evaluate, predict, finish };

/// Reads the rows that this rank holds of every input of one data set.
class Feeds {
 public:
  /// Columns in the order of a step's inputs.
  Feeds(const data::Dataset& dataset, bool with_targets, const ModelInterface& model);
  /// Pointers to local rows of a batch whose first sample is at position `first`.
  const std::vector<const void*>& load(const compile::Program& program, const data::Order& order,
                                       std::int64_t first);

 private:
  std::vector<data::InputFeed> feeds_;
  std::vector<const void*> pointers_;
};

class Session {
 public:
  /// `table` holds the model's declared and placed weights; all references outlive the session.
  Session(comm::World& world, const layouts::Distribution& distribution,
          const ModelInterface& model, graph::VariableTable& table, std::uint64_t seed,
          kernels::Device device);
  ~Session();

  comm::World& world() { return world_; }
  const layouts::Distribution& distribution() const { return distribution_; }
  const ModelInterface& model() const { return model_; }
  graph::VariableTable& table() { return table_; }
  exec::Storage& storage() { return *storage_; }
  std::uint64_t seed() const { return seed_; }
  bool is_first_rank() const { return world_.rank() == 0; }

  /// Once, before anything but prediction is run: declares optimizer slots and totals, initialises them.
  void compile(CompiledTraining training);
  bool compiled() const { return builder_ != nullptr; }
  CompiledTraining& training() { return training_; }
  /// Directions of all totals by their shown names, for callbacks.
  std::vector<std::pair<std::string, int>> directions() const;
  /// A number for these types, to prepare steps with.
  int types_id(const DataTypes& types);

  /// The program of a step; compiled when first asked for. `loss_output`: with the batch's loss as
  /// a result.
  struct Prepared {
    compile::Program program;
    std::unique_ptr<exec::Executor> executor;
  };
  Prepared& prepare(StepKind kind, std::int64_t batch, int types, bool loss_output = false);

  /// Zeroes all totals.
  void reset_metrics();
  /// Results of all totals, collected over the job. Collective.
  Logs read_metrics();
  /// Runs every batch of a data set once (`steps` at most, where given) and reads the totals.
  /// Restores nothing: resets them first.
  Logs evaluate(const data::Dataset& dataset, std::int64_t batch_size,
                std::optional<std::int64_t> steps = {});
  /// Output values, whole, in the order of samples: `sink(output, first_row, rows, values)` on
  /// every rank, values row-major float32.
  using PredictionSink = std::function<void(std::size_t output, std::int64_t first_row,
                                            std::int64_t rows, const float* values)>;
  void predict(const data::Dataset& dataset, std::int64_t batch_size, const PredictionSink& sink);
  /// What ends fit (EMA).
  void finish();

  /// Scalars that callbacks read and write.
  double learning_rate();
  /// Throws config where the optimizer has a schedule.
  void set_learning_rate(double value);

  /// Steps trained so far: the counter of random streams.
  std::uint64_t step = 0;

 private:
  std::unique_ptr<graph::Graph> build(StepKind kind, std::int64_t batch, int types, bool loss_output) const;

  comm::World& world_;
  const layouts::Distribution& distribution_;
  const ModelInterface& model_;
  graph::VariableTable& table_;
  std::uint64_t seed_;
  kernels::Device device_;
  CompiledTraining training_;
  std::vector<DataTypes> types_;  // by id
  std::unique_ptr<StepBuilder> builder_;
  std::unique_ptr<exec::Storage> storage_;
  exec::Arena arena_;
  std::map<std::tuple<StepKind, std::int64_t, int, bool>, Prepared> prepared_;
};

}  // namespace tessera::train
