// Large pieces from the system, small ones from the heap.
#include "runtime/exec/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"

namespace tessera::exec {
namespace {

constexpr std::size_t kAlignment = 64;
/// From here on a mapping of its own: a multiple of the size of a huge page.
constexpr std::int64_t kLarge = std::int64_t{4} << 20U;

}  // namespace

std::byte* allocate_zeroed(std::int64_t bytes) {
  if (bytes <= 0) return nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  void* memory = nullptr;
  if (bytes >= kLarge) {
    memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) memory = nullptr;
    if (memory != nullptr)
      madvise(memory, size, MADV_HUGEPAGE);  // a wish: without it nothing is lost but speed
  } else {
    const std::size_t rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
    memory = std::aligned_alloc(kAlignment, rounded);
    if (memory != nullptr) std::memset(memory, 0, rounded);
  }
  if (memory == nullptr) {
    throw Error(Error::Kind::internal,
                "there is no memory for " + std::to_string(bytes) + " bytes of tensors");
  }
  return static_cast<std::byte*>(memory);
}

void release(std::byte* memory, std::int64_t bytes) {
  if (memory == nullptr) return;
  if (bytes >= kLarge) {
    munmap(memory, static_cast<std::size_t>(bytes));
  } else {
    std::free(memory);
  }
}

}  // namespace tessera::exec
