// One line an optimizer: what its file defines. `config` is the object that Keras's constructor
// takes.
#pragma once

#include <memory>

#include "base/arguments.h"
#include "runtime/train/optimizer_base.h"

namespace tessera::train {

std::unique_ptr<OptimizerBase> make_adadelta(json::Arguments& config);
std::unique_ptr<OptimizerBase> make_adafactor(json::Arguments& config);
std::unique_ptr<OptimizerBase> make_adagrad(json::Arguments& config);
std::unique_ptr<OptimizerBase> make_adam(json::Arguments& config);
std::unique_ptr<OptimizerBase> make_adamax(json::Arguments& config);
std::unique_ptr<OptimizerBase> make_adamw(json::Arguments& config);
std::unique_ptr<OptimizerBase> make_ftrl(json::Arguments& config);
std::unique_ptr<OptimizerBase> make_lamb(json::Arguments& config);
std::unique_ptr<OptimizerBase> make_lion(json::Arguments& config);
std::unique_ptr<OptimizerBase> make_muon(json::Arguments& config);
std::unique_ptr<OptimizerBase> make_nadam(json::Arguments& config);
std::unique_ptr<OptimizerBase> make_rmsprop(json::Arguments& config);
std::unique_ptr<OptimizerBase> make_schedule_free_adamw(json::Arguments& config);
std::unique_ptr<OptimizerBase> make_sgd(json::Arguments& config);

/// LossScaleOptimizer. The inner optimizer's own loss scale is switched off.
struct LossScaleArguments {
  std::string name = "loss_scale_optimizer";
  double initial_scale = 32768.0;
  std::int64_t growth_steps = 2000;
};
std::unique_ptr<Optimizer> make_loss_scale(std::unique_ptr<OptimizerBase> inner,
                                           LossScaleArguments arguments);

}  // namespace tessera::train
