#include "api/job.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <thread>

#include "api/checks.h"
#include "comm/watchdog.h"
#include "runtime/exec/threads.h"
#include "runtime/io/npy.h"

namespace tessera {
namespace {

int threads_of_job = 0;
bool joined = false;
double join_seconds = comm::Watchdog::kDefaultSeconds;

}  // namespace

comm::World& job() {
  // One job a process: MPI can be joined once. Left when the process ends.
  static const std::unique_ptr<comm::World> world = [] {
    std::unique_ptr<comm::World> made = comm::join_world(join_seconds);
    joined = true;
    return made;
  }();
  return *world;
}

void set_threads(int threads) { threads_of_job = threads; }

kernels::Device job_device(int threads) {
  return exec::cpu_device(job(), threads > 0 ? threads : threads_of_job);
}

int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const char* value = std::getenv(name); value != nullptr) return std::atoi(value);
  }
  return 0;
}

int rank_of_job() { return job().rank(); }

std::string standard_input_of_job() {
  std::string text;
  if (rank_of_job() == 0)
    text.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  return comm::gather_texts(job().all(), text).front();
}

void set_join_seconds(double seconds) { join_seconds = seconds; }

void set_runtime(int threads, double watchdog_seconds) {
  set_threads(threads);
  job().watchdog().set_seconds(watchdog_seconds);
}

void require_same_on_all_ranks(const std::string& text) {
  comm::World& world = job();
  if (world.size() == 1) return;
  std::string differing;
  const std::vector<std::string> texts = comm::gather_texts(world.all(), text);
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] != texts[0])
      differing += fmt::format("{}{}", differing.empty() ? "" : ", ", rank);
  }
  if (differing.empty()) return;
  throw Error(Error::Kind::rank_lost,
              fmt::format("rank(s) {} were started with another command or config than rank 0: all "
                          "ranks need the same ones",
                          differing));
}

std::string device_table() {
  comm::World& world = job();
  const kernels::Device device = job_device();
  const std::string mine = fmt::format(
      "{:>5}  {:<20} {:>5}  {:<7} {:<12} {:>7}", world.rank(), world.host(), world.local_rank(),
      fmt::format("cpu:{}", world.rank()), "-", std::get<kernels::CpuDevice>(device).threads);
  std::string text = fmt::format("{:>5}  {:<20} {:>5}  {:<7} {:<12} {:>7}\n", "rank", "host",
                                 "local", "device", "PCI bus id", "threads");
  for (const std::string& line : comm::gather_texts(world.all(), mine)) text += line + "\n";
  return text;
}

int end_job(int status, const std::string& message) {
  const bool alone = !joined || job().size() == 1;
  const int rank = joined ? job().rank() : launched_rank();
  // An error that all ranks share is told once, by rank 0, whose end then ends the others while
  // they wait here.
  if (rank != 0) std::this_thread::sleep_for(std::chrono::milliseconds(700));
  const std::string named = rank == 0 ? message : fmt::format("[rank {}] {}", rank, message);
  if (!alone) job().abort(status, named);
  fmt::print(stderr, "{}\n", named);
  return status;
}

void save_npy(const std::filesystem::path& file, const std::vector<float>& values,
              const std::vector<std::int64_t>& shape) {
  io::write_npy(file.string(), values, Shape(shape));
}

}  // namespace tessera
