#include "runtime/train/callback_monitor.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "runtime/train/progress.h"

namespace tessera::train {

Monitor::Monitor(std::string owner, json::Arguments& arguments)
    : owner_(std::move(owner)),
      name_(arguments.text("monitor", "val_loss")),
      mode_(arguments.choice("mode", "auto", {"auto", "min", "max"})) {}

void Monitor::resolve(const Directions& directions) {
  if (mode_ != "auto") return;
  const std::string plain = name_.starts_with("val_") ? name_.substr(4) : name_;
  for (const auto& [name, direction] : directions) {
    if (name != plain || direction == 0) continue;
    mode_ = direction > 0 ? "max" : "min";
    return;
  }
  if (plain == "loss" || plain.ends_with("_loss")) {
    mode_ = "min";
    return;
  }
  throw Error(
      Error::Kind::config,
      fmt::format(
          "{}: whether \"{}\" should grow or shrink is not known; give mode \"max\" or \"min\"",
          owner_, name_));
}

const double* Monitor::value(const FitContext& context, const Logs& logs) const {
  const double* found = find_log(logs, name_);
  if (found == nullptr && context.session.is_first_rank()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : logs) names.push_back(name);
    fmt::print(stderr, "warning: {} watches \"{}\", which is not available; there are: {}\n",
               owner_, name_, fmt::join(names, ", "));
  }
  return found;
}

bool Monitor::better(double current, const std::optional<double>& reference, double margin) const {
  if (!reference) return true;
  return mode_ == "max" ? current - margin > *reference : current + margin < *reference;
}

void WeightsCopy::take(Session& session) {
  parts_.clear();
  const graph::VariableTable& table = session.table();
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto id = static_cast<graph::VariableId>(i);
    if (table[id].role != graph::Role::weight) continue;
    const auto bytes =
        static_cast<std::size_t>(session.storage().box(id).elements()) * size_of(table[id].dtype);
    const auto* begin = static_cast<const std::byte*>(session.storage().data(id));
    parts_.emplace_back(begin, begin + bytes);
  }
}

void WeightsCopy::put_back(Session& session) const {
  const graph::VariableTable& table = session.table();
  std::size_t next = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto id = static_cast<graph::VariableId>(i);
    if (table[id].role != graph::Role::weight) continue;
    const std::vector<std::byte>& part = parts_[next++];
    if (!part.empty()) std::memcpy(session.storage().data(id), part.data(), part.size());
  }
}

namespace {

/// Appends what the field at `begin` stands for; index of its closing brace.
std::size_t fill_field(const std::string& pattern, std::size_t begin, std::int64_t epoch,
                       std::int64_t batch, const Logs& logs, std::string& path) {
  const std::size_t end = pattern.find('}', begin);
  if (end == std::string::npos)
    throw Error(Error::Kind::config,
                fmt::format("filepath \"{}\": a brace is not closed", pattern));
  const std::string field = pattern.substr(begin + 1, end - begin - 1);
  const std::size_t colon = field.find(':');
  const std::string name = field.substr(0, colon);
  const std::string specification =
      colon == std::string::npos ? "{}" : "{:" + field.substr(colon + 1) + "}";
  try {
    if (name == "epoch" || name == "batch") {
      path += fmt::format(fmt::runtime(specification), name == "epoch" ? epoch : batch);
    } else if (const double* value = find_log(logs, name); value != nullptr) {
      path +=
          fmt::format(fmt::runtime(specification), std::isnan(*value) ? std::abs(*value) : *value);
    } else {
      std::vector<std::string> names{"epoch", "batch"};
      for (const auto& [known, unused] : logs) names.push_back(known);
      throw Error(Error::Kind::config,
                  fmt::format("filepath \"{}\": there is no \"{}\"{}; there are: {}", pattern, name,
                              json::did_you_mean(name, names), fmt::join(names, ", ")));
    }
  } catch (const fmt::format_error& error) {
    throw Error(Error::Kind::config,
                fmt::format("filepath \"{}\": \"{}\" is no format for a number: {}", pattern, field,
                            error.what()));
  }
  return end;
}

}  // namespace

std::string fill_path(const std::string& pattern, std::int64_t epoch, std::int64_t batch,
                      const Logs& logs) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const bool brace = pattern[i] == '{' || pattern[i] == '}';
    if (brace && i + 1 < pattern.size() && pattern[i + 1] == pattern[i])
      ++i;  // doubled: itself
    else if (pattern[i] == '{') {
      i = fill_field(pattern, i, epoch, batch, logs, path);
      continue;
    }
    path.push_back(pattern[i]);
  }
  return path;
}

json::Value optional_json(const std::optional<double>& value) {
  if (!value) return json::make_null();
  // JSON has no infinities and no NaN; both compare otherwise than no value does.
  return std::isfinite(*value) ? json::make(*value) : json::make(python_float(*value));
}

std::optional<double> optional_number(const json::Value& value) {
  if (!value.is_number() && !value.is_string()) return std::nullopt;
  if (value.is_number()) return value.number;
  const double infinity = std::numeric_limits<double>::infinity();
  if (value.string == "inf") return infinity;
  return value.string == "-inf" ? -infinity : std::numeric_limits<double>::quiet_NaN();
}

std::optional<double> optional_from(const json::Value& state, std::string_view key) {
  const json::Value* found = state.find(key);
  return found == nullptr ? std::nullopt : optional_number(*found);
}

std::int64_t integer_from(const json::Value& state, std::string_view key) {
  const json::Value* found = state.find(key);
  return found == nullptr ? 0 : found->integer;
}

}  // namespace tessera::train
