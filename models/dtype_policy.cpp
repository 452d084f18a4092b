#include "models/dtype_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>

#include "base/arguments.h"

namespace tessera::models {
namespace {

constexpr std::array<std::pair<std::string_view, DTypePolicy>, 6> kPolicies{{
    {"float32", {DType::float32, DType::float32}},
    {"float64", {DType::float64, DType::float64}},
    {"float16", {DType::float16, DType::float16}},
    {"bfloat16", {DType::bfloat16, DType::bfloat16}},
    {"mixed_float16", {DType::float16, DType::float32}},
    {"mixed_bfloat16", {DType::bfloat16, DType::float32}},
}};

void add_problem(const json::Value& at, const std::string& path, std::string message,
                 json::Problems& problems) {
  problems.add({at.file ? *at.file : "", at.position, path, std::move(message)});
}

// The name inside "float32" or {"class_name": "DTypePolicy", "config": {"name": "float32"}}.
const json::Value* name_in(const json::Value& value, const std::string& path,
                           json::Problems& problems) {
  if (value.is_string()) return &value;
  const json::Identifier identifier = json::read_identifier(value, path, problems);
  if (identifier.class_name.empty()) return nullptr;
  const json::Value* name = identifier.config->find("name");
  const bool known = identifier.class_name == "DTypePolicy" || identifier.class_name == "Policy" ||
                     identifier.class_name == "FloatDTypePolicy";
  if (known && name != nullptr && name->is_string()) return name;
  add_problem(*identifier.at, path,
              fmt::format("unknown dtype policy \"{}\"; expected a DTypePolicy with a name",
                          json::printable(identifier.class_name)),
              problems);
  return nullptr;
}

}  // namespace

std::optional<DTypePolicy> policy_from_name(std::string_view name) {
  for (const auto& [known, policy] : kPolicies) {
    if (known == name) return policy;
  }
  return std::nullopt;
}

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& entry : kPolicies) list.emplace_back(entry.first);
    return list;
  }();
  return names;
}

DTypePolicy read_policy(const json::Value* value, const std::string& path, DTypePolicy fallback,
                        json::Problems& problems) {
  if (value == nullptr || value->is_null()) return fallback;
  const json::Value* name = name_in(*value, path, problems);
  if (name == nullptr) return fallback;
  if (const auto policy = policy_from_name(name->string)) return *policy;
  // Keras 2 gave layers of whole numbers an integer dtype, which computed nothing in it.
  const auto dtype = dtype_from_name(name->string);
  if (dtype && !is_floating(*dtype)) return fallback;
  add_problem(*name, path,
              fmt::format("unknown dtype policy \"{}\"; expected one of \"{}\"{}",
                          json::printable(name->string), fmt::join(policy_names(), "\", \""),
                          json::did_you_mean(name->string, policy_names())),
              problems);
  return fallback;
}

DType read_input_dtype(const json::Value* value, const std::string& path,
                       json::Problems& problems) {
  if (value == nullptr || value->is_null()) return DType::float32;
  const json::Value* name = name_in(*value, path, problems);
  if (name == nullptr) return DType::float32;
  if (const auto dtype = dtype_from_name(name->string)) return *dtype;
  if (const auto policy = policy_from_name(name->string)) return policy->compute;
  add_problem(*name, path,
              fmt::format("unknown dtype \"{}\" of an input", json::printable(name->string)),
              problems);
  return DType::float32;
}

}  // namespace tessera::models
