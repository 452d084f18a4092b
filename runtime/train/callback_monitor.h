// What callbacks share that watch one logged value: its direction, and whether it got better.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/arguments.h"
#include "runtime/train/callbacks.h"

namespace tessera::train {

/// Reads `monitor` and `mode`, and resolves mode "auto" from the metric's direction.
class Monitor {
 public:
  /// `owner`: the callback's class name, for messages.
  Monitor(std::string owner, json::Arguments& arguments);
  /// Throws config when mode is "auto" and the direction of the value is not known.
  void resolve(const Directions& directions);
  /// The watched value, or nullptr with a warning on the first rank.
  const double* value(const FitContext& context, const Logs& logs) const;
  /// True when `current` beats `reference` by more than `margin`; anything beats nothing.
  bool better(double current, const std::optional<double>& reference, double margin) const;
  const std::string& name() const { return name_; }

 private:
  std::string owner_;
  std::string name_;
  std::string mode_;
};

/// This rank's parts of all weights, kept aside.
class WeightsCopy {
 public:
  bool empty() const { return parts_.empty(); }
  void take(Session& session);
  void put_back(Session& session) const;

 private:
  std::vector<std::vector<std::byte>> parts_;
};

/// Fills {epoch}, {batch} and names of logs, with Python's format specifications ({val_loss:.2f},
/// {epoch:02d}). Throws config for an unknown name.
std::string fill_path(const std::string& pattern, std::int64_t epoch, std::int64_t batch,
                      const Logs& logs);

/// A number, also one that JSON has no word for; null: no value.
json::Value optional_json(const std::optional<double>& value);
std::optional<double> optional_number(const json::Value& value);
std::optional<double> optional_from(const json::Value& state, std::string_view key);
std::int64_t integer_from(const json::Value& state, std::string_view key);

}  // namespace tessera::train
