// Keras's callbacks, and what they may see and do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "runtime/train/session.h"

namespace tessera::train {

/// Where a run stands: what exact resume restores.
struct FitPosition {
  std::int64_t epoch = 0;   // from 0
  std::int64_t batch = 0;   // batches done in that epoch
  std::int64_t sample = 0;  // samples consumed of the current pass over the data
  std::int64_t pass = 0;    // passes over the data that were begun before this one
};

class Callback;
class WeightsCopy;  // runtime/train/callback_monitor.h

/// What fit offers to callbacks. All members agree on all ranks.
struct FitContext {
  Session& session;
  std::int64_t epochs = 1;  // index of the last epoch
  std::int64_t steps = 0;   // batches of an epoch
  /// The next batch to run. A callback that restores a run sets it in on_train_begin; it is up to
  /// date in all other calls.
  FitPosition position;
  const std::vector<Callback*>& callbacks;  // all of them, in order
  bool stop = false;                        // ends after this batch or epoch
  std::int64_t samples = 0;                 // rows of the training data
  std::string stop_error;  // not empty: fit throws numbers with this text after stopping
  /// Writes a line to standard output on rank 0 (a newline is added).
  void print(const std::string& line) const;
};

/// Result of a batch.
struct BatchEvent {
  std::int64_t epoch = 0;  // from 0
  std::int64_t batch = 0;  // from 0
  std::int64_t step = 0;   // over the run, from 1
  double loss = 0.0;       // of this batch; only where some callback asks for it
  double seconds = 0.0;    // since the batch began
};

class Callback {
 public:
  virtual ~Callback() = default;
  /// Name of its class in a config; empty for those that no config names.
  const std::string& class_name() const { return class_name_; }
  void set_class_name(std::string_view name) { class_name_ = name; }
  /// True when on_batch_end needs BatchEvent::loss (read after each step).
  virtual bool needs_batch_loss() const { return false; }
  virtual void on_train_begin(FitContext& /*context*/) {}
  virtual void on_epoch_begin(FitContext& /*context*/, std::int64_t /*epoch*/) {}
  virtual void on_batch_end(FitContext& /*context*/, const BatchEvent& /*event*/) {}
  /// May add to the logs (learning_rate).
  virtual void on_epoch_end(FitContext& /*context*/, std::int64_t /*epoch*/, Logs& /*logs*/) {}
  virtual void on_train_end(FitContext& /*context*/, const Logs& /*logs*/) {}
  /// Memory for exact resume, as JSON.
  virtual json::Value state() const { return json::make_null(); }
  virtual void restore(const json::Value& /*state*/) {}
  /// True for callbacks that save the memory of the others: they are called after them.
  virtual bool saves_state() const { return false; }
  /// Weights that it keeps aside, part of its memory; nullptr: none.
  virtual WeightsCopy* kept_weights() { return nullptr; }

 private:
  std::string class_name_;
};

/// Directions of metrics for mode "auto".
using Directions =
    std::vector<std::pair<std::string, int>>;  // shown name -> 1 up, -1 down, 0 unknown

/// One entry of the config's `callbacks`. Files that are written resolve against the working
/// folder. Unknown names and arguments are problems.
std::unique_ptr<Callback> make_callback(const json::Value& value, const std::string& path,
                                        json::Problems& problems);
/// Names of the classes, as Keras spells them.
std::vector<std::string> callback_classes();

/// Told before training starts.
class MonitorCallback : public Callback {
 public:
  virtual void set_directions(const Directions& directions) = 0;
};

}  // namespace tessera::train
