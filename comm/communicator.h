// Collectives over one group of ranks, and the job they belong to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace tessera::comm {

enum class ReduceKind : std::uint8_t { sum, max, min };

/// One operation in flight; 0: none.
using Request = std::int64_t;

/// One group of ranks, numbered 0..size-1 in the order in which the group was given. Buffers are
/// dense host memory and must stay untouched until `wait`. Counts are elements and may exceed 2^31.
/// Every member calls the same operations in the same order. float16 and bfloat16 are summed in
/// float32 and rounded once. Sums are made in a fixed order: two runs give the same bits and all
/// members get the same bits. Failures throw rank_lost with the label of the operation.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// In place. `label` names the tensor in messages and must outlive the operation.
  virtual Request start_all_reduce(void* data, std::int64_t count, DType dtype, ReduceKind kind,
                                   const char* label) = 0;
  /// Member i contributes counts[i] elements; every member receives all of them, in order. `send`
  /// may lie at its place in `receive`.
  virtual Request start_all_gather(const void* send, void* receive,
                                   std::span<const std::int64_t> counts, DType dtype,
                                   const char* label) = 0;
  /// Sums `send` (all counts together) over the members; member i receives the i-th part. Buffers
  /// do not overlap.
  virtual Request start_reduce_scatter(const void* send, void* receive,
                                       std::span<const std::int64_t> counts, DType dtype,
                                       const char* label) = 0;
  /// Member j receives send_counts[j] elements of this rank; parts lie one after another. Buffers
  /// do not overlap.
  virtual Request start_all_to_all(const void* send, std::span<const std::int64_t> send_counts,
                                   void* receive, std::span<const std::int64_t> receive_counts,
                                   DType dtype, const char* label) = 0;
  virtual Request start_broadcast(void* data, std::int64_t count, DType dtype, int root,
                                  const char* label) = 0;
  virtual void wait(Request request) = 0;
  /// Lets operations in flight make progress; cheap when there are none.
  virtual void progress() = 0;
  virtual void barrier() = 0;

  void all_reduce(void* data, std::int64_t count, DType dtype, ReduceKind kind, const char* label) {
    wait(start_all_reduce(data, count, dtype, kind, label));
  }
  void broadcast(void* data, std::int64_t count, DType dtype, int root, const char* label) {
    wait(start_broadcast(data, count, dtype, root, label));
  }
};

class Watchdog;  // comm/watchdog.h

/// The job: all ranks that mpirun or srun started (comm/mpi.cpp), one process alone, or ranks as
/// threads of one process (comm/threads.cpp: rehearsals and tests).
class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Position among, and number of, the ranks on this node.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  virtual const std::string& host() const = 0;
  /// All ranks.
  virtual Communicator& all() = 0;
  /// The communicator of these ranks (this rank among them), in this order; made once and kept.
  /// Collective over the group.
  virtual Communicator& group(std::span<const int> ranks) = 0;
  /// Of this rank: `set_seconds` (0: wait for ever), `arm` a phase, `beat` where progress is made.
  virtual Watchdog& watchdog() = 0;
  /// Ends all ranks with this status after printing `message` to standard error (at most once a job
  /// where that can be known).
  [[noreturn]] virtual void abort(int status, const std::string& message) = 0;
};

/// Texts of all ranks, in rank order, on every rank. Collective.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text);

/// Joins the MPI job, or makes a world of one when not started under a launcher and no MPI is
/// needed. Throws rank_lost when the launcher's environment says that there are more ranks than MPI
/// sees (N silent single-rank jobs). Where not all ranks have joined after `seconds` (10 at least;
/// 0: wait for ever), the process ends with that status. One per process.
std::unique_ptr<World> join_world(double seconds);

/// Runs `body(world)` once per rank, each on its own thread, with communicators through shared
/// memory. The first exception of a rank ends the others and is rethrown.
void run_as_threads(int ranks, const std::function<void(World&)>& body);

}  // namespace tessera::comm
