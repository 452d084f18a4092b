// What a run writes into its folder: metrics.jsonl, history.json, plan.json, weights.safetensors.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "runtime/train/callbacks.h"
#include "runtime/train/fit.h"

namespace tessera::train {

/// Writes metrics.jsonl on rank 0 as training goes on: step lines every `log_steps` steps (0:
/// none), a line per epoch, one at the end; flushed line by line. `append` goes on with an existing
/// file.
class MetricsFile : public Callback {
 public:
  MetricsFile(const std::string& path, std::int64_t log_steps, bool first_rank, bool append);
  ~MetricsFile() override;
  bool needs_batch_loss() const override { return log_steps_ > 0; }
  void on_batch_end(FitContext& context, const BatchEvent& event) override;
  void on_epoch_begin(FitContext& context, std::int64_t epoch) override;
  void on_epoch_end(FitContext& context, std::int64_t epoch, Logs& logs) override;
  void on_train_end(FitContext& context, const Logs& logs) override;

 private:
  void write(const json::Value& line);

  std::string path_;
  std::int64_t log_steps_;
  std::FILE* file_ = nullptr;
  double epoch_began_ = 0.0;
};

/// {"loss": [...], ...}.
json::Value history_json(const History& history);
/// A number as JSON; null where it is not finite.
json::Value number_json(double value);
}  // namespace tessera::train
