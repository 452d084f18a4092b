// The table of optimizers, and how one is read from a config.
#include "runtime/train/optimizers.h"

#include <fmt/format.h>

#include "runtime/train/named_entry.h"
#include "runtime/train/optimizer_families.h"

namespace tessera::train {
namespace {

struct Entry {
  const char* name;  // Keras's class name; found in any case of letters
  std::unique_ptr<OptimizerBase> (*make)(json::Arguments&);
};
constexpr Entry kOptimizers[] = {
    {"SGD", make_sgd},
    {"RMSprop", make_rmsprop},
    {"Adam", make_adam},
    {"AdamW", make_adamw},
    {"Adamax", make_adamax},
    {"Nadam", make_nadam},
    {"Adagrad", make_adagrad},
    {"Adadelta", make_adadelta},
    {"Adafactor", make_adafactor},
    {"Lion", make_lion},
    {"Ftrl", make_ftrl},
    {"Lamb", make_lamb},
    {"Muon", make_muon},
    {"ScheduleFreeAdamW", make_schedule_free_adamw},
};
constexpr const char* kLossScale = "lossscaleoptimizer";

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

/// Moves problems over, unknown keys in Keras's words.
void hand_over(const json::Problems& found, json::Problems& problems) {
  constexpr std::string_view kUnknown = "unknown argument ";
  for (json::Problem problem : found.list()) {
    if (problem.message.starts_with(kUnknown)) {
      problem.message = "Argument(s) not recognized: " + problem.message.substr(kUnknown.size());
    }
    problems.add(std::move(problem));
  }
}

void report_unknown(const json::Identifier& identifier, const std::string& path,
                    json::Problems& problems) {
  std::vector<std::string> names;
  for (const Entry& entry : kOptimizers) names.push_back(lower(entry.name));
  names.emplace_back(kLossScale);
  problems.add({identifier.at->file ? *identifier.at->file : "", identifier.at->position, path,
                fmt::format("Could not interpret optimizer identifier: \"{}\"{}",
                            json::printable(identifier.class_name),
                            json::did_you_mean(lower(identifier.class_name), names))});
}

/// Everything but the wrapper; nullptr after a problem.
std::unique_ptr<OptimizerBase> make_plain(const json::Value& value,
                                          const json::Identifier& identifier,
                                          const std::string& path, json::Problems& problems) {
  for (const Entry& entry : kOptimizers) {
    if (lower(identifier.class_name) != lower(entry.name)) continue;
    json::Problems found;
    json::Arguments arguments(*identifier.config, config_path(value, path), found);
    std::unique_ptr<OptimizerBase> optimizer = entry.make(arguments);
    arguments.finish("argument");
    hand_over(found, problems);
    return optimizer;
  }
  report_unknown(identifier, path, problems);
  return nullptr;
}

/// The wrapper's own arguments, and those of the base class that Keras refuses on it unless they
/// are the defaults.
std::unique_ptr<Optimizer> read_loss_scale(const json::Value& value,
                                           const json::Identifier& identifier,
                                           const std::string& path, json::Problems& problems) {
  json::Problems found;
  json::Arguments arguments(*identifier.config, config_path(value, path), found);
  LossScaleArguments own;
  own.name = arguments.text("name", own.name);
  own.initial_scale = arguments.number("initial_scale", own.initial_scale, 0.0);
  own.growth_steps = arguments.integer("dynamic_growth_steps", own.growth_steps, 1);
  if (!arguments.boolean("dynamic", true)) {
    arguments.problem(*arguments.object().find("dynamic"), "dynamic",
                      "LossScaleOptimizer has no `dynamic=false`; set `loss_scale_factor` on the "
                      "`inner_optimizer`");
  }
  for (const char* key :
       {"weight_decay", "clipnorm", "global_clipnorm", "clipvalue", "use_ema", "ema_momentum",
        "ema_overwrite_frequency", "loss_scale_factor", "gradient_accumulation_steps"}) {
    const json::Value* given = arguments.value(key);
    const bool is_default = given == nullptr || given->is_null() ||
                            (given->kind == json::Kind::boolean && !given->boolean) ||
                            (std::string_view(key) == "ema_momentum" && given->number == 0.99);
    if (!is_default) {
      arguments.problem(*given, key,
                        fmt::format("LossScaleOptimizer does not support `{}`. Instead, set `{}` "
                                    "on the `inner_optimizer`",
                                    key, key));
    }
  }
  const json::Value* inner = arguments.required("inner_optimizer");
  arguments.finish("argument");
  hand_over(found, problems);
  if (inner == nullptr) return nullptr;
  const std::string inner_path = arguments.path_of("inner_optimizer");
  const json::Identifier inner_identifier = json::read_identifier(*inner, inner_path, problems);
  if (inner_identifier.class_name.empty()) return nullptr;
  std::unique_ptr<OptimizerBase> optimizer =
      make_plain(*inner, inner_identifier, inner_path, problems);
  if (!optimizer) return nullptr;
  return make_loss_scale(std::move(optimizer), own);
}

}  // namespace

std::vector<std::string> optimizer_classes() {
  std::vector<std::string> names = class_names<Entry>(kOptimizers);
  names.emplace_back("LossScaleOptimizer");
  return names;
}

std::unique_ptr<Optimizer> make_optimizer(const json::Value& value, const std::string& path,
                                          bool mixed_float16, json::Problems& problems) {
  const json::Identifier identifier = json::read_identifier(value, path, problems);
  if (identifier.class_name.empty()) return nullptr;
  if (lower(identifier.class_name) == kLossScale) {
    return read_loss_scale(value, identifier, path, problems);
  }
  std::unique_ptr<OptimizerBase> optimizer = make_plain(value, identifier, path, problems);
  if (optimizer && mixed_float16) return make_loss_scale(std::move(optimizer), {});
  return optimizer;
}

}  // namespace tessera::train
