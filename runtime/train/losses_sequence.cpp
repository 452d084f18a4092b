// Losses of sequences whose alignment is unknown. Formula: keras.losses.ctc, keras.md 5.2.
#include <array>

#include "runtime/ops/ctc.h"
#include "runtime/train/loss_base.h"

namespace tessera::train {
namespace {

// Graves et al. 2006, "Connectionist Temporal Classification". Class 0 is the blank and fills the
// labels up; every sequence has all the steps of its logits.
LossFunction make_ctc(json::Arguments&) {
  LossFunction loss = [](SymbolicTensor y_true, SymbolicTensor y_pred) -> LossValues {
    return {ops::ctc_loss(y_true, y_pred, 0), {}};
  };
  loss.class_axis = -1;
  return loss;
}

constexpr std::array kLosses = {
    LossEntry{"CTC", "ctc", "ctc", "", Targets::labels, make_ctc},
};

}  // namespace

std::span<const LossEntry> sequence_losses() { return kLosses; }

}  // namespace tessera::train
