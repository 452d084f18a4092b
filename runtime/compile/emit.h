// Last pass: the flat program.
#pragma once

#include <vector>

#include "runtime/compile/draft.h"
#include "runtime/compile/memory.h"
#include "runtime/compile/program.h"
#include "runtime/compile/schedule.h"

namespace tessera::compile {

Program emit(const Draft& draft, const std::vector<Event>& events, const MemoryPlan& memory,
             int rank);

}  // namespace tessera::compile
