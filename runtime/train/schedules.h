// Learning-rate schedules as scalar formulas over the step counter.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "runtime/graph/builder.h"

namespace tessera::train {

using graph::SymbolicTensor;

class Schedule {
 public:
  virtual ~Schedule() = default;
  /// Learning rate (float32 scalar) at `step` (float32 scalar: the counter before this update).
  virtual SymbolicTensor at(SymbolicTensor step) const = 0;
  /// The same on the host, for logs.
  virtual double at(double step) const = 0;
};

/// From {"class_name": "CosineDecay", "config": {...}}.
std::unique_ptr<Schedule> make_schedule(const json::Value& value, const std::string& path,
                                        json::Problems& problems);
/// Names of the classes, as Keras spells them.
std::vector<std::string> schedule_classes();

}  // namespace tessera::train
