#include "runtime/train/run_files.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace tessera::train {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::int64_t log_steps, bool first_rank,
                         bool append)
    : path_(path), log_steps_(log_steps) {
  if (!first_rank) return;
  file_ = std::fopen(path.c_str(), append ? "ae" : "we");
  if (file_ == nullptr) {
    throw Error(Error::Kind::internal,
                fmt::format("{}: cannot be created: {}", path, std::strerror(errno)));
  }
}

MetricsFile::~MetricsFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void MetricsFile::write(const json::Value& line) {
  if (file_ == nullptr) return;
  const std::string text = json::dump(line, -1) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0) {
    throw Error(Error::Kind::internal,
                fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)));
  }
}

void MetricsFile::on_batch_end(FitContext& context, const BatchEvent& event) {
  if (log_steps_ == 0 || event.step % log_steps_ != 0) return;
  const double rate = context.session.learning_rate();
  write(json::make_object({{"event", json::make("step")},
                           {"step", json::make(event.step)},
                           {"epoch", json::make(event.epoch + 1)},
                           {"loss", number_json(event.loss)},
                           {"learning_rate", number_json(rate)},
                           {"seconds", number_json(event.seconds)}}));
}

void MetricsFile::on_epoch_begin(FitContext& /*context*/, std::int64_t /*epoch*/) {
  epoch_began_ = now();
}

void MetricsFile::on_epoch_end(FitContext& context, std::int64_t epoch, Logs& logs) {
  std::vector<std::pair<std::string, json::Value>> values;
  for (const auto& [name, value] : logs) values.emplace_back(name, number_json(value));
  write(json::make_object({{"event", json::make("epoch")},
                           {"epoch", json::make(epoch + 1)},
                           {"step", json::make(static_cast<std::int64_t>(context.session.step))},
                           {"seconds", number_json(now() - epoch_began_)},
                           {"logs", json::make_object(std::move(values))}}));
}

void MetricsFile::on_train_end(FitContext& /*context*/, const Logs& /*logs*/) {
  write(json::make_object({{"event", json::make("end")}, {"status", json::make("completed")}}));
}

json::Value number_json(double value) {
  return std::isfinite(value) ? json::make(value) : json::make_null();
}

json::Value history_json(const History& history) {
  std::vector<std::pair<std::string, json::Value>> members;
  for (const auto& [name, values] : history.values) {
    std::vector<json::Value> numbers;
    for (const double value : values) numbers.push_back(number_json(value));
    members.emplace_back(name, json::make_array(std::move(numbers)));
  }
  return json::make_object(std::move(members));
}

}  // namespace tessera::train
