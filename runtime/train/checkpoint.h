// Checkpoints of the whole training state, readable on any mesh.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/train/callbacks.h"

namespace tessera::train {

/// Writes `folder` with state.safetensors (every variable whole, by path) and training.json
/// (position, step, callbacks' memory). Made under a temporary name, flushed, renamed: the folder
/// is there whole or not at all. Collective; a failure on any rank is thrown on all, and leaves
/// older folders alone.
void save_checkpoint(const std::string& folder, FitContext& context);

/// Restores variables, step, position and callbacks. Throws weights, naming the file, when it does
/// not fit the run. Collective.
void load_checkpoint(const std::string& folder, FitContext& context);

/// Folders "step_<n>" in `parent` that hold a readable checkpoint, newest first.
std::vector<std::string> list_checkpoints(const std::string& parent);

/// Removes what `list_checkpoints` finds: a run that starts afresh in the folder of an earlier one
/// must not be resumed from that one's. On one rank.
void remove_checkpoints(const std::string& parent);

/// Saves by epochs or steps, keeps the newest `keep`, and goes on from one when asked to. Once it
/// saves, checkpoints of later steps go: they belong to a course that was left by resuming from an
/// older one.
class Checkpoints : public Callback {
 public:
  struct Options {
    std::int64_t every_epochs = 0;
    std::int64_t every_steps = 0;
    std::int64_t keep = 3;
    std::string resume;  // "", "auto", or a folder
  };
  Checkpoints(std::string folder, Options options);
  bool saves_state() const override { return true; }
  void on_train_begin(FitContext& context) override;
  void on_batch_end(FitContext& context, const BatchEvent& event) override;
  void on_epoch_end(FitContext& context, std::int64_t epoch, Logs& logs) override;

 private:
  void save(FitContext& context);

  std::string folder_;
  Options options_;
};

}  // namespace tessera::train
