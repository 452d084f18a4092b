// TerminateOnNaN: ends training when a loss is not finite.
#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "runtime/train/callback_families.h"

namespace tessera::train {
namespace {

/// Ends training when a batch's loss is not finite.
class TerminateOnNaN : public Callback {
 public:
  explicit TerminateOnNaN(json::Arguments& arguments)
      : raises_(arguments.boolean("raise_error", false)) {}
  bool needs_batch_loss() const override { return true; }
  void on_batch_end(FitContext& context, const BatchEvent& event) override {
    if (std::isfinite(event.loss)) return;
    const std::string text =
        fmt::format("Batch {}: Invalid loss, terminating training", event.batch);
    if (raises_)
      throw Error(Error::Kind::numbers, fmt::format("{} (epoch {}, step {}: loss is {})", text,
                                                    event.epoch + 1, event.step, event.loss));
    context.print(text);
    context.stop = true;
  }

 private:
  bool raises_;
};

}  // namespace

std::unique_ptr<Callback> make_terminate_on_nan(json::Arguments& arguments) {
  return std::make_unique<TerminateOnNaN>(arguments);
}

}  // namespace tessera::train
