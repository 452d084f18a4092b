// Times collectives of this job beside those of MPI: latency of small ones, bandwidth of large
// ones.
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "comm/communicator.h"

namespace {

using tessera::DType;
using tessera::comm::Communicator;
using tessera::comm::ReduceKind;

/// Seconds of one call, the best of five series.
template <class Call>
double seconds_of(Communicator& all, int repeats, const Call& call) {
  double best = 1e9;
  for (int series = 0; series < 5; ++series) {
    all.barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) call();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    best = std::min(best, elapsed.count() / repeats);
  }
  return best;
}

void compare(Communicator& all, std::int64_t elements, int repeats) {
  std::vector<float> data(static_cast<std::size_t>(elements), 0.0F);
  const double ours = seconds_of(all, repeats, [&] {
    all.all_reduce(data.data(), elements, DType::float32, ReduceKind::sum, "bench");
  });
  double theirs = 0.0;
  if (all.size() > 1) {
    theirs = seconds_of(all, repeats, [&] {
      MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(elements), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    });
  }
  if (all.rank() != 0) return;
  const double bytes = static_cast<double>(elements) * 4.0;
  std::printf("all_reduce %10.0f B: %10.2f us %7.2f GB/s   MPI_Allreduce %10.2f us %7.2f GB/s\n",
              bytes, ours * 1e6, bytes / ours * 1e-9, theirs * 1e6, bytes / theirs * 1e-9);
}

}  // namespace

int main() {
  const auto world = tessera::comm::join_world(60.0);
  Communicator& all = world->all();
  compare(all, 5, 20000);
  compare(all, 256, 20000);
  compare(all, 1000, 10000);
  compare(all, 4096, 5000);
  compare(all, 65536, 500);
  compare(all, 1 << 20, 50);
  compare(all, 21'000'000, 4);
  return EXIT_SUCCESS;
}
