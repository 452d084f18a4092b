// A job of which one rank fails in the way that the first argument names, while the others go on
// exchanging data.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/watchdog.h"

namespace {

using namespace tessera;

/// What rank 1 does at its twentieth step.
void fail(const std::string& fault, comm::World& world) {
  if (fault == "kill") raise(SIGKILL);
  if (fault == "stop") raise(SIGSTOP);
  if (fault == "throw") throw Error(Error::Kind::data, "error: x.npz: row 3 is damaged");
  if (fault == "abort") world.abort(5, "error: the loss is NaN");
  if (fault == "exit") std::_Exit(3);
  if (fault == "sleep") std::this_thread::sleep_for(std::chrono::minutes(5));
  if (fault == "desync") {
    float value = 0.0F;
    world.all().broadcast(&value, 1, DType::float32, 0, "another tensor");
  }
}

void train(const std::string& fault, comm::World& world) {
  float gradient[5] = {};
  for (int step = 0; step < 200; ++step) {
    if (world.rank() == 1 && step == 20) {
      if (fault == "leave") return;
      fail(fault, world);
    }
    world.all().all_reduce(gradient, 5, DType::float32, comm::ReduceKind::sum, "dense/kernel");
    world.watchdog().beat();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "none";
  std::unique_ptr<comm::World> world;
  try {
    world = comm::join_world(60.0);
    if (fault == "sleep") world->watchdog().set_seconds(2.0);
    if (fault == "hang") world->watchdog().set_seconds(1.0);
    world->watchdog().arm("training");
    if (fault == "hang") std::this_thread::sleep_for(std::chrono::minutes(5));
    train(fault, *world);
  } catch (const Error& error) {
    if (world) world->abort(exit_status(error.kind), error.what());
    std::fprintf(stderr, "%s\n", error.what());
    return exit_status(error.kind);
  }
  if (world->rank() == 0) std::printf("ranks: %d\n", world->size());
  return EXIT_SUCCESS;
}
