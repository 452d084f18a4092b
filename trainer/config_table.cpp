#include "trainer/config_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tessera::trainer {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMaxCount = 9.0e15;  // integers that a double holds exactly

std::vector<Row> make_table() {
  return {
      {"seed", kInteger, "0", "Seed of initial weights, dropout, sample order and synthetic data.",
       0, kMaxCount},
      {"device",
       kString,
       "\"auto\"",
       "Where to run: \"auto\" takes a GPU where one is visible.",
       0,
       0,
       {"auto", "cpu"}},
      {"dtype_policy",
       kString,
       "\"float32\"",
       "Policy of layers that name none, as in Keras.",
       0,
       0,
       {"float32", "bfloat16", "mixed_bfloat16", "mixed_float16"}},
      {"distribution", kString | kObject | kNull, "null",
       "\"DataParallel\", or an object with class_name DataParallel or ModelParallel. Absent: "
       "DataParallel over all ranks."},
      {"model", kString | kObject, "",
       "Path of what model.to_json() wrote, or that object itself. Required."},
      {"initial_weights", kString | kObject | kNull, "null",
       "Path of a .safetensors or .npz file with every variable, or {\"path\": ..., \"partial\": "
       "true}."},
      {"compile", kObject, "{}", "Arguments of Model.compile.", -kInfinity, kInfinity, {}, true},
      {"compile.optimizer", kString | kObject, "\"rmsprop\"",
       "Name, or {\"class_name\", \"config\"}."},
      {"compile.loss", kString | kObject | kArray | kNull, "null",
       "Name, object, list by output, or map by output name."},
      {"compile.loss_weights", kNumber | kArray | kObject | kNull, "null",
       "Weights of the outputs' losses."},
      {"compile.metrics", kString | kArray | kObject | kNull, "null",
       "Metrics, without sample weights."},
      {"compile.weighted_metrics", kString | kArray | kObject | kNull, "null",
       "Metrics, with sample weights."},
      {"compile.run_eagerly", kBoolean | kNull, "false",
       "Accepted for Keras's sake; without effect."},
      {"compile.steps_per_execution", kInteger | kNull, "1",
       "Accepted for Keras's sake; without effect.", 1, kMaxCount},
      {"compile.jit_compile", kBoolean | kString | kNull, "\"auto\"",
       "Accepted for Keras's sake; without effect."},
      {"compile.auto_scale_loss", kBoolean | kNull, "true",
       "Wrap the optimizer into LossScaleOptimizer under mixed_float16."},
      {"data",
       kObject,
       "{}",
       "Data sets: train, validation, test.",
       -kInfinity,
       kInfinity,
       {},
       true},
      {"data.train", kObject | kNull, "null", "What fit trains on. Keys depend on \"format\"."},
      {"data.validation", kObject | kNull, "null", "What fit validates on."},
      {"data.test", kObject | kNull, "null", "What evaluate and predict read."},
      {"fit", kObject, "{}", "Arguments of Model.fit.", -kInfinity, kInfinity, {}, true},
      {"fit.epochs", kInteger, "1", "Index of the last epoch.", 1, kMaxCount},
      {"fit.batch_size", kInteger | kNull, "null",
       "Global batch size; null: 32, or what steps_per_epoch asks for.", 1, kMaxCount},
      {"fit.shuffle",
       kBoolean | kString,
       "true",
       "true, false, or \"batch\" (inside each batch).",
       0,
       0,
       {"batch"}},
      {"fit.verbose",
       kInteger | kString,
       "\"auto\"",
       "0 silent, 1 bar (on a terminal), 2 a line per epoch.",
       0,
       2,
       {"auto"}},
      {"fit.validation_split", kNumber, "0.0",
       "Share of the last samples that is kept for validation.", 0, 1},
      {"fit.initial_epoch", kInteger, "0", "Epoch to start at, from 0.", 0, kMaxCount},
      {"fit.steps_per_epoch", kInteger | kNull, "null", "Batches of an epoch; null: all.", 1,
       kMaxCount},
      {"fit.validation_steps", kInteger | kNull, "null", "Batches of a validation; null: all.", 1,
       kMaxCount},
      {"fit.validation_batch_size", kInteger | kNull, "null",
       "Batch size of validation; null: batch_size.", 1, kMaxCount},
      {"fit.validation_freq", kInteger | kArray, "1",
       "Validate every n epochs, or after the epochs of a list (from 1).", 1, kMaxCount},
      {"fit.class_weight", kObject | kNull, "null",
       "Weight of each class in the loss: {\"0\": 1.0, ...}."},
      {"callbacks", kArray, "[]", "Keras's callbacks: {\"class_name\", \"config\"} each."},
      {"checkpoint",
       kObject | kNull,
       "null",
       "Checkpoints of the whole training state in <output.dir>/checkpoints; absent: none.",
       -kInfinity,
       kInfinity,
       {},
       true},
      {"checkpoint.every_epochs", kInteger | kNull, "null", "Save after every n epochs.", 1,
       kMaxCount},
      {"checkpoint.every_steps", kInteger | kNull, "null", "Save after every n steps.", 1,
       kMaxCount},
      {"checkpoint.keep", kInteger, "3", "How many checkpoints are kept.", 1, kMaxCount},
      {"output", kObject, "{}", "What the run writes.", -kInfinity, kInfinity, {}, true},
      {"output.dir", kString | kNull, "null",
       "Folder of the run; null: runs/<name of the config file>."},
      {"output.log_steps", kInteger, "0", "A line in metrics.jsonl every n steps; 0: none.", 0,
       kMaxCount},
      {"runtime", kObject, "{}", "How the run uses the machine.", -kInfinity, kInfinity, {}, true},
      {"runtime.threads", kInteger, "0",
       "Threads of each rank; 0: the node's cores divided by its ranks.", 0, 4096},
      {"runtime.watchdog_seconds", kNumber, "300",
       "Seconds without progress after which the job is ended; 0: never.", 0, kMaxCount},
  };
}

/// Last part of a path, and the path of the section that holds it.
std::string_view name_of(const Row& row) {
  const std::size_t dot = row.path.rfind('.');
  return dot == std::string_view::npos ? row.path : row.path.substr(dot + 1);
}
std::string_view section_of(const Row& row) {
  const std::size_t dot = row.path.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : row.path.substr(0, dot);
}

std::vector<const Row*> rows_in(std::string_view section) {
  std::vector<const Row*> rows;
  for (const Row& row : config_table()) {
    if (section_of(row) == section) rows.push_back(&row);
  }
  return rows;
}

unsigned accepts_of(const json::Value& value) {
  switch (value.kind) {
    case json::Kind::null:
      return kNull;
    case json::Kind::boolean:
      return kBoolean;
    case json::Kind::integer:
      return kInteger | kNumber;
    case json::Kind::number:
      return value.number == std::trunc(value.number) && std::abs(value.number) <= kMaxCount
                 ? kInteger | kNumber
                 : static_cast<unsigned>(kNumber);
    case json::Kind::string:
      return kString;
    case json::Kind::array:
      return kArray;
    case json::Kind::object:
      return kObject;
  }
  return 0;
}

/// Where Keras's arguments of fit that are no keys of "fit" stand in a config; "" for others.
std::string moved_from_fit(std::string_view section, std::string_view key) {
  if (section != "fit") return "";
  if (key == "x" || key == "y") return "; data is named in \"data\": {\"train\": ...}";
  if (key == "sample_weight") return "; it is a key of \"data\": {\"train\": ...}";
  if (key == "validation_data") return "; it is named in \"data\": {\"validation\": ...}";
  if (key == "callbacks") return "; \"callbacks\" is a key of the config itself";
  return "";
}

/// kMaxCount is no limit that anyone meets: it is named only where a value lies beyond it.
std::string range_of(const Row& row, bool beyond) {
  const bool low = std::isfinite(row.least);
  if (low && std::isfinite(row.most) && (beyond || row.most < kMaxCount))
    return fmt::format(" from {} to {:.16g}", row.least, row.most);
  return low ? fmt::format(" of at least {}", row.least) : "";
}

/// "an integer of at least 1, or null".
std::string expected(const Row& row, bool beyond = false) {
  std::vector<std::string> parts;
  if ((row.accepts & kBoolean) != 0) parts.emplace_back("true or false (a boolean)");
  if ((row.accepts & kInteger) != 0) parts.push_back("an integer" + range_of(row, beyond));
  if ((row.accepts & kNumber) != 0) parts.push_back("a number" + range_of(row, beyond));
  if ((row.accepts & kString) != 0) {
    parts.push_back(row.choices.empty() ? "a string"
                                        : fmt::format("\"{}\"", fmt::join(row.choices, "\", \"")));
  }
  if ((row.accepts & kArray) != 0) parts.emplace_back("an array");
  if ((row.accepts & kObject) != 0) parts.emplace_back("an object");
  if ((row.accepts & kNull) != 0) parts.emplace_back("null");
  return fmt::format("{}", fmt::join(parts, ", or "));
}

std::string shown(const json::Value& value) {
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  return json::dump(value, -1);
}

json::Problem problem(const json::Value& value, std::string_view path, std::string message) {
  return {value.file ? *value.file : "", value.position, std::string(path), std::move(message)};
}

void check_row(const json::Value& value, const Row& row, json::Problems& problems) {
  bool good = (accepts_of(value) & row.accepts) != 0;
  if (good && value.is_number()) good = value.number >= row.least && value.number <= row.most;
  if (good && value.is_string() && !row.choices.empty()) {
    good = std::find(row.choices.begin(), row.choices.end(), value.string) != row.choices.end();
  }
  if (good) return;
  const std::string near = value.is_string() ? json::did_you_mean(value.string, row.choices) : "";
  problems.add(problem(value, row.path,
                       fmt::format("expected {}, got {}{}",
                                   expected(row, value.is_number() && value.number > row.most),
                                   shown(value), near)));
}

void check_section(const json::Value& object, std::string_view section, json::Problems& problems) {
  const std::vector<const Row*> rows = rows_in(section);
  std::vector<std::string> names;
  for (const Row* row : rows) names.emplace_back(name_of(*row));
  for (const json::Member& member : object.object) {
    const auto found = std::find(names.begin(), names.end(), member.key);
    const std::string path =
        section.empty() ? member.key : fmt::format("{}.{}", section, member.key);
    if (found == names.end()) {
      if (section.empty() && member.key == "$schema") continue;
      const std::string moved = moved_from_fit(section, member.key);
      json::Problem unknown =
          problem(member.value, path,
                  fmt::format("unknown key \"{}\"{}", member.key,
                              moved.empty() ? json::did_you_mean(member.key, names) : moved));
      if (member.key_position.line > 0) unknown.at = member.key_position;
      problems.add(std::move(unknown));
      continue;
    }
    const Row& row = *rows[static_cast<std::size_t>(found - names.begin())];
    check_row(member.value, row, problems);
    if (row.section && member.value.is_object()) check_section(member.value, row.path, problems);
  }
}

json::Value default_of(const Row& row) {
  json::Problems problems;
  return row.fallback.empty() ? json::make_null() : json::parse(row.fallback, "", problems);
}

json::Value filled(const json::Value& object, std::string_view section) {
  std::vector<std::pair<std::string, json::Value>> members;
  for (const Row* row : rows_in(section)) {
    const json::Value* given = object.find(name_of(*row));
    json::Value value = given != nullptr ? *given : default_of(*row);
    if (row->section && value.is_object()) value = filled(value, row->path);
    members.emplace_back(name_of(*row), std::move(value));
  }
  return json::make_object(std::move(members));
}

json::Value schema_of(const Row& row) {
  static const std::vector<std::pair<unsigned, const char*>> kTypes{
      {kNull, "null"},     {kBoolean, "boolean"}, {kInteger, "integer"}, {kNumber, "number"},
      {kString, "string"}, {kArray, "array"},     {kObject, "object"}};
  std::vector<json::Value> types;
  for (const auto& [bit, name] : kTypes) {
    if ((row.accepts & bit) != 0) types.push_back(json::make(name));
  }
  std::vector<std::pair<std::string, json::Value>> members{
      {"description", json::make(std::string(row.about))},
      {"type", json::make_array(std::move(types))}};
  if ((row.accepts & (kInteger | kNumber)) != 0) {
    if (std::isfinite(row.least)) members.emplace_back("minimum", json::make(row.least));
    if (std::isfinite(row.most)) members.emplace_back("maximum", json::make(row.most));
  }
  if (!row.choices.empty()) {
    // Choices bind strings only: other types that the key accepts stay free.
    std::vector<json::Value> list;
    for (const std::string& choice : row.choices) list.push_back(json::make(choice));
    members.emplace_back("if", json::make_object({{"type", json::make("string")}}));
    members.emplace_back("then", json::make_object({{"enum", json::make_array(std::move(list))}}));
  }
  if (!row.fallback.empty()) members.emplace_back("default", default_of(row));
  if (row.section) {
    std::vector<std::pair<std::string, json::Value>> properties;
    for (const Row* inner : rows_in(row.path))
      properties.emplace_back(name_of(*inner), schema_of(*inner));
    members.emplace_back("properties", json::make_object(std::move(properties)));
    members.emplace_back("additionalProperties", json::make(false));
  }
  return json::make_object(std::move(members));
}

void spell_integers_in(json::Value& section, std::string_view path) {
  for (const Row* row : rows_in(path)) {
    const auto member =
        std::find_if(section.object.begin(), section.object.end(),
                     [row](const json::Member& each) { return each.key == name_of(*row); });
    if (member == section.object.end()) continue;
    json::Value& value = member->value;
    if (row->section) {
      if (value.is_object()) spell_integers_in(value, row->path);
    } else if ((row->accepts & (kInteger | kNumber)) == kInteger &&
               value.kind == json::Kind::number && (accepts_of(value) & kInteger) != 0) {
      value.kind = json::Kind::integer;
      value.integer = static_cast<std::int64_t>(value.number);
    }
  }
}

}  // namespace

const std::vector<Row>& config_table() {
  static const std::vector<Row> kTable = make_table();
  return kTable;
}

std::string accepted_by(const Row& row) { return expected(row); }

void check_config(const json::Value& config, json::Problems& problems) {
  if (!config.is_object()) {
    problems.add(problem(config, "", fmt::format("a config is an object, got {}", shown(config))));
    return;
  }
  check_section(config, "", problems);
}

void spell_integers(json::Value& config) { spell_integers_in(config, ""); }

json::Value with_defaults(const json::Value& config) { return filled(config, ""); }

json::Value config_schema() {
  std::vector<std::pair<std::string, json::Value>> properties{
      {"$schema", json::make_object({{"type", json::make("string")}})}};
  for (const Row* row : rows_in("")) properties.emplace_back(name_of(*row), schema_of(*row));
  return json::make_object({{"$schema", json::make("http://json-schema.org/draft-07/schema#")},
                            {"title", json::make("Tessera run")},
                            {"type", json::make("object")},
                            {"required", json::make_array({json::make("model")})},
                            {"properties", json::make_object(std::move(properties))},
                            {"additionalProperties", json::make(false)}});
}

}  // namespace tessera::trainer
