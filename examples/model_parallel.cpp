// ModelParallel with a LayoutMap: the first Dense layer is split by columns, the second by rows, so
// that the pair costs one all-reduce in the forward pass. The same program runs on 1, 2 or 4 ranks.
// Run: mpirun -np 4 ./model_parallel
#include <cstdio>
#include <vector>

#include "api/tessera.h"

int main() {
  using namespace tessera;
  namespace dist = tessera::distribution;
  try {
    set_random_seed(7);
    const auto ranks = static_cast<std::int64_t>(dist::get_device_count());
    const std::int64_t model_axis = ranks % 2 == 0 ? 2 : 1;
    const dist::DeviceMesh mesh({ranks / model_axis, model_axis}, {"batch", "model"});
    dist::LayoutMap layout_map(mesh);
    layout_map.insert(".*hidden/kernel", dist::TensorLayout::of({nullptr, "model"}));
    layout_map.insert(".*hidden/bias", dist::TensorLayout::of({"model"}));
    layout_map.insert(".*output/kernel", dist::TensorLayout::of({"model", nullptr}));
    const dist::Scope scope(
        dist::ModelParallel({.layout_map = layout_map, .batch_dim_name = "batch"}));

    const Value input = Input({8}, "float32", "features");
    const Value hidden = Dense({.units = 32, .activation = "relu", .name = "hidden"})(input);
    Model model =
        Functional({input}, {Dense({.units = 1, .name = "output"})(hidden)}, "regression");
    model.compile({.optimizer = "adam", .loss = "mse"});

    std::vector<float> x;
    std::vector<float> y;
    for (int i = 0; i < 256; ++i) {
      float sum = 0.0F;
      for (int j = 0; j < 8; ++j) {
        const float value = static_cast<float>((i * 29 + j * 17 + i * j * 7) % 97) / 48.0F - 1.0F;
        x.push_back(value);
        sum += value * static_cast<float>(j - 3);
      }
      y.push_back(sum);
    }
    const Dataset data = Dataset::from(Tensor::from(x, {256, 8}), Tensor::from(y, {256, 1}));
    const Plan plan = model.plan(data, 32);
    if (dist::distribution()->process_id() == 0) std::printf("%s\n", plan.text().c_str());
    const History history = model.fit(data, {.batch_size = 32, .epochs = 5, .verbose = 2});
    return history["loss"].back() < history["loss"].front() ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return exit_status(error.kind);
  }
}
