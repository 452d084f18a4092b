// Notices ranks that died, stopped or make no progress, and ends the job with a named cause.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace tessera::comm {

/// What the ranks of one node tell each other about their health: lies in memory that all of them
/// map (zero at first).
struct Board {
  struct alignas(64) Heart {
    std::atomic<std::uint64_t> beats;  // grows twice a second while the process can run at all
    std::atomic<std::uint32_t> left;   // 1: the rank finished and takes part in nothing more
  };
  struct End {
    int rank = -1;  // world rank of the first rank that ended the job; -1: none did
    int status = 0;
  };

  /// Exit status, and in the lower half 1 + world rank.
  alignas(64) std::atomic<std::uint64_t> ended;
  Heart hearts[1];  // one a local rank, the following ones lie behind

  static std::size_t bytes_for(int ranks);
  Heart& heart(int local_rank) { return hearts[local_rank]; }
  /// True for the first caller of the job: it may speak. Others find who was first in `end`.
  bool claim_end(int world_rank, int exit_status);
  End end() const;
};

/// One per rank. While armed, a thread watches that `beat` is called at least every `seconds` and
/// ends the process with status 7 otherwise. The same thread shows this rank's heart to the other
/// ranks of the node and watches theirs, so that a stopped rank is noticed within `kStoppedSeconds`
/// by those who wait for it. `beat`, `arm` and `disarm` are stores to memory, no system calls.
class Watchdog {
 public:
  static constexpr double kDefaultSeconds = 300.0;
  static constexpr double kStoppedSeconds = 8.0;

  /// `world_ranks`: of the ranks on this node, in local order. Without a board: a rank alone.
  Watchdog(Board* board, int local_rank, std::vector<int> world_ranks);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// How long a rank may make no progress; 0: for ever, stopped ranks included.
  void set_seconds(double seconds) { seconds_.store(seconds, std::memory_order_relaxed); }
  double seconds() const { return seconds_.load(std::memory_order_relaxed); }

  /// Starts the watch. `phase` names what is done ("training") in the message and must outlive it.
  void arm(const char* phase);
  void disarm() { phase_.store(nullptr, std::memory_order_relaxed); }
  void beat() {
    beats_.store(beats_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  /// Signs of progress so far.
  std::uint64_t beats() const { return beats_.load(std::memory_order_relaxed); }

  /// Starts the thread that shows and watches hearts; `arm` does it too. Worth it only where
  /// processes share a board.
  void start();
  /// Says that this rank takes part in nothing more.
  void leave();

  /// World ranks of this node that said so.
  std::vector<int> left() const;

  /// Throws rank_lost when a rank of this node ended the job or stopped, or when there are `gone`
  /// ones: world ranks that left without what the caller waits for. `what` is what it waits in:
  /// "all_reduce of dense/kernel".
  void check_peers(const std::string& what, std::span<const int> gone) const;
  Board* board() const { return board_; }
  int world_rank() const { return world_ranks_[static_cast<std::size_t>(local_rank_)]; }

 private:
  void watch();
  void watch_hearts();
  void watch_progress();

  Board* board_;
  int local_rank_;
  std::vector<int> world_ranks_;
  std::atomic<double> seconds_{kDefaultSeconds};
  std::atomic<const char*> phase_{nullptr};
  std::atomic<std::uint64_t> beats_{0};
  std::vector<std::atomic<int>> silent_;  // per local rank: own ticks since its heart last beat
  // of the thread alone
  std::vector<std::uint64_t> seen_hearts_;
  std::uint64_t seen_beats_ = 0;
  double quiet_seconds_ = 0.0;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

/// Writes one message to standard error in one piece, with "[rank R] " before it unless it is rank
/// 0 that speaks.
void print_error(const std::string& message, int rank, int size);

}  // namespace tessera::comm
