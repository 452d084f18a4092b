// Fifth pass: the order of a step, with collectives split into start and wait.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/compile/draft.h"
#include "runtime/compile/program.h"

namespace tessera::compile {

struct Event {
  Instruction::Kind kind = Instruction::Kind::compute;
  std::int32_t node = -1;
};

/// Nodes in the draft's order. A collective (with the copies that only feed it) starts as soon as
/// its data are made within the same phase, and is waited for just before the first reader of its
/// result, or at the end. Gathers of variables start one ahead: when the wait for the gather before
/// them is over. The same on all ranks.
std::vector<Event> schedule(const Draft& draft);

}  // namespace tessera::compile
