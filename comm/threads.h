// The form of run_as_threads that tests use to meet the seams between pieces of large operations.
#pragma once

#include <cstdint>
#include <functional>

#include "comm/communicator.h"

namespace tessera::comm {

/// As in communicator.h, with slots of about this many bytes (Segment::slot_bytes_for).
void run_as_threads(int ranks, const std::function<void(World&)>& body, std::int64_t slot_bytes);

}  // namespace tessera::comm
