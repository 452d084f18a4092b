// Collectives of a group that spans nodes: bytes travel as MPI messages, sums are made here.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

#include "comm/queue.h"
#include "comm/summation.h"

namespace tessera::comm {

/// Throws rank_lost with MPI's own words when `code` is not success.
void check_mpi(int code, const std::string& what);

/// MPI only moves bytes, between pairs of ranks: its reductions round half floats at every step and
/// fix no order between versions. An all_reduce of little data gathers the terms of all members in
/// log2(members) messages and adds them up in the order of the members; one of much data goes block
/// by block through reduce-scatter and all-gather, again in that order. Messages are cut so that
/// counts stay below `message_bytes`.
class MpiCommunicator final : public QueuedCommunicator {
 public:
  static constexpr std::int64_t kMessageBytes = std::int64_t{1} << 30U;
  static constexpr std::int64_t kBlockBytes = std::int64_t{16} << 20U;

  /// The ranks of `communicator`, which this object does not free, are in the order of
  /// `world_ranks`. `checked`: compares what the members call before every operation, as shared
  /// memory always does.
  MpiCommunicator(MPI_Comm communicator, std::vector<int> world_ranks, Watchdog& watchdog,
                  bool oversubscribed, bool checked, std::int64_t message_bytes = kMessageBytes,
                  std::int64_t block_bytes = kBlockBytes);

 private:
  bool advance(Operation& operation) override;
  std::vector<int> missing(const Operation& operation) const override;

  void send(const Operation& operation, int member, const std::byte* data, std::int64_t bytes);
  void receive(const Operation& operation, int member, std::byte* data, std::int64_t bytes);
  bool requests_done(const Operation& operation);
  /// The member `distance` places on, around the ring.
  int neighbour(int distance) const { return (me_ + distance + members_) % members_; }

  /// Gathers `bytes` of every member into scratch_; true when done. `gathered` then finds them.
  bool gather_all(const Operation& operation, const void* mine, std::int64_t bytes);
  const std::byte* gathered(int member, std::int64_t bytes) const;

  bool compare_signatures(const Operation& operation);
  bool advance_small_reduce(const Operation& operation);
  bool advance_all_reduce(Operation& operation);
  bool advance_reduce_scatter(Operation& operation);
  bool advance_all_gather(Operation& operation);
  bool advance_all_to_all(Operation& operation);
  bool advance_broadcast(Operation& operation);
  /// Cuts the block that begins at `position` into parts, one a member.
  void cut_block(const Operation& operation);
  void cut_pieces(const Operation& operation);
  /// Sends the others' parts of `data` and asks for their terms of the own part.
  void exchange_terms(const Operation& operation, const std::byte* data);
  void sum_terms(const Operation& operation, const std::byte* mine, std::byte* to);
  std::int64_t part_elements(const Operation& operation) const;

  MPI_Comm communicator_;
  int me_;
  int members_;
  bool checked_;
  std::int64_t message_bytes_;
  std::int64_t block_bytes_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;  // of the requests
  std::vector<std::byte> scratch_;
  int distance_ = 0;                           // of the gather that goes on; 0: none
  std::vector<std::int64_t> begins_, counts_;  // elements: parts of the present block
  std::vector<const void*> terms_;
};

}  // namespace tessera::comm
