// Sixth pass: where every value of one rank lies.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/compile/draft.h"
#include "runtime/compile/program.h"
#include "runtime/compile/schedule.h"

namespace tessera::compile {

/// Memory of one value.
struct Place {
  ProgramTensor::Space space = ProgramTensor::Space::arena;
  std::int64_t offset = 0;
  graph::VariableId variable = -1;
  int input = -1;
  DraftId content_of = kNoDraft;
};

struct Scratch {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

struct MemoryPlan {
  std::vector<Place> places;                                  // by DraftId
  std::vector<Scratch> workspaces;                            // by event
  std::vector<std::pair<graph::VariableId, DraftId>> copies;  // made at the end, in this order
  std::int64_t arena_bytes = 0;
  MemoryReport report;
};

/// Views and sums made in place share memory with their operand; a variable's new value is written
/// straight into its buffer where its old one is not needed any more; results take over the memory
/// of operands that end with them where the op allows; members of a bucket lie one after another;
/// all else is placed by lifetime. Buffers of a collective live until its wait.
MemoryPlan plan_memory(const Draft& draft, const std::vector<Event>& events, int rank);

}  // namespace tessera::compile
