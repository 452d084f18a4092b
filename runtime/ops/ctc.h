// CTC loss: label sequences without alignment to the frames.
#pragma once

#include "runtime/graph/builder.h"

namespace tessera::ops {

/// labels [batch, max_labels] (integers or whole floats, padded with `mask_index`), logits [batch,
/// frames, classes]: losses [batch] in float32 (float64 for float64 logits). `mask_index` is also
/// the class of the blank. A row's length is the number of its labels that are not `mask_index`;
/// all frames count: as keras.losses.CTC. Only the batch may be cut. Throws config when shapes do
/// not fit.
graph::SymbolicTensor ctc_loss(graph::SymbolicTensor labels, graph::SymbolicTensor logits,
                               int mask_index = 0);

}  // namespace tessera::ops
