// Collectives of real processes: through shared memory, and through MPI messages as between nodes.
// Started by mpirun.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/mpi_communicator.h"
#include "comm/watchdog.h"
#include "tests/support/collectives.h"

namespace tessera::comm {
namespace {

/// How elements are added is tested among threads for all dtypes; here it is about how bytes
/// travel.
constexpr DType kSomeDTypes[] = {DType::float32, DType::bfloat16, DType::uint8};

void check_world(World& world) {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  check(world.size() == size && size > 1, "the job has the size that MPI says");
  check(world.local_size() == size && world.local_rank() == world.rank(), "all ranks on one node");
  check(!world.host().empty(), "the host has a name");
  const std::vector<std::string> texts =
      gather_texts(world.all(), "rank " + std::to_string(world.rank()));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    check(texts[i] == "rank " + std::to_string(i), "texts in the order of the ranks");
  }
}

void check_groups(World& world) {
  std::vector<int> reversed(static_cast<std::size_t>(world.size()));
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  Communicator& group = world.group(reversed);
  check(&group == &world.group(reversed), "a group is made once");
  check(group.rank() == world.size() - 1 - world.rank(), "ranks of a group follow its order");
  testing::check_everything(group, {0, 3, 5000}, kSomeDTypes);
  const std::vector<int> alone{world.rank()};
  check(world.group(alone).size() == 1, "a group of one");
  if (world.size() < 4) return;
  const std::vector<int> pair = world.rank() % 2 == 0 ? std::vector{0, 2} : std::vector{3, 1};
  testing::check_everything(world.group(pair), {1, 2000}, kSomeDTypes);
}

/// Messages and blocks so small that every operation is cut: what large counts meet.
void check_messages(World& world, bool checked, std::int64_t message_bytes,
                    std::int64_t block_bytes) {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "copy of the world");
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  MpiCommunicator all(copy, ranks, world.watchdog(), true, checked, message_bytes, block_bytes);
  testing::check_everything(all, {0, 1, 1001, 3000}, kSomeDTypes);
}

void check_shared_large(World& world) {
  testing::check_order(world.all(), 1'500'001);
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(world.size()), 400'003);
  testing::check_all_gather(world.all(), DType::float32, counts);
  testing::check_reduce_scatter(world.all(), DType::bfloat16, counts);
  testing::check_all_to_all(world.all(), DType::float32, 100'001);
}

void check_mismatch_is_seen(World& world) {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "copy of the world");
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  MpiCommunicator all(copy, ranks, world.watchdog(), true, true);
  std::vector<float> data(world.rank() == 0 ? 4 : 5);
  std::string message;
  try {
    all.all_reduce(data.data(), static_cast<std::int64_t>(data.size()), DType::float32,
                   ReduceKind::sum, "loss");
  } catch (const Error& error) {
    message = error.what();
  }
  check(message.find("all_reduce of loss: this rank calls all_reduce of") == 0,
        "different counts are seen before data is exchanged");
}

void run(World& world) {
  check_world(world);
  testing::check_everything(world.all(), {0, 1, 509, 4073, 100'003}, kSomeDTypes);
  check_shared_large(world);
  check_groups(world);
  check_messages(world, false, MpiCommunicator::kMessageBytes, MpiCommunicator::kBlockBytes);
  check_messages(world, true, 1000, 5000);
  check_messages(world, false, 256, 1 << 20);
  check_mismatch_is_seen(world);
}

}  // namespace
}  // namespace tessera::comm

int main() {
  const auto world = tessera::comm::join_world(60.0);
  try {
    tessera::comm::run(*world);
  } catch (const std::exception& error) {
    world->abort(EXIT_FAILURE, error.what());
  }
  return EXIT_SUCCESS;
}
