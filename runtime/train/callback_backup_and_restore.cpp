// BackupAndRestore: checkpoints that last until the run is over.
#include <filesystem>

#include "runtime/train/callback_families.h"
#include "runtime/train/checkpoint.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

/// Keeps the state of a run while it goes on, and takes an interrupted one up where it stopped.
class BackupAndRestore : public Callback {
 public:
  explicit BackupAndRestore(json::Arguments& arguments) {
    arguments.required("backup_dir");
    folder_ = arguments.text("backup_dir", "");
    Checkpoints::Options options{.every_epochs = 1, .every_steps = 0, .keep = 1, .resume = "auto"};
    const json::Value* freq = arguments.value("save_freq");
    if (freq != nullptr && freq->is_string()) arguments.choice("save_freq", "epoch", {"epoch"});
    if (freq != nullptr && !freq->is_string())
      options = {0, arguments.integer("save_freq", 0, 1), 1, "auto"};
    if (arguments.boolean("double_checkpoint", false)) options.keep = 2;
    deletes_ = arguments.boolean("delete_checkpoint", true);
    checkpoints_ = std::make_unique<Checkpoints>(folder_, options);
  }
  bool saves_state() const override { return true; }
  void on_train_begin(FitContext& context) override { checkpoints_->on_train_begin(context); }
  void on_batch_end(FitContext& context, const BatchEvent& event) override {
    checkpoints_->on_batch_end(context, event);
  }
  void on_epoch_end(FitContext& context, std::int64_t epoch, Logs& logs) override {
    checkpoints_->on_epoch_end(context, epoch, logs);
  }
  void on_train_end(FitContext& context, const Logs& /*logs*/) override {
    context.session.world().all().barrier();
    if (!deletes_ || !context.session.is_first_rank()) return;
    for (const std::string& checkpoint : list_checkpoints(folder_)) fs::remove_all(checkpoint);
    std::error_code not_empty;
    fs::remove(folder_, not_empty);
  }

 private:
  std::string folder_;
  bool deletes_ = true;
  std::unique_ptr<Checkpoints> checkpoints_;
};

}  // namespace

std::unique_ptr<Callback> make_backup_and_restore(json::Arguments& arguments) {
  return std::make_unique<BackupAndRestore>(arguments);
}

}  // namespace tessera::train
