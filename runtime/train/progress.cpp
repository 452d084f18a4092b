#include "runtime/train/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tessera::train {
namespace {

constexpr int kCells = 20;
constexpr double kRefreshSeconds = 0.05;

std::string format_eta(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  if (whole > 3600)
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole % 3600 / 60, whole % 60);
  if (whole > 60) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

/// Columns on a terminal: control sequences take none, a character of several bytes takes one.
std::size_t shown_width(const std::string& text) {
  std::size_t width = 0;
  bool control = false;
  for (const char c : text) {
    if (c == '\x1b') control = true;
    if (!control && (static_cast<unsigned char>(c) & 0xC0U) != 0x80U) ++width;
    if (control && c == 'm') control = false;
  }
  return width;
}

std::string repeated(std::string_view piece, std::int64_t times) {
  std::string text;
  for (std::int64_t i = 0; i < times; ++i) text += piece;
  return text;
}

}  // namespace

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";  // also where its sign bit is set
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string format_value(double value) {
  if (std::isnan(value)) return "nan";
  return std::abs(value) > 1e-3 ? fmt::format("{:.4f}", value) : fmt::format("{:.4e}", value);
}

std::string format_step_time(double seconds) {
  if (seconds >= 1.0 || seconds == 0.0) return fmt::format("{:.0f}s/step", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.0f}ms/step", seconds * 1e3);
  return fmt::format("{:.0f}us/step", seconds * 1e6);
}

std::string format_logs(const Logs& logs) {
  // Training metrics, validation, learning rate; alphabetical within each.
  const auto group = [](const std::string& name) {
    return name == "learning_rate" ? 2 : name.starts_with("val_") ? 1 : 0;
  };
  Logs sorted = logs;
  std::stable_sort(sorted.begin(), sorted.end(), [&group](const auto& a, const auto& b) {
    return std::pair(group(a.first), a.first) < std::pair(group(b.first), b.first);
  });
  std::string text;
  for (const auto& [name, value] : sorted)
    text += fmt::format(" - {}: {}", name, format_value(value));
  return text;
}

std::string epoch_line(std::int64_t steps, double seconds, const Logs& logs) {
  return fmt::format(
      "{}/{} - {:.0f}s - {}{}", steps, steps, seconds,
      format_step_time(seconds / static_cast<double>(std::max<std::int64_t>(steps, 1))),
      format_logs(logs));
}

ProgressBar::ProgressBar(std::int64_t target, Write write)
    : target_(target), write_(std::move(write)) {}

bool ProgressBar::due(std::int64_t done, double now) const {
  return (target_ > 0 && done >= target_) || now - last_drawn_ >= kRefreshSeconds;
}

void ProgressBar::update(std::int64_t done, double now, const Logs& logs, bool finalize) {
  if (first_step_end_ < 0.0 && done == 1) first_step_end_ = now;
  finalize = finalize || (target_ > 0 && done >= target_);
  if (!finalize && !due(done, now)) return;
  last_drawn_ = now;
  std::string line;
  if (target_ > 0) {
    const std::string total = std::to_string(target_);
    const auto green = std::min<std::int64_t>(kCells, kCells * done / target_);
    line = fmt::format("\x1b[1m{:>{}}/{}\x1b[0m \x1b[32m{}\x1b[0m\x1b[37m{}\x1b[0m", done,
                       total.size(), total, repeated("━", green), repeated("━", kCells - green));
  } else {
    line = fmt::format("\x1b[1m{:>7}/Unknown\x1b[0m ", done);
  }
  // The first step compiles: it does not count once there are others.
  const double per_step = first_step_end_ >= 0.0 && done > 1
                              ? (now - first_step_end_) / static_cast<double>(done - 1)
                              : now / static_cast<double>(std::max<std::int64_t>(done, 1));
  if (finalize || target_ == 0) {
    line += fmt::format(" \x1b[1m{:.0f}s\x1b[0m {}", now, format_step_time(per_step));
  } else {
    line += fmt::format(" \x1b[1m{}\x1b[0m {}",
                        format_eta(per_step * static_cast<double>(target_ - done)),
                        format_step_time(per_step));
  }
  line += format_logs(logs);
  const std::size_t width = shown_width(line);
  std::string text = "\r" + line;
  if (width < drawn_width_) text += std::string(drawn_width_ - width, ' ');
  drawn_width_ = width;
  if (finalize) text += "\n";
  write_(text);
}

}  // namespace tessera::train
