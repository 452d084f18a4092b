// Collectives of a group whose members share memory: processes of one node, or threads of one
// process.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "comm/queue.h"
#include "comm/segment.h"
#include "comm/summation.h"

namespace tessera::comm {

/// Small operations take one round: everybody shows its data in its lane, everybody waits for all
/// lanes and combines them in the order of the members. Large ones begin with a round without data
/// (the previous operation is then over everywhere, and all agree on what comes), then move pieces
/// through the slots. An all_reduce takes two rounds a block: members put the others' parts of the
/// block into their slots; each adds up its own part, again in the order of the members, and shows
/// the sum; everybody collects. Sums are therefore the same bits on all members, in every run, and
/// for small and large alike.
class SharedCommunicator final : public QueuedCommunicator {
 public:
  SharedCommunicator(Segment segment, int rank, std::vector<int> world_ranks, Watchdog& watchdog,
                     bool oversubscribed);

 private:
  bool advance(Operation& operation) override;
  std::vector<int> missing(const Operation& operation) const override;
  void doze(const Operation& operation) override;

  // one round
  void publish(const Operation& operation, const void* payload, std::int64_t bytes);
  bool arrived(const Operation& operation);
  const std::byte* payload(int member) const { return segment_.lane(member, tick_).payload; }

  // small operations: what goes into the lane (bytes, or -1 when it does not fit), and what is done
  // with all lanes
  std::int64_t small_bytes(const Operation& operation) const;
  void publish_small(const Operation& operation, std::int64_t bytes);
  void finish_small(const Operation& operation);
  void combine_lanes(const Operation& operation, std::int64_t begin, std::int64_t count);

  // all_to_all
  bool advance_all_to_all(Operation& operation);
  void publish_counts(const Operation& operation);
  void take_counts(const Operation& operation);

  // all_reduce by blocks
  bool advance_all_reduce(Operation& operation);
  void put_block(const Operation& operation);
  void sum_block(const Operation& operation);
  void take_block(const Operation& operation);
  std::int64_t elements_of_part(const Operation& operation) const;
  /// First element and number of elements of a member's part of the present block.
  std::pair<std::int64_t, std::int64_t> part_of_block(const Operation& operation, int member) const;

  // others by pieces, alternating between the halves of the slots
  bool advance_pieces(Operation& operation);
  std::int64_t piece_bytes(const Operation& operation) const;
  std::int64_t pieces(const Operation& operation) const;
  void put_piece(const Operation& operation);
  void take_piece(const Operation& operation);
  std::byte* half(int member, const Operation& operation) const;

  Segment segment_;
  int me_;
  int members_;
  std::uint64_t tick_ = 0;
  int next_ = 0;  // first member not known to have arrived in this round
  // all_to_all: which members' parts fit into their lanes, and the bytes of the longest part that
  // travels otherwise
  std::vector<bool> in_lane_;
  std::vector<std::int64_t> counts_;  // of one member
  std::int64_t longest_ = 0;
  std::vector<const void*> terms_;
};

}  // namespace tessera::comm
