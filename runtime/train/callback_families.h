// Makers of the callbacks, one a file callback_<name>.cpp.
#pragma once

#include <memory>

#include "base/arguments.h"
#include "runtime/train/callbacks.h"

namespace tessera::train {

/// Each reads the arguments of its class; what is wrong with them is added to their problems.
std::unique_ptr<Callback> make_backup_and_restore(json::Arguments& arguments);
std::unique_ptr<Callback> make_csv_logger(json::Arguments& arguments);
std::unique_ptr<Callback> make_early_stopping(json::Arguments& arguments);
std::unique_ptr<Callback> make_model_checkpoint(json::Arguments& arguments);
std::unique_ptr<Callback> make_reduce_lr_on_plateau(json::Arguments& arguments);
std::unique_ptr<Callback> make_terminate_on_nan(json::Arguments& arguments);

}  // namespace tessera::train
