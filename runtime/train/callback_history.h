// The callback that keeps History, so that a resumed run goes on with the epochs before the cut.
#pragma once

#include "runtime/train/fit.h"

namespace tessera::train {

/// Notes the logs of every epoch, after those that add to them and before those that save.
class HistoryCallback : public Callback {
 public:
  void on_epoch_end(FitContext& context, std::int64_t epoch, Logs& logs) override;
  json::Value state() const override;
  /// Throws weights when the state is no history.
  void restore(const json::Value& state) override;
  const History& history() const { return history_; }

 private:
  History history_;
};

}  // namespace tessera::train
