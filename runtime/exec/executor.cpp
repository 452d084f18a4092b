// The walk over a program: one flat list of steps, everything that can be decided before it has
// been.
#include "runtime/exec/executor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "comm/watchdog.h"
#include "runtime/exec/steps.h"

namespace tessera::exec {
namespace {

/// Byte of the pattern that fills the arena in check mode: repeated, it is a NaN in every
/// floating-point dtype.
constexpr int kNanByte = 0xFF;

bool check_mode() {
  const char* text = std::getenv("TESSERA_CHECK");
  return text != nullptr && std::strcmp(text, "0") != 0 && *text != 0;
}

/// Throws rank_lost naming the ranks whose programs are not those of rank 0.
void compare_hashes(const compile::Program& program, comm::World& world) {
  comm::Communicator& all = world.all();
  const auto size = static_cast<std::size_t>(all.size());
  const auto mine = static_cast<std::int64_t>(program.hash);
  std::vector<std::int64_t> hashes(size);
  const std::vector<std::int64_t> ones(size, 1);
  all.wait(all.start_all_gather(&mine, hashes.data(), ones, DType::int64, "plan hash"));
  std::string differing;
  for (std::size_t rank = 1; rank < size; ++rank) {
    if (hashes[rank] != hashes[0])
      differing += (differing.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (differing.empty()) return;
  throw Error(Error::Kind::rank_lost,
              "the plan of rank 0 and that of rank(s) " + differing +
                  " differ: all ranks must run the same program with the same config");
}

}  // namespace

struct Executor::Implementation {
  const compile::Program& program;
  Storage& storage;
  Arena& arena;
  comm::World& world;
  Steps steps;
  const std::byte* resolved_for = nullptr;  // where the arena was when addresses were resolved
  bool checked = check_mode();

  /// In check mode: what was started must be what the plan lists, in its order.
  void check_start(std::size_t started, int collective) const {
    if (static_cast<int>(started) == collective) return;
    throw Error(Error::Kind::internal,
                "the program starts collective " + std::to_string(collective) + " (" +
                    program.collectives[static_cast<std::size_t>(collective)].label +
                    ") where the plan lists number " + std::to_string(started));
  }
};

Executor::Executor(const compile::Program& program, Storage& storage, Arena& arena,
                   comm::World& world, kernels::Device device)
    : implementation_(new Implementation{
          .program = program, .storage = storage, .arena = arena, .world = world, .steps = {}}) {
  check(program.rank == storage.rank(), "executor: the program is that of another rank");
  const bool speaks = std::ranges::any_of(
      program.collectives, [](const compile::Collective& each) { return each.ranks.size() > 1; });
  if (speaks) compare_hashes(program, world);
  arena.reserve(program.arena_bytes);
  implementation_->steps.prepare(program, world, device);
}

Executor::~Executor() = default;

void Executor::run(std::span<const void* const> inputs, const graph::StepState& step) {
  Implementation& it = *implementation_;
  Steps& steps = it.steps;
  check(inputs.size() == it.program.inputs.size(), "executor: wrong number of inputs");
  if (it.resolved_for != it.arena.data() || !steps.resolved()) {
    steps.resolve(it.program, it.storage, it.arena);
    it.resolved_for = it.arena.data();
  }
  steps.set_inputs(inputs);
  if (it.checked && it.program.arena_bytes > 0) {
    std::memset(it.arena.data(), kNanByte, static_cast<std::size_t>(it.program.arena_bytes));
  }
  comm::Watchdog& watchdog = it.world.watchdog();
  std::size_t started = 0;
  for (const Step& each : steps.list()) {
    switch (each.kind) {
      case Step::Kind::compute:
        each.kernel(steps.operands(each), steps.results(each), each.workspace, step);
        for (comm::Communicator* communicator : steps.in_flight(each)) communicator->progress();
        break;
      case Step::Kind::start:
        if (it.checked) it.check_start(started, each.collective);
        ++started;
        steps.start(each);
        break;
      case Step::Kind::wait:
        steps.wait(each);
        break;
    }
    watchdog.beat();
  }
  if (it.checked) {
    check(started == it.program.collectives.size(),
          "executor: a collective of the plan did not run");
  }
}

const void* Executor::output(std::string_view name) const {
  const Implementation& it = *implementation_;
  for (const compile::ProgramOutput& output : it.program.outputs) {
    if (output.name == name) return it.steps.address(output.tensor);
  }
  throw Error(Error::Kind::internal, "the program has no output \"" + std::string(name) + "\"");
}

const compile::Program& Executor::program() const { return implementation_->program; }

}  // namespace tessera::exec
