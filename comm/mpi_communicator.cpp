// Messages between pairs: non-blocking, always in the same order on both sides.
#include "comm/mpi_communicator.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "comm/pieces.h"

namespace tessera::comm {
namespace {

using Kind = Operation::Kind;

/// One tag is enough: between two members messages arrive in the order in which they were sent, and
/// operations never overlap.
constexpr int kTag = 7;
/// Up to this many bytes of all members together are gathered whole.
constexpr std::int64_t kSmallBytes = std::int64_t{64} << 10U;

// Stages.
constexpr int kNew = 0;
constexpr int kAgreed = 1;  // signatures compared where asked for
constexpr int kMoving = 2;  // parts or terms travel
constexpr int kSums = 3;    // sums travel, or the messages to the next members of a broadcast

}  // namespace

void check_mpi(int code, const std::string& what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  throw Error(Error::Kind::rank_lost,
              what + ": MPI reports: " + std::string(text, static_cast<std::size_t>(length)));
}

MpiCommunicator::MpiCommunicator(MPI_Comm communicator, std::vector<int> world_ranks,
                                 Watchdog& watchdog, bool oversubscribed, bool checked,
                                 std::int64_t message_bytes, std::int64_t block_bytes)
    : QueuedCommunicator(
          [&] {
            int rank = 0;
            check_mpi(MPI_Comm_rank(communicator, &rank), "rank in a group");
            return rank;
          }(),
          std::move(world_ranks), watchdog, oversubscribed),
      communicator_(communicator),
      me_(rank()),
      members_(size()),
      checked_(checked),
      message_bytes_(message_bytes),
      block_bytes_(block_bytes),
      begins_(static_cast<std::size_t>(members_)),
      counts_(static_cast<std::size_t>(members_)),
      terms_(static_cast<std::size_t>(members_)) {
  check_mpi(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "error handler of a group");
}

// ---- messages ----

void MpiCommunicator::send(const Operation& operation, int member, const std::byte* data,
                           std::int64_t bytes) {
  for (std::int64_t done = 0; done < bytes; done += message_bytes_) {
    requests_.push_back(MPI_REQUEST_NULL);
    peers_.push_back(member);
    check_mpi(MPI_Isend(data + done, static_cast<int>(std::min(message_bytes_, bytes - done)),
                        MPI_BYTE, member, kTag, communicator_, &requests_.back()),
              describe(operation));
  }
}

void MpiCommunicator::receive(const Operation& operation, int member, std::byte* data,
                              std::int64_t bytes) {
  for (std::int64_t done = 0; done < bytes; done += message_bytes_) {
    requests_.push_back(MPI_REQUEST_NULL);
    peers_.push_back(member);
    check_mpi(MPI_Irecv(data + done, static_cast<int>(std::min(message_bytes_, bytes - done)),
                        MPI_BYTE, member, kTag, communicator_, &requests_.back()),
              describe(operation));
  }
}

bool MpiCommunicator::requests_done(const Operation& operation) {
  if (requests_.empty()) return true;
  int done = 0;
  check_mpi(
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
      describe(operation));
  if (done == 0) return false;
  requests_.clear();
  peers_.clear();
  return true;
}

std::vector<int> MpiCommunicator::missing(const Operation&) const {
  std::vector<int> absent;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    int done = 0;
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE);
    if (done == 0 && std::ranges::find(absent, peers_[i]) == absent.end()) {
      absent.push_back(peers_[i]);
    }
  }
  std::ranges::sort(absent);
  return absent;
}

bool MpiCommunicator::advance(Operation& operation) {
  if (operation.stage == kNew) {
    if (checked_ && !compare_signatures(operation)) return false;
    operation.stage = kAgreed;
  }
  switch (operation.kind) {
    case Kind::barrier:
      return gather_all(operation, &operation.signature, 1);
    case Kind::all_reduce:
      return operation.count * operation.size * members_ <= kSmallBytes
                 ? advance_small_reduce(operation)
                 : advance_all_reduce(operation);
    case Kind::reduce_scatter:
      return advance_reduce_scatter(operation);
    case Kind::all_gather:
      return advance_all_gather(operation);
    case Kind::all_to_all:
      return advance_all_to_all(operation);
    case Kind::broadcast:
      return advance_broadcast(operation);
  }
  return true;
}

// ---- gathering little data: distances double, so that log2(members) rounds are enough ----

bool MpiCommunicator::gather_all(const Operation& operation, const void* mine, std::int64_t bytes) {
  if (distance_ == 0) {
    scratch_.resize(static_cast<std::size_t>(bytes * members_));
    if (bytes > 0) std::memcpy(scratch_.data(), mine, static_cast<std::size_t>(bytes));
    distance_ = 1;
  }
  while (requests_done(operation)) {
    if (distance_ >= members_) {
      distance_ = 0;
      return true;
    }
    const std::int64_t blocks = std::min(distance_, members_ - distance_);
    receive(operation, neighbour(distance_), scratch_.data() + distance_ * bytes, blocks * bytes);
    send(operation, neighbour(-distance_), scratch_.data(), blocks * bytes);
    distance_ *= 2;
  }
  return false;
}

const std::byte* MpiCommunicator::gathered(int member, std::int64_t bytes) const {
  return scratch_.data() + (member - me_ + members_) % members_ * bytes;
}

bool MpiCommunicator::compare_signatures(const Operation& operation) {
  constexpr std::int64_t kBytes = sizeof operation.signature;
  if (!gather_all(operation, &operation.signature, kBytes)) return false;
  for (int member = 0; member < members_; ++member) {
    std::uint64_t other = 0;
    std::memcpy(&other, gathered(member, kBytes), sizeof other);
    if (other != operation.signature) fail_mismatch(operation, member, other);
  }
  return true;
}

bool MpiCommunicator::advance_small_reduce(const Operation& operation) {
  const std::int64_t bytes = operation.count * operation.size;
  if (!gather_all(operation, operation.receive, bytes)) return false;
  for (int member = 0; member < members_; ++member) {
    terms_[static_cast<std::size_t>(member)] = gathered(member, bytes);
  }
  summation_of(operation.dtype, operation.reduce)(operation.receive, terms_.data(), members_,
                                                  operation.count);
  return true;
}

// ---- sums of much data ----

std::int64_t MpiCommunicator::part_elements(const Operation& operation) const {
  return std::max(block_bytes_ / members_ / operation.size, std::int64_t{1});
}

void MpiCommunicator::cut_block(const Operation& operation) {
  const std::int64_t rest = operation.count - operation.position;
  const std::int64_t part = std::min(part_elements(operation), (rest + members_ - 1) / members_);
  for (int member = 0; member < members_; ++member) {
    const auto at = static_cast<std::size_t>(member);
    begins_[at] = std::min(operation.position + member * part, operation.count);
    counts_[at] = std::min(part, operation.count - begins_[at]);
  }
}

void MpiCommunicator::cut_pieces(const Operation& operation) {
  const std::int64_t piece = part_elements(operation);
  std::int64_t offset = 0;
  for (std::size_t at = 0; at < counts_.size(); ++at) {
    begins_[at] = offset + operation.position;
    counts_[at] =
        std::clamp(operation.receive_counts[at] - operation.position, std::int64_t{0}, piece);
    offset += operation.receive_counts[at];
  }
}

void MpiCommunicator::exchange_terms(const Operation& operation, const std::byte* data) {
  const std::int64_t mine = counts_[static_cast<std::size_t>(me_)] * operation.size;
  scratch_.resize(static_cast<std::size_t>(mine * members_));
  for (int distance = 1; distance < members_; ++distance) {
    const int from = neighbour(-distance);
    receive(operation, from, scratch_.data() + from * mine, mine);
    const auto to = static_cast<std::size_t>(neighbour(distance));
    send(operation, neighbour(distance), data + begins_[to] * operation.size,
         counts_[to] * operation.size);
  }
}

void MpiCommunicator::sum_terms(const Operation& operation, const std::byte* mine, std::byte* to) {
  const std::int64_t count = counts_[static_cast<std::size_t>(me_)];
  for (int member = 0; member < members_; ++member) {
    terms_[static_cast<std::size_t>(member)] =
        member == me_ ? mine : scratch_.data() + member * count * operation.size;
  }
  summation_of(operation.dtype, operation.reduce)(to, terms_.data(), members_, count);
}

bool MpiCommunicator::advance_all_reduce(Operation& operation) {
  const auto mine = static_cast<std::size_t>(me_);
  while (requests_done(operation)) {
    if (operation.stage == kMoving) {
      std::byte* sums = operation.receive + begins_[mine] * operation.size;
      sum_terms(operation, sums, sums);
      for (int distance = 1; distance < members_; ++distance) {
        const auto from = static_cast<std::size_t>(neighbour(-distance));
        receive(operation, neighbour(-distance), operation.receive + begins_[from] * operation.size,
                counts_[from] * operation.size);
        send(operation, neighbour(distance), sums, counts_[mine] * operation.size);
      }
      operation.stage = kSums;
      continue;
    }
    if (operation.stage == kSums) operation.position += sum_before(counts_, members_);
    if (operation.position >= operation.count) return true;
    cut_block(operation);
    exchange_terms(operation, operation.receive);
    operation.stage = kMoving;
  }
  return false;
}

bool MpiCommunicator::advance_reduce_scatter(Operation& operation) {
  const auto mine = static_cast<std::size_t>(me_);
  while (requests_done(operation)) {
    if (operation.stage == kMoving) {
      sum_terms(operation, operation.send + begins_[mine] * operation.size,
                operation.receive + operation.position * operation.size);
      operation.position += part_elements(operation);
    }
    if (operation.position >= largest(operation.receive_counts)) return true;
    cut_pieces(operation);
    exchange_terms(operation, operation.send);
    operation.stage = kMoving;
  }
  return false;
}

// ---- moves ----

bool MpiCommunicator::advance_all_gather(Operation& operation) {
  if (operation.stage == kMoving) return requests_done(operation);
  const std::int64_t mine = operation.receive_counts[static_cast<std::size_t>(me_)];
  for (int distance = 1; distance < members_; ++distance) {
    const int from = neighbour(-distance);
    receive(operation, from,
            operation.receive + sum_before(operation.receive_counts, from) * operation.size,
            operation.receive_counts[static_cast<std::size_t>(from)] * operation.size);
    send(operation, neighbour(distance), operation.send, mine * operation.size);
  }
  move_bytes(operation.receive + sum_before(operation.receive_counts, me_) * operation.size,
             operation.send, mine * operation.size);
  operation.stage = kMoving;
  return requests_done(operation);
}

bool MpiCommunicator::advance_all_to_all(Operation& operation) {
  if (operation.stage == kMoving) return requests_done(operation);
  for (int distance = 0; distance < members_; ++distance) {
    const int from = neighbour(-distance);
    const int to = neighbour(distance);
    std::byte* target =
        operation.receive + sum_before(operation.receive_counts, from) * operation.size;
    const std::byte* source =
        operation.send + sum_before(operation.send_counts, to) * operation.size;
    const std::int64_t bytes =
        operation.receive_counts[static_cast<std::size_t>(from)] * operation.size;
    if (distance == 0) {
      move_bytes(target, source, bytes);
      continue;
    }
    receive(operation, from, target, bytes);
    send(operation, to, source,
         operation.send_counts[static_cast<std::size_t>(to)] * operation.size);
  }
  operation.stage = kMoving;
  return requests_done(operation);
}

/// A binomial tree: counted from the root, a member gets the data from the one whose number lacks
/// its lowest bit.
bool MpiCommunicator::advance_broadcast(Operation& operation) {
  const int relative = (me_ - operation.root + members_) % members_;
  const int lowest = relative == 0 ? members_ : relative & -relative;
  const std::int64_t bytes = operation.count * operation.size;
  if (operation.stage == kAgreed) {
    if (relative != 0) receive(operation, neighbour(-lowest), operation.receive, bytes);
    operation.stage = kMoving;
  }
  while (requests_done(operation)) {
    if (operation.stage == kSums) return true;
    for (int distance = 1; distance < lowest && relative + distance < members_; distance *= 2) {
      send(operation, neighbour(distance), operation.receive, bytes);
    }
    operation.stage = kSums;
  }
  return false;
}

}  // namespace tessera::comm
