// One call of an op on one rank, watched: what it writes, and that it writes nothing else.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/graph/op.h"
#include "tests/support/buffer.h"

namespace tessera::testing {

struct RunResult {
  std::vector<Buffer> outputs;
  std::string problem;  // what the call did that it must not; "" when nothing
};

/// Prepares and runs one call on one thread, at step 3. Results and workspace are filled with
/// `fill` first and lie between guard bytes; empty parts are null pointers. `in_place` {output,
/// input}: the output gets the memory of the input.
RunResult run_call(const graph::Op& op, const graph::LocalCall& call,
                   const std::vector<Buffer>& inputs, unsigned char fill,
                   std::pair<int, int> in_place = {-1, -1});

}  // namespace tessera::testing
