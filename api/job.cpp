#include "api/job.h"

#include "runtime/exec/threads.h"

namespace tessera {
namespace {

int threads_of_job = 0;

}  // namespace

comm::World& job() {
  // One job a process: MPI can be joined once. Left when the process ends.
  static const std::unique_ptr<comm::World> world = comm::join_world();
  return *world;
}

void set_threads(int threads) { threads_of_job = threads; }

kernels::Device job_device(int threads) {
  return exec::cpu_device(job(), threads > 0 ? threads : threads_of_job);
}

}  // namespace tessera
