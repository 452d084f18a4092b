// Lanes that wake sleepers; POSIX shared memory objects.
#include "comm/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

namespace tessera::comm {
namespace {

constexpr std::size_t kPage = 4096;
/// Sleepers look at the health of the others this often.
constexpr long kSleepNanoseconds = 10'000'000;

std::optional<std::string> random_name() {
  std::uint64_t bits = 0;
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) return std::nullopt;
  std::string name = "/tessera-";
  for (int digit = 0; digit < 16; ++digit) name += "0123456789abcdef"[(bits >> (4 * digit)) & 15U];
  return name;
}

/// Room in the file system of shared memory, with a tenth to spare for other programs.
bool has_room(int file, std::size_t bytes) {
  struct statvfs status {};
  if (fstatvfs(file, &status) != 0) return false;
  return status.f_blocks == 0 || status.f_bavail * status.f_frsize >= bytes + bytes / 10;
}

std::shared_ptr<std::byte> map(int file, std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  if (memory == MAP_FAILED) return nullptr;
  return {static_cast<std::byte*>(memory), [bytes](std::byte* data) { munmap(data, bytes); }};
}

/// The half of a tick that changes, as the word that the kernel compares.
std::uint32_t* word_of(std::atomic<std::uint64_t>& tick) {
  constexpr int kLower = std::endian::native == std::endian::little ? 0 : 1;
  return reinterpret_cast<std::uint32_t*>(&tick) + kLower;
}

}  // namespace

void Lane::publish(std::uint64_t now) {
  // Both sides first write, then read what the other wrote, in one total order: a sleeper that is
  // not seen here has yet to compare the tick, and sees the new one.
  tick.store(now, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) == 0) return;
  syscall(SYS_futex, word_of(tick), FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr,
          0);
}

void Lane::sleep_while(std::uint64_t seen) {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (tick.load(std::memory_order_seq_cst) == seen) {
    const timespec most{0, kSleepNanoseconds};
    syscall(SYS_futex, word_of(tick), FUTEX_WAIT, static_cast<std::uint32_t>(seen), &most, nullptr,
            0);
  }
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

SharedBytes SharedBytes::ordinary(std::size_t bytes) {
  const std::size_t rounded = (bytes + kPage) / kPage * kPage;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kPage, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, rounded);
  return {{memory, [](std::byte* data) { std::free(data); }}, ""};
}

std::optional<SharedBytes> SharedBytes::create(std::size_t bytes) {
  const std::optional<std::string> name = random_name();
  if (!name) return std::nullopt;
  const int file = shm_open(name->c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return std::nullopt;
  std::shared_ptr<std::byte> memory;
  // Reserved at once: a page that cannot be had later would end the process with SIGBUS.
  if (has_room(file, bytes) && posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0) {
    memory = map(file, bytes);
  }
  close(file);
  if (memory == nullptr) {
    shm_unlink(name->c_str());
    return std::nullopt;
  }
  return SharedBytes(std::move(memory), *name);
}

std::optional<SharedBytes> SharedBytes::open(const std::string& name, std::size_t bytes) {
  const int file = shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return std::nullopt;
  std::shared_ptr<std::byte> memory = map(file, bytes);
  close(file);
  if (memory == nullptr) return std::nullopt;
  return SharedBytes(std::move(memory), name);
}

void SharedBytes::unlink() {
  if (!name_.empty()) shm_unlink(name_.c_str());
  name_.clear();
}

std::int64_t Segment::slot_bytes_for(int members, std::int64_t wanted) {
  // Halves of a slot are cut into one part a member, each of whole cache lines.
  const std::int64_t unit = std::int64_t{128} * members;
  const std::int64_t most = std::min(wanted, kMostBytes / members);
  return std::max(most / unit, std::int64_t{1}) * unit;
}

std::size_t Segment::bytes_for(int members, std::int64_t slot_bytes) {
  return static_cast<std::size_t>(members) *
         (2 * Lane::kBytes + static_cast<std::size_t>(slot_bytes));
}

}  // namespace tessera::comm
