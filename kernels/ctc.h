// Connectionist temporal classification: the loss of label sequences without alignment.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/device.h"

namespace tessera::kernels {

/// labels [batch, max_labels] of any type of ids; logits [batch, frames, classes] floating; loss,
/// dloss [batch] in float32 (float64 for float64).
struct CtcArgs {
  DType labels_dtype = DType::int32;
  DType dtype = DType::float32;  // of the logits
  std::int64_t batch = 0;
  std::int64_t max_labels = 0;
  std::int64_t frames = 0;
  std::int64_t classes = 0;
  /// Class of "no label"; labels of this class do not count towards a sequence's length.
  std::int64_t blank = 0;
};

/// Scratch bytes of either call.
std::int64_t ctc_workspace(const CtcArgs& args);

/// loss[b] = -log of the probability that the frames' labels, with repeats merged and blanks
/// removed, are the first L labels of row b, where L is the number of labels in the row that differ
/// from `blank`. Computed in log space in float64, by the recursion over states "after n labels"
/// (blank seen) and "in label n" of Graves and others, "Connectionist temporal classification"
/// (ICML 2006). Transitions that are not allowed cost 1e5 instead of infinity, as in Keras on JAX:
/// sequences that do not fit into the frames have a large finite loss. A label outside 0..classes-1
/// has probability 1 in every frame.
void ctc_loss(const CtcArgs& args, const void* labels, const void* logits, void* loss,
              void* workspace, const CpuDevice& device);

/// dlogits [batch, frames, classes]: the derivative of the recursion, times dloss.
void ctc_gradient(const CtcArgs& args, const void* labels, const void* logits, const void* dloss,
                  void* dlogits, void* workspace, const CpuDevice& device);

}  // namespace tessera::kernels
