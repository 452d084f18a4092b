// Ranks as threads of one process: rehearsals and tests.
#include "comm/threads.h"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/shared_memory.h"

namespace tessera::comm {
namespace {

Error::Kind kind_of_status(int status) {
  for (const Error::Kind kind : {Error::Kind::config, Error::Kind::data, Error::Kind::weights,
                                 Error::Kind::numbers, Error::Kind::rank_lost}) {
    if (exit_status(kind) == status) return kind;
  }
  return Error::Kind::internal;
}

/// What all threads share.
class Job {
 public:
  Job(int ranks, std::int64_t slot_bytes)
      : ranks_(ranks),
        slot_bytes_(slot_bytes),
        board_(SharedBytes::ordinary(Board::bytes_for(ranks))) {}

  int ranks() const { return ranks_; }
  Board* board() { return reinterpret_cast<Board*>(board_.data()); }

  Segment segment(const std::vector<int>& members) {
    const std::lock_guard lock(mutex_);
    const auto found = segments_.find(members);
    if (found != segments_.end()) return found->second;
    const int size = static_cast<int>(members.size());
    const std::int64_t slot = Segment::slot_bytes_for(size, slot_bytes_);
    Segment added(SharedBytes::ordinary(Segment::bytes_for(size, slot)), size, slot);
    return segments_.emplace(members, std::move(added)).first->second;
  }

  /// Keeps the exception of the rank that ended the job; those of the others follow from it, though
  /// they may be caught sooner.
  void fail(int rank, std::exception_ptr exception) {
    const std::lock_guard lock(mutex_);
    board()->claim_end(rank, exit_status(Error::Kind::internal));
    if (!exception_ || board()->end().rank == rank) exception_ = std::move(exception);
  }
  const std::exception_ptr& exception() const { return exception_; }

 private:
  int ranks_;
  std::int64_t slot_bytes_;
  SharedBytes board_;
  std::mutex mutex_;
  std::map<std::vector<int>, Segment> segments_;
  std::exception_ptr exception_;
};

class ThreadWorld final : public World {
 public:
  ThreadWorld(Job& job, int rank)
      : job_(job),
        rank_(rank),
        host_(host_name()),
        everyone_(static_cast<std::size_t>(job.ranks())) {
    std::iota(everyone_.begin(), everyone_.end(), 0);
    watchdog_ = std::make_unique<Watchdog>(job.board(), rank, everyone_);
  }

  int rank() const override { return rank_; }
  int size() const override { return job_.ranks(); }
  int local_rank() const override { return rank_; }
  int local_size() const override { return job_.ranks(); }
  const std::string& host() const override { return host_; }
  Communicator& all() override { return group(everyone_); }
  Watchdog& watchdog() override { return *watchdog_; }

  Communicator& group(std::span<const int> ranks) override {
    std::vector<int> members(ranks.begin(), ranks.end());
    std::unique_ptr<Communicator>& made = groups_[members];
    if (!made) {
      const int position = position_in(members, rank_);
      made = std::make_unique<SharedCommunicator>(job_.segment(members), position, members,
                                                  *watchdog_, is_oversubscribed(job_.ranks()));
    }
    return *made;
  }

  [[noreturn]] void abort(int status, const std::string& message) override {
    if (job_.board()->claim_end(rank_, status)) print_error(message, rank_, size());
    throw Error(kind_of_status(status), message);
  }

 private:
  Job& job_;
  int rank_;
  std::string host_;
  std::vector<int> everyone_;
  std::unique_ptr<Watchdog> watchdog_;
  std::map<std::vector<int>, std::unique_ptr<Communicator>> groups_;
};

}  // namespace

void run_as_threads(int ranks, const std::function<void(World&)>& body, std::int64_t slot_bytes) {
  check(ranks >= 1, "run_as_threads: at least one rank is needed");
  Job job(ranks, slot_bytes);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      // Threads of a rank are those of its own parallel regions: the ranks divide the processors.
      omp_set_num_threads(std::max(omp_get_num_procs() / ranks, 1));
      try {
        ThreadWorld world(job, rank);
        body(world);
        world.watchdog().leave();
      } catch (...) {
        job.fail(rank, std::current_exception());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (job.exception()) std::rethrow_exception(job.exception());
}

void run_as_threads(int ranks, const std::function<void(World&)>& body) {
  run_as_threads(ranks, body, Segment::kSlotBytes);
}

}  // namespace tessera::comm
