// Getters, their messages, and what Keras serialises as a name or an object.
#include "base/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tessera::json {
namespace {

const char* kind_name(const Value& value) {
  switch (value.kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return "a boolean";
    case Kind::integer:
    case Kind::number:
      return "a number";
    case Kind::string:
      return "a string";
    case Kind::array:
      return "an array";
    case Kind::object:
      return "an object";
  }
  return "";
}

std::string shown(const Value& value) {
  if (value.is_array() || value.is_object()) return kind_name(value);
  return dump(value, -1);
}

template <typename T>
std::string range_text(T least, T most, T unbounded_below, T unbounded_above) {
  if (least == unbounded_below && most == unbounded_above) return "";
  if (most == unbounded_above) return fmt::format(" of at least {}", least);
  if (least == unbounded_below) return fmt::format(" of at most {}", most);
  return fmt::format(" from {} to {}", least, most);
}

Problem problem_at(const Value& value, std::string path, std::string message) {
  return {value.file ? *value.file : "", value.position, std::move(path), std::move(message)};
}

}  // namespace

Arguments::Arguments(const Value& object, std::string path, Problems& problems)
    : object_(&object), path_(std::move(path)), problems_(&problems) {
  if (!object.is_object() && !object.is_null()) {
    problems.add(
        problem_at(object, path_, fmt::format("expected an object, got {}", shown(object))));
  }
}

std::string Arguments::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void Arguments::problem(const Value& at, std::string_view key, std::string message) {
  problems_->add(problem_at(at, path_of(key), std::move(message)));
}

bool Arguments::has(std::string_view key) const {
  const Value* found = object_->find(key);
  return found != nullptr && !found->is_null();
}

const Value* Arguments::value(std::string_view key) {
  known_.emplace_back(key);
  return object_->find(key);
}

const Value* Arguments::get(std::string_view key) {
  const Value* found = value(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

const Value* Arguments::required(std::string_view key) {
  const Value* found = value(key);
  if (found == nullptr && object_->is_object()) {
    problems_->add(problem_at(*object_, path_, fmt::format("missing key \"{}\"", key)));
  }
  return found;
}

bool Arguments::boolean(std::string_view key, bool fallback) {
  const Value* found = get(key);
  if (found == nullptr) return fallback;
  if (found->kind == Kind::boolean) return found->boolean;
  problem(*found, key, fmt::format("expected true or false, got {}", shown(*found)));
  return fallback;
}

std::optional<std::int64_t> Arguments::optional_integer(std::string_view key, std::int64_t least,
                                                        std::int64_t most) {
  using Limits = std::numeric_limits<std::int64_t>;
  const Value* found = get(key);
  if (found == nullptr) return std::nullopt;
  const bool whole = found->kind == Kind::number && std::abs(found->number) < 0x1p53 &&
                     found->number == std::trunc(found->number);
  const std::int64_t number = whole ? static_cast<std::int64_t>(found->number) : found->integer;
  if ((found->kind == Kind::integer || whole) && number >= least && number <= most) return number;
  problem(*found, key,
          fmt::format("expected an integer{}, got {}",
                      range_text(least, most, Limits::min(), Limits::max()), shown(*found)));
  return std::nullopt;
}

std::int64_t Arguments::integer(std::string_view key, std::int64_t fallback, std::int64_t least,
                                std::int64_t most) {
  return optional_integer(key, least, most).value_or(fallback);
}

std::optional<double> Arguments::optional_number(std::string_view key, double least, double most) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Value* found = get(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_number() && found->number >= least && found->number <= most) return found->number;
  problem(*found, key,
          fmt::format("expected a number{}, got {}", range_text(least, most, -infinity, infinity),
                      shown(*found)));
  return std::nullopt;
}

double Arguments::number(std::string_view key, double fallback, double least, double most) {
  return optional_number(key, least, most).value_or(fallback);
}

std::optional<std::string> Arguments::optional_text(std::string_view key) {
  const Value* found = get(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_string()) return found->string;
  problem(*found, key, fmt::format("expected a string, got {}", shown(*found)));
  return std::nullopt;
}

std::string Arguments::text(std::string_view key, std::string fallback) {
  return optional_text(key).value_or(std::move(fallback));
}

std::string Arguments::choice(std::string_view key, std::string fallback,
                              const std::vector<std::string>& choices) {
  const Value* found = get(key);
  if (found == nullptr) return fallback;
  if (found->is_string() &&
      std::find(choices.begin(), choices.end(), found->string) != choices.end()) {
    return found->string;
  }
  problem(*found, key,
          fmt::format("expected one of \"{}\", got {}{}", fmt::join(choices, "\", \""),
                      shown(*found), did_you_mean(found->string, choices)));
  return fallback;
}

std::optional<std::vector<std::int64_t>> Arguments::integers(std::string_view key) {
  const Value* found = get(key);
  if (found == nullptr) return std::nullopt;
  if (found->kind == Kind::integer) return std::vector<std::int64_t>{found->integer};
  std::vector<std::int64_t> list;
  bool good = found->is_array();
  for (const Value& item : found->array) {
    good = good && item.kind == Kind::integer;
    list.push_back(item.integer);
  }
  if (good) return list;
  problem(*found, key, fmt::format("expected an array of integers, got {}", shown(*found)));
  return std::nullopt;
}

std::optional<std::vector<double>> Arguments::numbers(std::string_view key) {
  const Value* found = get(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_number()) return std::vector<double>{found->number};
  std::vector<double> list;
  bool good = found->is_array();
  for (const Value& item : found->array) {
    good = good && item.is_number();
    list.push_back(item.number);
  }
  if (good) return list;
  problem(*found, key, fmt::format("expected an array of numbers, got {}", shown(*found)));
  return std::nullopt;
}

std::optional<std::vector<std::string>> Arguments::texts(std::string_view key) {
  const Value* found = get(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_string()) return std::vector<std::string>{found->string};
  std::vector<std::string> list;
  bool good = found->is_array();
  for (const Value& item : found->array) {
    good = good && item.is_string();
    list.push_back(item.string);
  }
  if (good) return list;
  problem(*found, key, fmt::format("expected an array of strings, got {}", shown(*found)));
  return std::nullopt;
}

void Arguments::ignore(const std::vector<std::string>& keys) {
  known_.insert(known_.end(), keys.begin(), keys.end());
}

void Arguments::finish(std::string_view noun) {
  if (ignore_rest_) return;
  for (const Member& member : object_->object) {
    if (std::find(known_.begin(), known_.end(), member.key) != known_.end()) continue;
    Problem problem = problem_at(
        member.value, path_of(member.key),
        fmt::format("unknown {} \"{}\"{}", noun, member.key, did_you_mean(member.key, known_)));
    if (member.key_position.line > 0) problem.at = member.key_position;
    problems_->add(std::move(problem));
  }
}

Identifier read_identifier(const Value& value, const std::string& path, Problems& problems) {
  static const Value kNoConfig = make_object();
  const auto named = [&](const Value& name, const Value& config) -> Identifier {
    if (name.string.empty()) problems.add(problem_at(name, path, "expected a name, got \"\""));
    return {name.string, &config, &name};
  };
  if (value.is_string()) return named(value, kNoConfig);
  if (!value.is_object()) {
    problems.add(problem_at(value, path,
                            fmt::format("expected a name or an object with \"class_name\" and "
                                        "\"config\", got {}",
                                        shown(value))));
    return {"", &kNoConfig, &value};
  }
  Arguments arguments(value, path, problems);
  const Value* name = arguments.required("class_name");
  const Value* config = arguments.value("config");
  arguments.ignore({"module", "registered_name", "build_config", "compile_config",
                    "shared_object_id", "name", "inbound_nodes"});
  arguments.finish();
  if (name == nullptr || !name->is_string()) {
    if (name != nullptr) arguments.problem(*name, "class_name", "expected a string");
    return {"", &kNoConfig, &value};
  }
  // Keras writes a plain function as class "function" whose config is its name.
  if (name->string == "function" && config != nullptr && config->is_string()) {
    return named(*config, kNoConfig);
  }
  const bool usable = config != nullptr && config->is_object();
  if (config != nullptr && !config->is_object() && !config->is_null() && !config->is_string()) {
    arguments.problem(*config, "config", "expected an object");
  }
  return named(*name, usable ? *config : kNoConfig);
}

}  // namespace tessera::json
