// Affinity, cores and limits of containers as Linux tells them.
#include "runtime/exec/threads.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "layouts/placement.h"

namespace tessera::exec {
namespace {

/// Processors (hardware threads) that this process may run on.
std::vector<int> allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  std::vector<int> processors;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (CPU_ISSET(processor, &set)) processors.push_back(processor);
  }
  return processors;
}

bool allow_processors(const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(processor, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

/// The first hardware thread of the core that `processor` belongs to; itself where the system does
/// not tell.
int core_of(int processor) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(processor) +
                     "/topology/thread_siblings_list");
  int first = processor;
  if (!(file >> first)) return processor;
  return first;
}

std::vector<int> cores_of(const std::vector<int>& processors) {
  std::vector<int> cores;
  for (const int processor : processors) cores.push_back(core_of(processor));
  std::ranges::sort(cores);
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  return cores;
}

/// Processors' worth of time that the container grants to all its processes; infinite without a
/// limit.
double granted_processors() {
  std::ifstream unified("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0.0;
  if (unified >> quota >> period && quota != "max" && period > 0.0) {
    return std::strtod(quota.c_str(), nullptr) / period;
  }
  std::ifstream old_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream old_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double microseconds = 0.0;
  if (old_quota >> microseconds && old_period >> period && microseconds > 0.0 && period > 0.0) {
    return microseconds / period;
  }
  return std::numeric_limits<double>::infinity();
}

/// True when mpirun bound this rank because nobody told it otherwise.
bool is_bound_by_default() {
  return std::getenv("OMPI_MCA_orte_bound_at_launch") != nullptr &&
         std::getenv("OMPI_MCA_hwloc_base_binding_policy") == nullptr;
}

/// Takes back a binding that nobody asked for, as far as the container or batch system lets it.
void unbind() {
  std::vector<int> all(CPU_SETSIZE);
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    all[static_cast<std::size_t>(processor)] = processor;
  }
  allow_processors(all);
}

/// Ranks of this host that may use one of the cores that this rank may use: itself at least.
int ranks_on_these_cores(comm::World& world, const std::vector<int>& cores) {
  std::string marks(CPU_SETSIZE, '-');
  for (const int core : cores) marks[static_cast<std::size_t>(core)] = 'x';
  int sharing = 0;
  for (const std::string& text : comm::gather_texts(world.all(), marks + world.host())) {
    if (text.substr(marks.size()) != world.host()) continue;
    sharing += std::ranges::any_of(
        cores, [&](int core) { return text[static_cast<std::size_t>(core)] == 'x'; });
  }
  return std::max(sharing, 1);
}

/// Cores of this rank; binds it to them where it was bound by default.
int cores_of_rank(comm::World& world) {
  if (is_bound_by_default()) unbind();
  const std::vector<int> processors = allowed_processors();
  const std::vector<int> cores = cores_of(processors);
  if (!is_bound_by_default()) {
    return static_cast<int>(cores.size()) / ranks_on_these_cores(world, cores);
  }
  const std::vector<int> share = share_of_cores(cores, world.local_rank(), world.local_size());
  if (share.size() == cores.size() && world.local_size() > 1) return 1;
  std::vector<int> mine;
  for (const int processor : processors) {
    if (std::ranges::binary_search(share, core_of(processor))) mine.push_back(processor);
  }
  allow_processors(mine);
  return static_cast<int>(share.size());
}

}  // namespace

std::vector<int> share_of_cores(const std::vector<int>& cores, int rank, int ranks) {
  if (ranks > static_cast<int>(cores.size())) return cores;
  const layouts::Interval part =
      layouts::balanced_part(static_cast<std::int64_t>(cores.size()), ranks, rank);
  return {cores.begin() + part.begin, cores.begin() + part.begin + part.size};
}

kernels::Device cpu_device(comm::World& world, int threads) {
  int cores = cores_of_rank(world);
  const double granted = granted_processors() / world.local_size();
  if (granted < cores) cores = static_cast<int>(std::ceil(granted));
  const int chosen = std::max(threads > 0 ? threads : cores, 1);
  omp_set_dynamic(0);
  omp_set_num_threads(chosen);
  return kernels::CpuDevice{chosen};
}

}  // namespace tessera::exec
