// The part of a communicator that does not depend on how bytes travel: a queue of operations,
// strictly in the order of their issue.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/watchdog.h"

namespace tessera::comm {

/// One operation, from `start_` to completion. Counts are elements.
struct Operation {
  enum class Kind : std::uint8_t {
    barrier,
    all_reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    broadcast
  };

  Kind kind = Kind::barrier;
  DType dtype = DType::uint8;
  ReduceKind reduce = ReduceKind::sum;
  int root = 0;
  std::int64_t size = 1;  // bytes of an element
  /// Elements: of the tensor (all_reduce, broadcast), of all parts together (all_gather,
  /// reduce_scatter).
  std::int64_t count = 0;
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  std::vector<std::int64_t> send_counts;  // all_to_all
  /// all_to_all, all_gather; reduce_scatter: what each member gets.
  std::vector<std::int64_t> receive_counts;
  const char* label = "";
  /// Kind, dtype, reduction, root, counts: must be equal on all members.
  std::uint64_t signature = 0;

  // How far it is; meaning given by the communicator.
  int stage = 0;
  std::int64_t position = 0;
};
std::string_view name_of(Operation::Kind kind);
/// "all_reduce of dense/kernel"
std::string describe(const Operation& operation);
/// "all_reduce of 20 float32" from a signature: what another member is doing.
std::string describe_signature(std::uint64_t signature);

/// Operations advance when they are started, by `progress` and by `wait`; the first of the queue
/// must finish before the next begins, on all members alike, so the order of issue decides and
/// nothing can deadlock. Storage of finished operations is used again.
class QueuedCommunicator : public Communicator {
 public:
  /// `world_ranks`: the members, by their rank in the job.
  QueuedCommunicator(int rank, std::vector<int> world_ranks, Watchdog& watchdog,
                     bool oversubscribed);

  int rank() const final { return rank_; }
  int size() const final { return size_; }
  Request start_all_reduce(void* data, std::int64_t count, DType dtype, ReduceKind kind,
                           const char* label) final;
  Request start_all_gather(const void* send, void* receive, std::span<const std::int64_t> counts,
                           DType dtype, const char* label) final;
  Request start_reduce_scatter(const void* send, void* receive,
                               std::span<const std::int64_t> counts, DType dtype,
                               const char* label) final;
  Request start_all_to_all(const void* send, std::span<const std::int64_t> send_counts,
                           void* receive, std::span<const std::int64_t> receive_counts, DType dtype,
                           const char* label) final;
  Request start_broadcast(void* data, std::int64_t count, DType dtype, int root,
                          const char* label) final;
  void wait(Request request) final;
  void progress() final;
  void barrier() final;

 protected:
  /// Goes on with an operation as far as possible without waiting; true when it is finished. Never
  /// called with one member.
  virtual bool advance(Operation& operation) = 0;
  /// Members (in the group) that the front operation waits for at this moment.
  virtual std::vector<int> missing(const Operation& operation) const = 0;
  /// Sleeps until a member may have arrived, some milliseconds at most.
  virtual void doze(const Operation& operation);

  const std::vector<int>& world_ranks() const { return world_ranks_; }
  /// Another member calls something else.
  [[noreturn]] void fail_mismatch(const Operation& operation, int member,
                                  std::uint64_t its_signature) const;
  [[noreturn]] void fail(const Operation& operation, const std::string& message) const;

 private:
  Operation& push(Operation::Kind kind, DType dtype, const char* label);
  Request submit(Operation& operation);
  void advance_front();
  void start_idling() {
    idle_ = 0;
    sleeping_ = false;
  }
  void idle();
  void look_around(const Operation& operation);
  void run_alone(const Operation& operation) const;
  Operation& at(Request request) {
    return ring_[static_cast<std::size_t>(request) & (ring_.size() - 1)];
  }

  int rank_;
  int size_;
  std::vector<int> world_ranks_;
  Watchdog* watchdog_;
  int spins_;                    // before the processor is given to others
  std::vector<Operation> ring_;  // size: a power of two
  Request completed_ = 0;
  Request issued_ = 0;
  // the wait that goes on
  std::int64_t idle_ = 0;
  bool sleeping_ = false;
  std::chrono::steady_clock::time_point idle_since_;
  std::vector<int> left_;  // world ranks that had left when it last looked around
};

/// True when the ranks of this node are more than the processors that they may use: spinning then
/// keeps others from arriving.
bool is_oversubscribed(int local_ranks);

/// Position of `rank` in a group; throws internal when it is no member.
int position_in(std::span<const int> members, int rank);
std::string host_name();

}  // namespace tessera::comm
