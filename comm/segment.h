// The memory through which the members of one group exchange data: lanes for small messages, slots
// for pieces of large ones.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tessera::comm {

/// What one member shows to the others in one round. Rounds ("ticks") are counted from 1; a member
/// has two lanes and writes round t into lane t mod 2: nobody enters round t + 2 before everybody
/// has entered t + 1, that is, has finished reading round t. A payload of up to 40 bytes shares the
/// cache line of the tick: one transfer tells both that a rank arrived and what it brought.
struct alignas(64) Lane {
  static constexpr std::size_t kBytes = 4096;
  static constexpr std::int64_t kPayload = kBytes - 24;

  std::atomic<std::uint64_t> tick;
  std::uint64_t signature;              // of the operation: what all members must agree on
  std::atomic<std::uint64_t> sleepers;  // members that sleep until the tick changes
  std::byte payload[kPayload];

  /// Shows the lane's content as that of round `now` and wakes those who sleep for it.
  void publish(std::uint64_t now);
  /// Sleeps until the tick is not `seen` any more, or some milliseconds.
  void sleep_while(std::uint64_t seen);
};
static_assert(sizeof(Lane) == Lane::kBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Zeroed memory: ordinary, or a POSIX shared memory object that other processes map by its name.
class SharedBytes {
 public:
  static SharedBytes ordinary(std::size_t bytes);
  /// Creates an object with a random name, every page of it reserved. Empty when there is no room
  /// for it in /dev/shm.
  static std::optional<SharedBytes> create(std::size_t bytes);
  static std::optional<SharedBytes> open(const std::string& name, std::size_t bytes);

  std::byte* data() const { return memory_.get(); }
  const std::string& name() const { return name_; }
  /// Removes the name; the memory lives as long as someone maps it. To be called when all have
  /// attached.
  void unlink();

 private:
  SharedBytes(std::shared_ptr<std::byte> memory, std::string name)
      : memory_(std::move(memory)), name_(std::move(name)) {}
  std::shared_ptr<std::byte> memory_;
  std::string name_;
};

/// Lays out lanes and slots in a piece of SharedBytes.
class Segment {
 public:
  /// Bytes of a slot by default: two of them stay in a second-level cache.
  static constexpr std::int64_t kSlotBytes = std::int64_t{1} << 20U;
  /// Slots of all members together stay below this, however many there are.
  static constexpr std::int64_t kMostBytes = std::int64_t{32} << 20U;
  static constexpr int kMostMembers = 256;

  /// What a slot of a group may hold: a multiple of 128 bytes a member, at most about `wanted`.
  static std::int64_t slot_bytes_for(int members, std::int64_t wanted = kSlotBytes);
  static std::size_t bytes_for(int members, std::int64_t slot_bytes);

  Segment(SharedBytes memory, int members, std::int64_t slot_bytes)
      : memory_(std::move(memory)), members_(members), slot_bytes_(slot_bytes) {}

  int members() const { return members_; }
  std::int64_t slot_bytes() const { return slot_bytes_; }
  Lane& lane(int member, std::uint64_t tick) const {
    return reinterpret_cast<Lane*>(
        memory_.data())[2 * static_cast<std::size_t>(member) + (tick & 1U)];
  }
  std::byte* slot(int member) const {
    return memory_.data() + 2 * Lane::kBytes * static_cast<std::size_t>(members_) +
           static_cast<std::size_t>(member) * static_cast<std::size_t>(slot_bytes_);
  }

 private:
  SharedBytes memory_;
  int members_;
  std::int64_t slot_bytes_;
};

}  // namespace tessera::comm
