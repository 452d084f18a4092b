// Keras's console lines: the epoch header, the line of verbose 2, the bar of verbose 1.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/train/session.h"

namespace tessera::train {

/// "0.7734", or "5.1000e-04" where the absolute value is not above 1e-3 (0 and non-finite values as
/// Keras shows them).
std::string format_value(double value);
/// As Python writes a float: "0.1", "1.0", "1e-05", "inf", "nan".
std::string python_float(double value);
/// "51ms/step", "2s/step", "320us/step".
std::string format_step_time(double seconds_per_step);
/// Values alphabetical: training metrics, then val_*, learning_rate last: " - accuracy: 0.7734 -
/// loss: 0.4660".
std::string format_logs(const Logs& logs);
/// "8/8 - 0s - 51ms/step - accuracy: 0.7734 - loss: 0.4660": verbose 2, and verbose 1 where the
/// output is no terminal.
std::string epoch_line(std::int64_t steps, double seconds, const Logs& logs);

/// The bar of verbose 1 on a terminal (control codes): refreshed at most every 0.05 s.
class ProgressBar {
 public:
  using Write = std::function<void(const std::string&)>;
  /// target 0: unknown number of steps.
  ProgressBar(std::int64_t target, Write write);
  /// `now` in seconds since the epoch began. The last update (done == target, or finalize) ends
  /// with a newline.
  void update(std::int64_t done, double now, const Logs& logs, bool finalize = false);
  /// True when an update at `now` would be drawn: reading the totals is worth it.
  bool due(std::int64_t done, double now) const;

 private:
  std::int64_t target_;
  Write write_;
  double last_drawn_ = -1.0;
  double first_step_end_ = -1.0;
  std::size_t drawn_width_ = 0;
};

}  // namespace tessera::train
