// How many threads a rank computes with, and on which cores.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "kernels/device.h"

namespace tessera::exec {

/// Sets up OpenMP for this rank and returns its device. `threads` 0: cores that the rank may use /
/// ranks that share them, at least one. mpirun by default binds every rank to one core; where the
/// user asked for no binding of his own, the ranks of the node divide all of its cores among
/// themselves instead. Limits of a container count. Collective; to be called before anything
/// computes.
kernels::Device cpu_device(comm::World& world, int threads = 0);

/// Part of `cores` for rank `rank` of `ranks`: neighbours, balanced; all of them where there are
/// more ranks than cores.
std::vector<int> share_of_cores(const std::vector<int>& cores, int rank, int ranks);

}  // namespace tessera::exec
