// Queue of operations, and the patience of those who wait.
#include "comm/queue.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "comm/pieces.h"

namespace tessera::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// A pause takes some 10 to 60 ns: a peer that is about to arrive is seen at once.
constexpr int kSpins = 500;
/// Then the processor is offered to others for this long, as long as nobody takes it...
constexpr auto kYieldFor = std::chrono::milliseconds(2);
/// ... which shows in how long it is away. Where others want it, or ranks share it, sleeping is
/// better: a rank that is woken gets its turn soon, one that only yields waits until all others
/// used theirs up.
constexpr auto kTaken = std::chrono::microseconds(20);
/// The health of the others is looked at from here on.
constexpr auto kLookAfter = std::chrono::milliseconds(2);
/// Sleep where nobody wakes the sleeper.
constexpr long kSleepNanoseconds = 50'000;

constexpr std::size_t kFirstRing = 8;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

std::uint64_t mixed(std::uint64_t hash, std::int64_t value) {
  hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15U;
  return hash ^ (hash >> 29U);
}

constexpr unsigned kCountBits = 40;
constexpr std::uint64_t kCountMask = (std::uint64_t{1} << kCountBits) - 1;

/// Bits: count 40, kind 4, dtype 4, reduction 2, hash of root and counts 14.
std::uint64_t signature_of(const Operation& operation) {
  std::uint64_t hash = mixed(0, operation.root);
  // Counts of an all_to_all differ between members by nature; they are exchanged and compared in
  // the operation itself.
  if (operation.kind != Operation::Kind::all_to_all) {
    for (const std::int64_t count : operation.receive_counts) hash = mixed(hash, count);
  }
  return (static_cast<std::uint64_t>(operation.count) & kCountMask) |
         static_cast<std::uint64_t>(operation.kind) << kCountBits |
         static_cast<std::uint64_t>(operation.dtype) << (kCountBits + 4) |
         static_cast<std::uint64_t>(operation.reduce) << (kCountBits + 8) | (hash >> 50U) << 50U;
}

std::int64_t total(std::span<const std::int64_t> counts) {
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) {
    check(count >= 0, "collective: a count is negative");
    sum += count;
  }
  return sum;
}

std::string list(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace

std::string_view name_of(Operation::Kind kind) {
  switch (kind) {
    case Operation::Kind::barrier:
      return "barrier";
    case Operation::Kind::all_reduce:
      return "all_reduce";
    case Operation::Kind::all_gather:
      return "all_gather";
    case Operation::Kind::reduce_scatter:
      return "reduce_scatter";
    case Operation::Kind::all_to_all:
      return "all_to_all";
    case Operation::Kind::broadcast:
      return "broadcast";
  }
  return "";
}

std::string describe(const Operation& operation) {
  std::string text(name_of(operation.kind));
  if (operation.label != nullptr && *operation.label != 0) {
    text += " of ";
    text += operation.label;
  }
  return text;
}

std::string describe_signature(std::uint64_t signature) {
  const auto kind = static_cast<Operation::Kind>(signature >> kCountBits & 15U);
  const auto dtype = static_cast<DType>(signature >> (kCountBits + 4) & 15U);
  std::string text(name_of(kind));
  if (kind == Operation::Kind::barrier) return text;
  if (kind != Operation::Kind::all_to_all) text += " of " + std::to_string(signature & kCountMask);
  text += " ";
  text += name_of(dtype);
  return text;
}

bool is_oversubscribed(int local_ranks) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int online = static_cast<int>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return local_ranks > online;
  const int mine = CPU_COUNT(&allowed);
  // A launcher that binds gives each rank processors of its own, as long as there are enough.
  return local_ranks > std::max(mine, std::min(online, CPU_SETSIZE));
}

QueuedCommunicator::QueuedCommunicator(int rank, std::vector<int> world_ranks, Watchdog& watchdog,
                                       bool oversubscribed)
    : rank_(rank),
      size_(static_cast<int>(world_ranks.size())),
      world_ranks_(std::move(world_ranks)),
      watchdog_(&watchdog),
      spins_(oversubscribed ? 0 : kSpins),
      ring_(kFirstRing) {}

Operation& QueuedCommunicator::push(Operation::Kind kind, DType dtype, const char* label) {
  if (issued_ - completed_ == static_cast<Request>(ring_.size())) {
    std::vector<Operation> larger(2 * ring_.size());
    for (Request request = completed_ + 1; request <= issued_; ++request) {
      larger[static_cast<std::size_t>(request) & (larger.size() - 1)] = std::move(at(request));
    }
    ring_ = std::move(larger);
  }
  Operation& operation = at(issued_ + 1);
  operation.kind = kind;
  operation.dtype = dtype;
  operation.reduce = ReduceKind::sum;
  operation.root = 0;
  operation.size = static_cast<std::int64_t>(size_of(dtype));
  operation.count = 0;
  operation.send = nullptr;
  operation.receive = nullptr;
  operation.send_counts.clear();
  operation.receive_counts.clear();
  operation.label = label;
  operation.stage = 0;
  operation.position = 0;
  return operation;
}

Request QueuedCommunicator::submit(Operation& operation) {
  check(operation.count >= 0, "collective: the count is negative");
  ++issued_;
  if (size_ == 1) {
    run_alone(operation);
    completed_ = issued_;
    return issued_;
  }
  operation.signature = signature_of(operation);
  watchdog_->beat();
  if (completed_ + 1 == issued_) advance_front();
  return issued_;
}

void QueuedCommunicator::run_alone(const Operation& operation) const {
  if (operation.kind == Operation::Kind::all_gather ||
      operation.kind == Operation::Kind::reduce_scatter ||
      operation.kind == Operation::Kind::all_to_all) {
    move_bytes(operation.receive, operation.send, operation.count * operation.size);
  }
}

Request QueuedCommunicator::start_all_reduce(void* data, std::int64_t count, DType dtype,
                                             ReduceKind kind, const char* label) {
  Operation& operation = push(Operation::Kind::all_reduce, dtype, label);
  operation.receive = static_cast<std::byte*>(data);
  operation.count = count;
  operation.reduce = kind;
  return submit(operation);
}

Request QueuedCommunicator::start_all_gather(const void* send, void* receive,
                                             std::span<const std::int64_t> counts, DType dtype,
                                             const char* label) {
  check(static_cast<int>(counts.size()) == size_, "all_gather: one count a member is needed");
  Operation& operation = push(Operation::Kind::all_gather, dtype, label);
  operation.send = static_cast<const std::byte*>(send);
  operation.receive = static_cast<std::byte*>(receive);
  operation.receive_counts.assign(counts.begin(), counts.end());
  operation.count = total(counts);
  return submit(operation);
}

Request QueuedCommunicator::start_reduce_scatter(const void* send, void* receive,
                                                 std::span<const std::int64_t> counts, DType dtype,
                                                 const char* label) {
  check(static_cast<int>(counts.size()) == size_, "reduce_scatter: one count a member is needed");
  Operation& operation = push(Operation::Kind::reduce_scatter, dtype, label);
  operation.send = static_cast<const std::byte*>(send);
  operation.receive = static_cast<std::byte*>(receive);
  operation.receive_counts.assign(counts.begin(), counts.end());
  operation.count = total(counts);
  return submit(operation);
}

Request QueuedCommunicator::start_all_to_all(const void* send,
                                             std::span<const std::int64_t> send_counts,
                                             void* receive,
                                             std::span<const std::int64_t> receive_counts,
                                             DType dtype, const char* label) {
  const auto members = static_cast<std::size_t>(size_);
  check(send_counts.size() == members && receive_counts.size() == members,
        "all_to_all: one count a member is needed");
  const auto mine = static_cast<std::size_t>(rank_);
  check(send_counts[mine] == receive_counts[mine],
        "all_to_all: this rank sends itself another number of elements than it receives");
  Operation& operation = push(Operation::Kind::all_to_all, dtype, label);
  operation.send = static_cast<const std::byte*>(send);
  operation.receive = static_cast<std::byte*>(receive);
  operation.send_counts.assign(send_counts.begin(), send_counts.end());
  operation.receive_counts.assign(receive_counts.begin(), receive_counts.end());
  total(receive_counts);
  operation.count = size_ == 1 ? total(send_counts) : 0;  // else no number that members share
  return submit(operation);
}

Request QueuedCommunicator::start_broadcast(void* data, std::int64_t count, DType dtype, int root,
                                            const char* label) {
  check(root >= 0 && root < size_, "broadcast: the root is no member of the group");
  Operation& operation = push(Operation::Kind::broadcast, dtype, label);
  operation.receive = static_cast<std::byte*>(data);
  operation.count = count;
  operation.root = root;
  return submit(operation);
}

void QueuedCommunicator::barrier() {
  Operation& operation = push(Operation::Kind::barrier, DType::uint8, "");
  wait(submit(operation));
}

void QueuedCommunicator::advance_front() {
  while (completed_ < issued_ && advance(at(completed_ + 1))) {
    ++completed_;
    watchdog_->beat();
  }
}

void QueuedCommunicator::progress() {
  if (completed_ < issued_) advance_front();
}

void QueuedCommunicator::wait(Request request) {
  check(request <= issued_, "wait: there is no such request");
  start_idling();
  while (completed_ < request) {
    const Request completed = completed_;
    const Operation& front = at(completed + 1);
    const int stage = front.stage;
    const std::int64_t position = front.position;
    advance_front();
    if (completed_ != completed || front.stage != stage || front.position != position) {
      start_idling();
      watchdog_->beat();
    } else {
      idle();
    }
  }
}

void QueuedCommunicator::idle() {
  if (++idle_ <= spins_) {
    pause();
    return;
  }
  const Clock::time_point now = Clock::now();
  if (idle_ == spins_ + 1) idle_since_ = now;
  const Clock::duration waited = now - idle_since_;
  if (!sleeping_ && spins_ > 0 && waited < kYieldFor) {
    sched_yield();
    sleeping_ = Clock::now() - now > kTaken;
    return;
  }
  sleeping_ = true;
  const Operation& front = at(completed_ + 1);
  if (waited > kLookAfter) look_around(front);
  doze(front);
}

void QueuedCommunicator::doze(const Operation&) {
  const timespec sleep{0, kSleepNanoseconds};
  nanosleep(&sleep, nullptr);
}

void QueuedCommunicator::look_around(const Operation& operation) {
  // A rank that had left by the last look has shown all that it will ever show: what of it is
  // missing now, after another try, does not come. One that leaves just now may have shown it since.
  const std::vector<int> left = std::exchange(left_, watchdog_->left());
  std::vector<int> absent = missing(operation);
  if (absent.empty()) return;
  std::vector<int> gone;
  for (int& member : absent) {
    member = world_ranks_[static_cast<std::size_t>(member)];
    if (std::ranges::find(left, member) != left.end()) gone.push_back(member);
  }
  watchdog_->check_peers(describe(operation), gone);
  const double limit = watchdog_->seconds();
  const std::chrono::duration<double> waited = Clock::now() - idle_since_;
  if (limit <= 0.0 || waited.count() < limit) return;
  fail(operation,
       list(absent) + " did not arrive within " + std::to_string(static_cast<int>(limit)) + " s");
}

void QueuedCommunicator::fail(const Operation& operation, const std::string& message) const {
  throw Error(Error::Kind::rank_lost,
              describe(operation) + ": " + message + " (seen by rank " +
                  std::to_string(world_ranks_[static_cast<std::size_t>(rank_)]) + ")");
}

void QueuedCommunicator::fail_mismatch(const Operation& operation, int member,
                                       std::uint64_t its_signature) const {
  fail(operation, "this rank calls " + describe_signature(operation.signature) + ", rank " +
                      std::to_string(world_ranks_[static_cast<std::size_t>(member)]) + " calls " +
                      describe_signature(its_signature) +
                      ": the ranks do not run the same program");
}

int position_in(std::span<const int> members, int rank) {
  const auto found = std::ranges::find(members, rank);
  check(found != members.end(), "group: this rank is no member");
  return static_cast<int>(found - members.begin());
}

std::string host_name() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace tessera::comm
