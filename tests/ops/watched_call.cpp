// One call of an op on one rank, watched.
#include "tests/ops/watched_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tessera::testing {
namespace {

using graph::LocalCall;
using graph::LocalTensor;

constexpr std::size_t kGuard = 64;  // bytes; keeps the guarded memory aligned
constexpr unsigned char kGuardByte = 0xA5;

/// Memory with guard bytes on both sides.
class Guarded {
 public:
  Guarded(std::size_t bytes, unsigned char fill)
      : bytes_(bytes), memory_(DType::uint8, static_cast<std::int64_t>(bytes + 2 * kGuard)) {
    std::memset(memory_.data(), kGuardByte, bytes + 2 * kGuard);
    std::memset(data(), fill, bytes);
  }
  void* data() { return static_cast<unsigned char*>(memory_.data()) + kGuard; }
  /// Null where there is nothing, as kernels are promised.
  void* pointer() { return bytes_ == 0 ? nullptr : data(); }
  bool intact() const {
    const auto* all = static_cast<const unsigned char*>(memory_.data());
    const auto is_guard = [](unsigned char byte) { return byte == kGuardByte; };
    return std::all_of(all, all + kGuard, is_guard) &&
           std::all_of(all + kGuard + bytes_, all + 2 * kGuard + bytes_, is_guard);
  }

 private:
  std::size_t bytes_;
  Buffer memory_;
};

}  // namespace

RunResult run_call(const graph::Op& op, const LocalCall& call, const std::vector<Buffer>& inputs,
                   unsigned char fill, std::pair<int, int> in_place) {
  std::vector<Guarded> memory;
  memory.reserve(call.outputs.size());
  std::vector<void*> outputs;
  for (const LocalTensor& output : call.outputs) {
    memory.emplace_back(static_cast<std::size_t>(output.box.elements()) * size_of(output.dtype),
                        fill);
    outputs.push_back(memory.back().pointer());
  }
  std::vector<const void*> sources;
  for (const Buffer& input : inputs) {
    sources.push_back(input.elements() == 0 ? nullptr : input.data());
  }
  if (in_place.first >= 0) {
    void* shared = outputs[static_cast<std::size_t>(in_place.first)];
    const auto from = static_cast<std::size_t>(in_place.second);
    if (shared != nullptr) std::memcpy(shared, inputs[from].data(), inputs[from].bytes());
    sources[from] = shared;
  }
  Guarded workspace(static_cast<std::size_t>(op.workspace_bytes(call)), fill);
  const std::vector<Buffer> before = inputs;
  const graph::Kernel kernel = op.prepare(call, kernels::CpuDevice{1});
  kernel(sources.data(), outputs.data(), workspace.pointer(), {3});
  RunResult result;
  if (!workspace.intact()) result.problem = "wrote outside its workspace";
  if (!(before == inputs)) result.problem = "changed an input";
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if (!memory[i].intact()) result.problem = fmt::format("wrote outside result {}", i);
    Buffer output(call.outputs[i].dtype, call.outputs[i].box.elements());
    std::memcpy(output.data(), memory[i].data(), output.bytes());
    result.outputs.push_back(std::move(output));
  }
  return result;
}

}  // namespace tessera::testing
