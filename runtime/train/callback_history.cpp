#include "runtime/train/callback_history.h"

#include <algorithm>

#include "base/error.h"
#include "runtime/train/callback_monitor.h"

namespace tessera::train {
namespace {

[[noreturn]] void refuse() {
  throw Error(Error::Kind::weights,
              "checkpoint: the history was expected as {\"epochs\": [...], \"values\": {name: "
              "[...]}} with at most one number an epoch");
}

std::vector<double> numbers_from(const json::Value& list) {
  if (!list.is_array()) refuse();
  std::vector<double> numbers;
  for (const json::Value& item : list.array) {
    const std::optional<double> number = optional_number(item);
    if (!number) refuse();
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace

void HistoryCallback::on_epoch_end(FitContext& /*context*/, std::int64_t epoch, Logs& logs) {
  history_.add(epoch, logs);
}

json::Value HistoryCallback::state() const {
  std::vector<json::Value> epochs;
  for (const std::int64_t epoch : history_.epochs) epochs.push_back(json::make(epoch));
  std::vector<std::pair<std::string, json::Value>> values;
  for (const auto& [name, list] : history_.values) {
    std::vector<json::Value> numbers;
    for (const double value : list) numbers.push_back(optional_json(value));
    values.emplace_back(name, json::make_array(std::move(numbers)));
  }
  return json::make_object({{"epochs", json::make_array(std::move(epochs))},
                            {"values", json::make_object(std::move(values))}});
}

void HistoryCallback::restore(const json::Value& state) {
  const json::Value* epochs = state.find("epochs");
  const json::Value* values = state.find("values");
  if (epochs == nullptr || !epochs->is_array() || values == nullptr || !values->is_object())
    refuse();
  History restored;
  for (const json::Value& epoch : epochs->array) {
    if (epoch.kind != json::Kind::integer) refuse();
    restored.epochs.push_back(epoch.integer);
  }
  for (const json::Member& member : values->object) {
    restored.values.emplace_back(member.key, numbers_from(member.value));
    if (restored.values.back().second.size() > restored.epochs.size()) refuse();
  }
  history_ = std::move(restored);
}

}  // namespace tessera::train
