// The loop over epochs and batches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/train/callbacks.h"
#include "runtime/train/session.h"

namespace tessera::train {

struct FitOptions {
  std::int64_t epochs = 1;
  std::int64_t initial_epoch = 0;
  std::int64_t batch_size = 0;  // 0: 32, or ceil(rows / steps_per_epoch)
  data::Shuffle shuffle = data::Shuffle::samples;
  int verbose = 1;        // 0, 1, 2
  bool terminal = false;  // control codes for verbose 1
  std::optional<std::int64_t> steps_per_epoch;
  std::optional<std::int64_t> validation_steps;
  std::int64_t validation_batch_size = 0;       // 0: batch_size
  std::vector<std::int64_t> validation_epochs;  // validation_freq as a list (1-based epochs)
  std::int64_t validation_freq = 1;             // used when the list is empty
};

/// The global batch that options stand for.
std::int64_t batch_size_of(const FitOptions& options, std::int64_t rows);

/// History.history: values per epoch by name, in order of first appearance.
struct History {
  std::vector<std::pair<std::string, std::vector<double>>> values;
  std::vector<std::int64_t> epochs;
  void add(std::int64_t epoch, const Logs& logs);
};

/// Trains. Callbacks are called in order on every rank. Validation runs after the epochs that
/// options name.
History fit(Session& session, const data::Dataset& train, const data::Dataset* validation,
            const FitOptions& options, const std::vector<Callback*>& callbacks);

}  // namespace tessera::train
