// The devices a kernel can run on. The one header that knows which of them this build has.
#pragma once

#include <variant>

namespace tessera::kernels {

/// The host CPU: OpenMP threads of this rank.
struct CpuDevice {
  int threads = 1;
};

/// Kernels are overloaded on the alternatives; ops visit.
using Device = std::variant<CpuDevice>;

}  // namespace tessera::kernels
