// Optimizers against Keras's numbers (float32): one and three updates of one weight.
#include <catch2/catch.hpp>
#include <limits>

#include "base/error.h"
#include "runtime/ops/ops.h"
#include "tests/unit/train_fixture.h"

using namespace tessera;
using namespace tessera::train;
using namespace tessera::train::test;

namespace {

void check_golden(const std::string& optimizer, Shape shape, const std::vector<double>& after_1,
                  const std::vector<double>& after_3) {
  INFO(optimizer);
  Trainer trainer(optimizer, shape);
  require_near(trainer.step(kGradients[0]), after_1);
  trainer.step(kGradients[1]);
  require_near(trainer.step(kGradients[2]), after_3);
}

}  // namespace

TEST_CASE("optimizers give Keras's weights after one and three updates") {
  struct Case {
    const char* name;
    const char* config;
    std::vector<double> after_1;
    std::vector<double> after_3;
  };
  const std::vector<Case> cases = {
      {"SGD", "", {0.999, -1.998, 2.997, 0.4995}, {1, -2, 2.9945, 0.499}},
      {"SGD",
       R"("learning_rate": 0.1, "momentum": 0.9)",
       {0.99, -1.98, 2.97, 0.495},
       {0.9649, -1.9478, 2.8802, 0.47695}},
      {"SGD",
       R"("learning_rate": 0.1, "momentum": 0.9, "nesterov": true)",
       {0.981, -1.962, 2.943, 0.4905},
       {0.96841, -1.95302, 2.83718, 0.469255}},
      {"SGD",
       R"("learning_rate": 0.1, "weight_decay": 0.01)",
       {0.989, -1.978, 2.967, 0.4945},
       {0.997043, -1.994066, 2.936084, 0.4885165}},
      {"RMSprop",
       "",
       {0.9968379, -1.996838, 2.996838, 0.4968384},
       {0.9965714, -1.99719, 2.994379, 0.4945444}},
      {"RMSprop",
       R"("momentum": 0.9, "centered": true)",
       {0.9966668, -1.996667, 2.996667, 0.4966674},
       {0.9875948, -1.988772, 2.986775, 0.4861261}},
      {"Adam", "", {0.999, -1.999, 2.999, 0.4990001}, {0.9981014, -1.998076, 2.997195, 0.4972272}},
      {"Adam",
       R"("amsgrad": true)",
       {0.999, -1.999, 2.999, 0.4990001},
       {0.9981014, -1.998076, 2.997195, 0.4972275}},
      {"AdamW",
       "",
       {0.998996, -1.998992, 2.998988, 0.4989981},
       {0.9980894, -1.998052, 2.997159, 0.4972212}},
      {"Adamax", "", {0.999, -1.999, 2.999, 0.499}, {0.9982848, -1.998053, 2.997673, 0.4973684}},
      {"Nadam",
       "",
       {0.9989372, -1.998937, 2.998937, 0.4989372},
       {0.9987815, -1.99897, 2.998007, 0.4980484}},
      {"Adagrad",
       "",
       {0.9996985, -1.999465, 2.999312, 0.4998438},
       {0.9997944, -1.99968, 2.998774, 0.4996895}},
      {"Adadelta",
       "",
       {0.9999986, -1.999999, 2.999999, 0.4999986},
       {0.9999989, -1.999999, 2.999997, 0.4999972}},
      {"Adafactor",
       "",
       {0.9990441, -1.997067, 2.997892, 0.499461},
       {0.9993616, -1.997384, 2.994957, 0.4987748}},
      {"Lion", "", {0.999, -1.999, 2.999, 0.499}, {0.999, -1.999, 2.997, 0.497}},
      {"Ftrl",
       "",
       {0.0462359, -0.309157, 0.8228831, 0.005978993},
       {0.04633187, -0.3093716, 0.8223457, 0.005824689}},
      {"Lamb",
       "",
       {0.9981126, -1.998113, 2.998112, 0.4981125},
       {0.9964596, -1.996421, 2.993498, 0.4936892}},
      {"Muon",
       "",
       {0.999898, -1.999803, 2.999696, 0.4999518},
       {0.9998643, -1.999783, 2.999231, 0.4997981}},
      {"ScheduleFreeAdamW",
       "",
       {0.9975, -1.9975, 2.9975, 0.4975},
       {0.9966751, -1.997164, 2.995898, 0.49575}},
      {"SGD",
       R"("learning_rate": 0.1, "clipnorm": 0.1)",
       {0.9973509, -1.994702, 2.992053, 0.4986755},
       {0.9970623, -1.996374, 2.985462, 0.4971324}},
      {"SGD",
       R"("learning_rate": 0.1, "global_clipnorm": 0.1)",
       {0.9973509, -1.994702, 2.992053, 0.4986755},
       {0.9970623, -1.996374, 2.985462, 0.4971324}},
      {"SGD",
       R"("learning_rate": 0.1, "clipvalue": 0.1)",
       {0.99, -1.99, 2.99, 0.495},
       {0.99, -1.99, 2.97, 0.49}},
      {"SGD",
       R"("learning_rate": 0.1, "gradient_accumulation_steps": 2)",
       {1, -2, 3, 0.5},
       {0.985, -1.98, 2.9775, 0.495}},
      {"Adam",
       R"("gradient_accumulation_steps": 2)",
       {1, -2, 3, 0.5},
       {0.999, -1.999, 2.999, 0.4990001}},
      {"SGD",
       R"("learning_rate": 0.1, "use_ema": true, "ema_momentum": 0.5, "ema_overwrite_frequency": 2)",
       {0.99, -1.98, 2.97, 0.495},
       {1.01, -2.01, 2.9525, 0.4925}},
      {"SGD",
       R"("learning_rate": 0.1, "loss_scale_factor": 10)",
       {0.999, -1.998, 2.997, 0.4995},
       {1, -2, 2.9945, 0.499}},
  };
  for (const Case& one : cases) {
    check_golden(object(one.name, one.config), {2, 2}, one.after_1, one.after_3);
  }
}

TEST_CASE("vectors take the unfactored and the Adam form") {
  check_golden(object("Adafactor"), {4}, {0.9981126, -1.998113, 2.998112, 0.4981125},
               {0.9982758, -1.998742, 2.995842, 0.4962267});
  check_golden(object("Muon"), {4}, {0.998996, -1.998992, 2.998988, 0.4989981},
               {0.9980894, -1.998052, 2.997159, 0.4972212});
}

TEST_CASE("float64 weights are computed with in float64") {
  Trainer trainer(object("Adam"), {2, 2}, DType::float64);
  trainer.step(kGradients[0]);
  trainer.step(kGradients[1]);
  require_near(trainer.step(kGradients[2]), {0.9981014, -1.998076, 2.997195, 0.4972272});
}

TEST_CASE("bfloat16 weights move by steps computed in float32") {
  // In bfloat16 0.999 is 1 and its powers too: Adam would divide by zero or stand still.
  Trainer trainer(object("Adam", R"("learning_rate": 0.25)"), {2, 2}, DType::bfloat16);
  require_near(trainer.step(kGradients[0]), {0.75, -1.75, 2.75, 0.25}, 1e-9);
}

TEST_CASE("LossScaleOptimizer skips steps that are not finite and adapts its scale") {
  Trainer trainer(
      object("LossScaleOptimizer",
             R"("inner_optimizer": {"class_name": "SGD", "config": {"learning_rate": 0.1}},
                "initial_scale": 8, "dynamic_growth_steps": 2)"),
      {2, 2});
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> overflow(4, infinity);
  struct Call {
    std::vector<double> gradient;
    double scale;
    double counter;
    double iterations;
    std::vector<double> weight;
  };
  const std::vector<Call> calls = {
      {kGradients[0], 8, 1, 1, {0.99, -1.98, 2.97, 0.495}},
      {kGradients[1], 16, 0, 2, {0.97, -1.96, 2.955, 0.49}},
      {overflow, 8, 0, 2, {0.97, -1.96, 2.955, 0.49}},
      {kGradients[2], 8, 1, 3, {1, -2, 2.945, 0.49}},
      {kGradients[2], 16, 0, 4, {1.03, -2.04, 2.935, 0.49}},
  };
  double scale = 8;
  for (const Call& call : calls) {
    std::vector<double> gradient = call.gradient;
    for (double& element : gradient) element *= scale;
    require_near(trainer.step(gradient), call.weight);
    scale = trainer.variable("loss_scale_optimizer/dynamic_scale")[0];
    CHECK(scale == call.scale);
    CHECK(trainer.variable("loss_scale_optimizer/step_counter")[0] == call.counter);
    CHECK(trainer.variable("sgd/iteration")[0] == call.iterations);
  }
}

TEST_CASE("one element that is not a number skips the whole step, slots included") {
  Trainer trainer(object("LossScaleOptimizer", R"("inner_optimizer": "adam")"), {2, 2});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  REQUIRE(trainer.step({1, 1, nan, 1}) == kStart);
  CHECK(trainer.variable("adam/kernel_momentum") == std::vector<double>(4, 0.0));
  CHECK(trainer.variable("adam/kernel_velocity") == std::vector<double>(4, 0.0));
  CHECK(trainer.variable("loss_scale_optimizer/dynamic_scale")[0] == 16384.0);
}
