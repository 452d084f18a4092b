// The number that all ranks compare before their first collective.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/compile/draft.h"
#include "runtime/compile/schedule.h"

namespace tessera::compile {

/// FNV-1a over what must agree between ranks: mesh, order of events, names, attributes, global
/// shapes, dtypes and placements of values, collectives with axes and what they carry. Nothing that
/// differs between ranks enters.
std::uint64_t hash_of(const Draft& draft, const std::vector<Event>& events);

}  // namespace tessera::compile
