// The thread that watches, and the checks of ranks that wait.
#include "comm/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/error.h"

namespace tessera::comm {
namespace {

/// Half a second: fine enough for seconds, and nothing on a core that computes.
constexpr double kTickSeconds = 0.5;
constexpr int kStoppedTicks = static_cast<int>(Watchdog::kStoppedSeconds / kTickSeconds);
/// A rank that waits in a collective throws by itself, with better words, so the thread gives it
/// this much longer.
constexpr double kGraceSeconds = 5.0;

std::string in_seconds(double seconds) {
  std::string text = std::to_string(seconds);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

}  // namespace

std::size_t Board::bytes_for(int ranks) {
  return sizeof(Board) + sizeof(Heart) * static_cast<std::size_t>(std::max(ranks, 1) - 1);
}

bool Board::claim_end(int world_rank, int exit_status) {
  std::uint64_t none = 0;
  const auto status = static_cast<std::uint32_t>(exit_status);
  const auto rank = static_cast<std::uint32_t>(world_rank + 1);
  return ended.compare_exchange_strong(none, std::uint64_t{status} << 32U | rank);
}

Board::End Board::end() const {
  const std::uint64_t bits = ended.load();
  return {static_cast<int>(bits & 0xFFFFFFFFU) - 1, static_cast<int>(bits >> 32U)};
}

Watchdog::Watchdog(Board* board, int local_rank, std::vector<int> world_ranks)
    : board_(board),
      local_rank_(local_rank),
      world_ranks_(std::move(world_ranks)),
      silent_(world_ranks_.size()),
      seen_hearts_(world_ranks_.size(), 0) {}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Watchdog::arm(const char* phase) {
  beat();
  phase_.store(phase, std::memory_order_relaxed);
  start();
}

void Watchdog::start() {
  if (!thread_.joinable()) thread_ = std::thread([this] { watch(); });
}

void Watchdog::leave() {
  disarm();
  if (board_ != nullptr) board_->heart(local_rank_).left.store(1);
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    watch_hearts();
    watch_progress();
    wake_.wait_for(lock, std::chrono::duration<double>(kTickSeconds), [this] { return stop_; });
  }
}

void Watchdog::watch_hearts() {
  if (board_ == nullptr) return;
  board_->heart(local_rank_).beats.fetch_add(1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < world_ranks_.size(); ++i) {
    const std::uint64_t beats =
        board_->heart(static_cast<int>(i)).beats.load(std::memory_order_relaxed);
    // Counted in own ticks, not by the clock: when the whole job was suspended, nobody's heart is
    // late.
    silent_[i].store(beats == seen_hearts_[i] && beats != 0 ? silent_[i].load() + 1 : 0);
    seen_hearts_[i] = beats;
  }
}

void Watchdog::watch_progress() {
  const char* phase = phase_.load(std::memory_order_relaxed);
  const std::uint64_t beats = beats_.load(std::memory_order_relaxed);
  const double limit = seconds();
  if (phase == nullptr || limit <= 0.0 || beats != seen_beats_) {
    seen_beats_ = beats;
    quiet_seconds_ = 0.0;
    return;
  }
  quiet_seconds_ += kTickSeconds;
  if (quiet_seconds_ < limit + kGraceSeconds) return;
  const int rank = world_rank();
  if (board_ == nullptr || board_->claim_end(rank, exit_status(Error::Kind::rank_lost))) {
    print_error("error: no progress for " + in_seconds(quiet_seconds_) + " during " + phase, rank,
                static_cast<int>(world_ranks_.size()));
  }
  // The main thread hangs somewhere, perhaps inside MPI: the launcher sees the status and ends the
  // other ranks.
  _exit(exit_status(Error::Kind::rank_lost));
}

std::vector<int> Watchdog::left() const {
  std::vector<int> ranks;
  for (std::size_t i = 0; board_ != nullptr && i < world_ranks_.size(); ++i) {
    if (board_->heart(static_cast<int>(i)).left.load() != 0) ranks.push_back(world_ranks_[i]);
  }
  return ranks;
}

void Watchdog::check_peers(const std::string& what, std::span<const int> gone) const {
  if (board_ == nullptr) return;
  const auto lost = [&](const std::string& message) {
    throw Error(Error::Kind::rank_lost,
                what + ": " + message + " while rank " + std::to_string(world_rank()) + " waited");
  };
  if (const Board::End end = board_->end(); end.rank >= 0) {
    lost("rank " + std::to_string(end.rank) + " ended the job");
  }
  for (std::size_t i = 0; i < world_ranks_.size(); ++i) {
    const std::string rank = "rank " + std::to_string(world_ranks_[i]);
    const bool is_gone = std::ranges::find(gone, world_ranks_[i]) != gone.end();
    if (is_gone) lost(rank + " had already finished");
    // A rank that nobody here waits for directly may still be what the missing ones wait for.
    if (silent_[i].load() >= kStoppedTicks && seconds() > 0.0) {
      lost(rank + " has stopped (no sign of life for " + in_seconds(kStoppedSeconds) + ")");
    }
  }
}

void print_error(const std::string& message, int rank, int size) {
  const std::string line =
      (size > 1 && rank > 0 ? "[rank " + std::to_string(rank) + "] " : std::string()) + message +
      "\n";
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (written <= 0) return;
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace tessera::comm
