// From a config's metric to its object.
#include "runtime/train/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "runtime/train/metric_base.h"

namespace tessera::train {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return result;
}

bool is_upper(char letter) { return letter >= 'A' && letter <= 'Z'; }
bool is_lower(char letter) { return letter >= 'a' && letter <= 'z'; }

// Keras's rule: "MeanIoU" gives "mean_io_u", "AUC" gives "auc".
std::string snake_case(std::string_view name) {
  std::string result;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool starts = i + 1 < name.size() && is_lower(name[i + 1]);
    if (i > 0 && is_upper(name[i]) && (starts || is_lower(name[i - 1]))) result += '_';
    result += name[i];
  }
  return lower(result);
}

// All tables, one after another.
template <typename Visit>
void for_each_metric(Visit visit) {
  for (const auto table : {mean_metrics(), accuracy_metrics(), confusion_metrics(), curve_metrics(),
                           f_score_metrics(), iou_metrics(), regression_metrics()}) {
    for (const MetricEntry& entry : table) visit(entry);
  }
}

const MetricEntry* find_metric(std::string_view name) {
  const MetricEntry* found = nullptr;
  for_each_metric([&](const MetricEntry& entry) {
    if (name == entry.class_name || name == snake_case(entry.class_name) ||
        is_word_of(name, entry.aliases)) {
      found = &entry;
    }
  });
  return found;
}

// Functions of losses that are no metric's name, as means: "huber", "log_cosh".
std::optional<MetricEntry> find_loss_function(std::string_view name) {
  const LossEntry* loss = find_loss(name);
  if (loss == nullptr || name == loss->class_name) return std::nullopt;
  return MetricEntry{loss->class_name,  loss->function_name, loss->aliases, -1,
                     make_mean_of_loss, loss->function_name};
}

std::vector<std::string> metric_names() {
  std::vector<std::string> names = {"accuracy", "acc", "MeanMetricWrapper"};
  for_each_metric([&](const MetricEntry& entry) {
    names.emplace_back(entry.class_name);
    names.push_back(snake_case(entry.class_name));
    for (std::string& alias : words_of(entry.aliases)) names.push_back(std::move(alias));
  });
  return names;
}

std::string_view accuracy_of(const OutputTypes& types) {
  switch (label_kind(types)) {
    case LabelKind::binary:
      return "BinaryAccuracy";
    case LabelKind::sparse:
      return "SparseCategoricalAccuracy";
    case LabelKind::categorical:
      break;
  }
  return "CategoricalAccuracy";
}

void report_unknown(const json::Value& at, const std::string& path, const std::string& name,
                    json::Problems& problems) {
  add_problem(problems, at, path,
              fmt::format("unknown metric \"{}\"{}", json::printable(name),
                          json::did_you_mean(name, metric_names())));
}

// The entry that an identifier names; a MeanMetricWrapper's is that of its function. Empty: a
// problem was added.
std::optional<MetricEntry> resolve(const json::Identifier& identifier, bool is_string,
                                   const std::string& path, const OutputTypes& types,
                                   json::Arguments& arguments) {
  std::string name = identifier.class_name;
  const json::Value* at = identifier.at;
  std::string place = path;
  const bool wrapper = name == "MeanMetricWrapper";
  if (wrapper) {
    const json::Value* function = arguments.required("fn");
    if (function == nullptr) return std::nullopt;
    place = arguments.path_of("fn");
    const json::Identifier inner = json::read_identifier(*function, place, arguments.problems());
    if (inner.class_name.empty()) return std::nullopt;
    name = inner.class_name;
    at = inner.at;
  }
  const bool by_shape = is_string && (lower(name) == "accuracy" || lower(name) == "acc");
  std::optional<MetricEntry> entry;
  if (const MetricEntry* known = find_metric(by_shape ? accuracy_of(types) : name)) entry = *known;
  if (!entry) entry = find_loss_function(name);
  if (!entry) {
    report_unknown(*at, place, name, arguments.problems());
  } else if (wrapper) {
    entry->default_name = "mean_metric_wrapper";
  }
  return entry;
}

}  // namespace

std::vector<std::string> metric_classes() {
  std::vector<std::string> names;
  for_each_metric([&](const MetricEntry& entry) { names.emplace_back(entry.class_name); });
  return names;
}

std::unique_ptr<Metric> make_metric(const json::Value& value, const std::string& path,
                                    const OutputTypes& types, json::Problems& problems) {
  const std::size_t before = problems.list().size();
  const json::Identifier identifier = json::read_identifier(value, path, problems);
  if (identifier.class_name.empty()) return nullptr;
  json::Arguments arguments(*identifier.config, json::child_path(path, "config"), problems);
  arguments.ignore({"dtype"});
  const std::optional<MetricEntry> entry =
      resolve(identifier, value.is_string(), path, types, arguments);
  if (!entry) return nullptr;
  // A string is the name itself: "mse" is shown as mse.
  std::string name(entry->default_name);
  if (name.empty()) name = snake_case(entry->class_name);
  const bool numbered = entry->default_name.empty() && !value.is_string() && !arguments.has("name");
  name = value.is_string() ? identifier.class_name : arguments.text("name", name);
  std::unique_ptr<Metric> metric =
      entry->make({arguments, types, std::move(name), entry->direction, entry->loss});
  arguments.finish("argument");
  if (metric == nullptr || problems.list().size() != before) return nullptr;
  metric->set_numbered(numbered);
  const bool good =
      fits(types, value, path, "metric", identifier.class_name, problems,
           [&](graph::Builder& builder, SymbolicTensor y_true, SymbolicTensor y_pred) {
             metric->declare(*builder.graph().variables, metric->name());
             metric->update(builder, y_true, y_pred, {}, {});
           });
  return good ? std::move(metric) : nullptr;
}

}  // namespace tessera::train
