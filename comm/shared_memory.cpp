// Rounds, lanes and slots: see the header for the order of events and segment.h for why two lanes
// are enough.
#include "comm/shared_memory.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "comm/pieces.h"

namespace tessera::comm {
namespace {

using Kind = Operation::Kind;

// Stages of operations that are not small.
constexpr int kNew = 0;
constexpr int kAnnounced = 1;
constexpr int kMoving = 2;  // pieces, or the parts of a block
constexpr int kSummed = 3;

/// Bytes of piece `index` of something that has `bytes` bytes in all.
std::int64_t piece_of(std::int64_t bytes, std::int64_t piece, std::int64_t index) {
  return std::clamp(bytes - index * piece, std::int64_t{0}, piece);
}

}  // namespace

SharedCommunicator::SharedCommunicator(Segment segment, int rank, std::vector<int> world_ranks,
                                       Watchdog& watchdog, bool oversubscribed)
    : QueuedCommunicator(rank, std::move(world_ranks), watchdog, oversubscribed),
      segment_(std::move(segment)),
      me_(rank),
      members_(size()),
      in_lane_(static_cast<std::size_t>(members_)),
      counts_(static_cast<std::size_t>(members_)),
      terms_(static_cast<std::size_t>(members_)) {}

// ---- rounds ----

void SharedCommunicator::publish(const Operation& operation, const void* data, std::int64_t bytes) {
  Lane& lane = segment_.lane(me_, ++tick_);
  lane.signature = operation.signature;
  if (bytes > 0) std::memcpy(lane.payload, data, static_cast<std::size_t>(bytes));
  lane.publish(tick_);
  next_ = 0;
}

bool SharedCommunicator::arrived(const Operation& operation) {
  for (; next_ < members_; ++next_) {
    if (next_ == me_) continue;
    const Lane& lane = segment_.lane(next_, tick_);
    if (lane.tick.load(std::memory_order_acquire) != tick_) return false;
    if (lane.signature != operation.signature) {
      fail_mismatch(operation, next_, lane.signature);
    }
  }
  return true;
}

void SharedCommunicator::doze(const Operation&) {
  if (next_ == members_) return;
  Lane& lane = segment_.lane(next_, tick_);
  const std::uint64_t seen = lane.tick.load(std::memory_order_acquire);
  if (seen != tick_) lane.sleep_while(seen);
}

std::vector<int> SharedCommunicator::missing(const Operation&) const {
  std::vector<int> absent;
  for (int member = 0; member < members_; ++member) {
    if (member != me_ && segment_.lane(member, tick_).tick.load() != tick_)
      absent.push_back(member);
  }
  return absent;
}

bool SharedCommunicator::advance(Operation& operation) {
  if (operation.kind == Kind::all_to_all) return advance_all_to_all(operation);
  const std::int64_t small = small_bytes(operation);
  if (operation.stage == kNew) {
    if (small >= 0) {
      publish_small(operation, small);
    } else {
      publish(operation, nullptr, 0);
    }
    operation.stage = kAnnounced;
  }
  if (small >= 0) {
    if (!arrived(operation)) return false;
    finish_small(operation);
    return true;
  }
  if (operation.kind == Kind::all_reduce) return advance_all_reduce(operation);
  return advance_pieces(operation);
}

// ---- small operations ----

std::int64_t SharedCommunicator::small_bytes(const Operation& operation) const {
  std::int64_t elements = operation.count;  // all_reduce, reduce_scatter, broadcast, barrier
  if (operation.kind == Kind::all_gather) elements = largest(operation.receive_counts);
  if (elements > Lane::kPayload / operation.size) return -1;
  return elements * operation.size;
}

void SharedCommunicator::publish_small(const Operation& operation, std::int64_t bytes) {
  switch (operation.kind) {
    case Kind::all_reduce:
      return publish(operation, operation.receive, bytes);
    case Kind::reduce_scatter:
      return publish(operation, operation.send, bytes);
    case Kind::all_gather:
      return publish(operation, operation.send,
                     operation.receive_counts[static_cast<std::size_t>(me_)] * operation.size);
    case Kind::broadcast:
      return publish(operation, operation.receive, me_ == operation.root ? bytes : 0);
    default:
      return publish(operation, nullptr, 0);
  }
}

void SharedCommunicator::combine_lanes(const Operation& operation, std::int64_t begin,
                                       std::int64_t count) {
  for (int member = 0; member < members_; ++member) {
    terms_[static_cast<std::size_t>(member)] = payload(member) + begin * operation.size;
  }
  summation_of(operation.dtype, operation.reduce)(operation.receive, terms_.data(), members_,
                                                  count);
}

void SharedCommunicator::finish_small(const Operation& operation) {
  switch (operation.kind) {
    case Kind::all_reduce:
      return combine_lanes(operation, 0, operation.count);
    case Kind::reduce_scatter:
      return combine_lanes(operation, sum_before(operation.receive_counts, me_),
                           operation.receive_counts[static_cast<std::size_t>(me_)]);
    case Kind::broadcast:
      if (me_ != operation.root) {
        copy_bytes(operation.receive, payload(operation.root), operation.count * operation.size);
      }
      return;
    case Kind::all_gather: {
      std::byte* to = operation.receive;
      for (int member = 0; member < members_; ++member) {
        const std::int64_t bytes =
            operation.receive_counts[static_cast<std::size_t>(member)] * operation.size;
        copy_bytes(to, payload(member), bytes);
        to += bytes;
      }
      return;
    }
    default:
      return;
  }
}

// ---- all_reduce of much data ----

std::int64_t SharedCommunicator::elements_of_part(const Operation& operation) const {
  const std::int64_t most = segment_.slot_bytes() / members_ / operation.size;
  const std::int64_t rest = operation.count - operation.position;
  return std::min(most, (rest + members_ - 1) / members_);
}

std::pair<std::int64_t, std::int64_t> SharedCommunicator::part_of_block(const Operation& operation,
                                                                        int member) const {
  const std::int64_t part = elements_of_part(operation);
  const std::int64_t begin = std::min(operation.position + member * part, operation.count);
  return {begin, std::min(part, operation.count - begin)};
}

bool SharedCommunicator::advance_all_reduce(Operation& operation) {
  while (arrived(operation)) {
    if (operation.stage == kMoving) {
      sum_block(operation);
      operation.stage = kSummed;
    } else {
      if (operation.stage == kSummed) {
        take_block(operation);
        operation.position += members_ * elements_of_part(operation);
        if (operation.position >= operation.count) return true;
      }
      put_block(operation);
      operation.stage = kMoving;
    }
    publish(operation, nullptr, 0);
  }
  return false;
}

void SharedCommunicator::put_block(const Operation& operation) {
  const std::int64_t stride = segment_.slot_bytes() / members_;
  for (int member = 0; member < members_; ++member) {
    if (member == me_) continue;
    const auto [begin, count] = part_of_block(operation, member);
    copy_bytes(segment_.slot(me_) + member * stride, operation.receive + begin * operation.size,
               count * operation.size);
  }
}

void SharedCommunicator::sum_block(const Operation& operation) {
  const std::int64_t stride = segment_.slot_bytes() / members_;
  const auto [begin, count] = part_of_block(operation, me_);
  std::byte* mine = operation.receive + begin * operation.size;
  for (int member = 0; member < members_; ++member) {
    terms_[static_cast<std::size_t>(member)] =
        member == me_ ? mine : segment_.slot(member) + me_ * stride;
  }
  // The own part of the own slot is free for the sum: nobody puts terms there.
  sum_pieces({.result = mine,
              .copy = segment_.slot(me_) + me_ * stride,
              .count = count,
              .size = operation.size,
              .summation = summation_of(operation.dtype, operation.reduce)},
             terms_);
}

void SharedCommunicator::take_block(const Operation& operation) {
  const std::int64_t stride = segment_.slot_bytes() / members_;
  for (int member = 0; member < members_; ++member) {
    if (member == me_) continue;
    const auto [begin, count] = part_of_block(operation, member);
    copy_bytes(operation.receive + begin * operation.size, segment_.slot(member) + member * stride,
               count * operation.size);
  }
}

// ---- the others by pieces ----

std::byte* SharedCommunicator::half(int member, const Operation& operation) const {
  return segment_.slot(member) + (operation.position & 1) * (segment_.slot_bytes() / 2);
}

std::int64_t SharedCommunicator::piece_bytes(const Operation& operation) const {
  const std::int64_t half = segment_.slot_bytes() / 2;
  const bool one_part = operation.kind == Kind::all_gather || operation.kind == Kind::broadcast;
  return one_part ? half : half / members_;
}

std::int64_t SharedCommunicator::pieces(const Operation& operation) const {
  std::int64_t bytes = longest_;
  if (operation.kind == Kind::broadcast) bytes = operation.count * operation.size;
  if (operation.kind == Kind::all_gather || operation.kind == Kind::reduce_scatter) {
    bytes = largest(operation.receive_counts) * operation.size;
  }
  const std::int64_t piece = piece_bytes(operation);
  return (bytes + piece - 1) / piece;
}

bool SharedCommunicator::advance_pieces(Operation& operation) {
  while (arrived(operation)) {
    if (operation.stage == kMoving) {
      take_piece(operation);
      ++operation.position;
    }
    operation.stage = kMoving;
    if (operation.position >= pieces(operation)) return true;
    put_piece(operation);
    publish(operation, nullptr, 0);
  }
  return false;
}

void SharedCommunicator::put_piece(const Operation& operation) {
  const std::int64_t piece = piece_bytes(operation);
  const std::int64_t skip = operation.position * piece;
  std::byte* to = half(me_, operation);
  const auto mine = static_cast<std::size_t>(me_);
  switch (operation.kind) {
    case Kind::broadcast:
      if (me_ == operation.root) {
        copy_bytes(to, operation.receive + skip,
                   piece_of(operation.count * operation.size, piece, operation.position));
      }
      return;
    case Kind::all_gather:
      return copy_bytes(
          to, operation.send + skip,
          piece_of(operation.receive_counts[mine] * operation.size, piece, operation.position));
    default:
      break;
  }
  const bool exchange = operation.kind == Kind::all_to_all;
  if (exchange && in_lane_[mine]) return;
  const std::vector<std::int64_t>& counts =
      exchange ? operation.send_counts : operation.receive_counts;
  const std::byte* from = operation.send;
  for (int member = 0; member < members_; ++member) {
    const std::int64_t bytes = counts[static_cast<std::size_t>(member)] * operation.size;
    if (member != me_) {
      copy_bytes(to + member * piece, from + skip, piece_of(bytes, piece, operation.position));
    }
    from += bytes;
  }
}

void SharedCommunicator::take_piece(const Operation& operation) {
  const std::int64_t piece = piece_bytes(operation);
  const std::int64_t skip = operation.position * piece;
  if (operation.kind == Kind::broadcast) {
    if (me_ != operation.root) {
      copy_bytes(operation.receive + skip, half(operation.root, operation),
                 piece_of(operation.count * operation.size, piece, operation.position));
    }
    return;
  }
  if (operation.kind == Kind::reduce_scatter) {
    const std::int64_t bytes =
        piece_of(operation.receive_counts[static_cast<std::size_t>(me_)] * operation.size, piece,
                 operation.position);
    if (bytes == 0) return;
    for (int member = 0; member < members_; ++member) {
      terms_[static_cast<std::size_t>(member)] =
          member == me_
              ? operation.send + sum_before(operation.receive_counts, me_) * operation.size + skip
              : half(member, operation) + me_ * piece;
    }
    sum_pieces({.result = operation.receive + skip,
                .count = bytes / operation.size,
                .size = operation.size,
                .summation = summation_of(operation.dtype, operation.reduce)},
               terms_);
    return;
  }
  const bool exchange = operation.kind == Kind::all_to_all;
  std::byte* to = operation.receive;
  for (int member = 0; member < members_; ++member) {
    const auto at = static_cast<std::size_t>(member);
    const std::int64_t bytes = operation.receive_counts[at] * operation.size;
    const std::int64_t now = piece_of(bytes, piece, operation.position);
    if (exchange) {
      if (member != me_ && !in_lane_[at]) {
        copy_bytes(to + skip, half(member, operation) + me_ * piece, now);
      }
    } else if (member != me_) {
      copy_bytes(to + skip, half(member, operation), now);
    } else if (to != operation.send) {
      copy_bytes(to + skip, operation.send + skip, now);
    }
    to += bytes;
  }
}

// ---- all_to_all: the lanes tell who sends how much, and carry it where it fits ----

bool SharedCommunicator::advance_all_to_all(Operation& operation) {
  if (operation.stage == kNew) {
    publish_counts(operation);
    operation.stage = kAnnounced;
  }
  if (operation.stage == kAnnounced) {
    if (!arrived(operation)) return false;
    take_counts(operation);
  }
  return advance_pieces(operation);
}

void SharedCommunicator::publish_counts(const Operation& operation) {
  const std::int64_t head = members_ * static_cast<std::int64_t>(sizeof(std::int64_t));
  const std::int64_t bytes = sum_before(operation.send_counts, members_) * operation.size;
  // This lane is free already, see segment.h; `publish` then only adds the counts.
  if (head + bytes <= Lane::kPayload) {
    copy_bytes(segment_.lane(me_, tick_ + 1).payload + head, operation.send, bytes);
  }
  publish(operation, operation.send_counts.data(), head);
}

void SharedCommunicator::take_counts(const Operation& operation) {
  const std::int64_t head = members_ * static_cast<std::int64_t>(sizeof(std::int64_t));
  std::vector<std::int64_t>& counts = counts_;
  longest_ = 0;
  std::byte* to = operation.receive;
  for (int member = 0; member < members_; ++member) {
    const auto at = static_cast<std::size_t>(member);
    std::memcpy(counts.data(), payload(member), static_cast<std::size_t>(head));
    const std::int64_t expected = operation.receive_counts[at];
    if (counts[static_cast<std::size_t>(me_)] != expected) {
      fail(operation, "rank " + std::to_string(world_ranks()[at]) + " sends " +
                          std::to_string(counts[static_cast<std::size_t>(me_)]) +
                          " elements where " + std::to_string(expected) + " are expected");
    }
    in_lane_[at] = head + sum_before(counts, members_) * operation.size <= Lane::kPayload;
    const std::int64_t bytes = expected * operation.size;
    if (in_lane_[at]) {
      copy_bytes(to, payload(member) + head + sum_before(counts, me_) * operation.size, bytes);
    } else {
      if (member == me_)
        copy_bytes(to, operation.send + sum_before(counts, me_) * operation.size, bytes);
      counts[at] = 0;  // what stays on its rank does not travel
      longest_ = std::max(longest_, largest(counts) * operation.size);
    }
    to += bytes;
  }
}

}  // namespace tessera::comm
