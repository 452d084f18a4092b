// Distributes a matrix over a mesh and shows the part that each rank holds. Run: mpirun -np 4
// ./distribute_tensor
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "api/tessera.h"

int main() {
  using namespace tessera;
  namespace dist = tessera::distribution;
  try {
    const auto ranks = static_cast<std::int64_t>(dist::get_device_count());
    const std::int64_t columns = ranks % 2 == 0 ? 2 : 1;
    const dist::DeviceMesh mesh({ranks / columns, columns}, {"data", "model"});
    std::vector<float> values(5 * 4);
    std::iota(values.begin(), values.end(), 0.0F);
    const Tensor whole = Tensor::from(values, {5, 4});
    const Tensor split =
        dist::distribute_tensor(whole, dist::TensorLayout::of({"data", "model"}, mesh));

    std::string text;
    const std::vector<std::int64_t> shape = split.local_shape();
    const std::vector<std::int64_t> offset = split.offset();
    for (const float value : split.local()) {
      text += ' ';
      text += std::to_string(static_cast<int>(value));
    }
    std::printf("rank %d holds [%lld, %lld] at [%lld, %lld]:%s\n",
                dist::DataParallel().process_id(), static_cast<long long>(shape[0]),
                static_cast<long long>(shape[1]), static_cast<long long>(offset[0]),
                static_cast<long long>(offset[1]), text.c_str());
    return split.to_host() == values ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return exit_status(error.kind);
  }
}
