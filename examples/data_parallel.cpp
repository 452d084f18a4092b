// Keras's first DataParallel program: one Dense unit learns a logical rule from 128 samples; every
// rank holds the whole model and its share of each batch. Run: mpirun -np 2 ./data_parallel
#include <cstdio>
#include <vector>

#include "api/tessera.h"

int main() {
  using namespace tessera;
  try {
    set_random_seed(1337);
    distribution::set_distribution(distribution::DataParallel());

    // 128 samples of four numbers; the label says whether their sum is positive.
    std::vector<float> x;
    std::vector<float> y;
    for (int i = 0; i < 128; ++i) {
      float sum = 0.0F;
      for (int j = 0; j < 4; ++j) {
        const float value = static_cast<float>((i * 37 + j * 61 + i * j * 13) % 101) / 50.0F - 1.0F;
        x.push_back(value);
        sum += value;
      }
      y.push_back(sum > 0.0F ? 1.0F : 0.0F);
    }

    Model model = Sequential({InputLayer({4}), Dense({.units = 1, .activation = "sigmoid"})});
    model.compile({.optimizer = R"({"class_name": "SGD", "config": {"learning_rate": 0.2}})",
                   .loss = "binary_crossentropy",
                   .metrics = {"accuracy"}});
    const Dataset data = Dataset::from(Tensor::from(x, {128, 4}), Tensor::from(y, {128, 1}));
    const History history = model.fit(data, {.batch_size = 16, .epochs = 4, .verbose = 2});
    return history["loss"].back() < history["loss"].front() ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return exit_status(error.kind);
  }
}
