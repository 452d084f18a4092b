// The job that this process belongs to, joined on first use.
#pragma once

#include "comm/communicator.h"
#include "kernels/device.h"

namespace tessera {

/// Joins the job when it has not been joined yet.
comm::World& job();
/// The device of this rank: the CPU with its share of the node's cores, or `threads` of them.
kernels::Device job_device(int threads = 0);
/// Threads per rank for devices made from now on; 0: the node's cores divided by its ranks.
void set_threads(int threads);

}  // namespace tessera
