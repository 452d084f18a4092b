// --set: values of the command line, put into a config.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "trainer/config_table.h"

namespace tessera::trainer {
namespace {

/// The text of a --set assignment as a value placed at "--set path".
json::Value set_value(const std::string& text, const std::string& where) {
  json::Problems problems;
  json::Value value = json::parse(text, where, problems);
  if (!problems.empty()) value = json::make(text);
  return value;
}

/// One part of a --set path: the name of a member, or the index of an item.
struct Step {
  std::string name;
  std::optional<std::size_t> index;
};

/// Reads "fit.epochs=", "callbacks[0].config=", `layout_map[".*kernel"]=` up to the equals sign.
class SetPath {
 public:
  explicit SetPath(std::string_view text) : text_(text) {}

  /// The parts; nothing where this is no path with an equals sign after it.
  std::optional<std::vector<Step>> read() {
    std::vector<Step> steps;
    while (at_ < text_.size()) {
      if (text_[at_] == '=') {
        if (steps.empty()) return std::nullopt;
        return steps;
      }
      Step step;
      if (text_[at_] == '[') {
        if (!read_bracket(step)) return std::nullopt;
      } else {
        if (!steps.empty() && text_[at_++] != '.') return std::nullopt;
        const std::size_t end = std::min(text_.find_first_of(".[]=", at_), text_.size());
        step.name = text_.substr(at_, end - at_);
        if (step.name.empty()) return std::nullopt;
        at_ = end;
      }
      steps.push_back(std::move(step));
    }
    return std::nullopt;
  }
  /// Of the equals sign.
  std::size_t position() const { return at_; }

 private:
  bool read_bracket(Step& step) {
    const std::size_t begin = ++at_;
    if (begin < text_.size() && text_[begin] == '"') {
      for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
        if (text_[at_] == '\\') ++at_;
      }
      at_ = std::min(at_ + 1, text_.size());
      json::Problems problems;
      step.name = json::parse(text_.substr(begin, at_ - begin), "", problems).string;
      if (!problems.empty()) return false;
    } else {
      std::size_t index = 0;
      const auto [end, error] =
          std::from_chars(text_.data() + begin, text_.data() + text_.size(), index);
      if (error != std::errc()) return false;
      step.index = index;
      at_ = static_cast<std::size_t>(end - text_.data());
    }
    return at_ < text_.size() && text_[at_++] == ']';
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

void place_at(json::Value& value, const std::shared_ptr<const std::string>& where) {
  value.file = where;
  value.position = {};
  for (json::Value& item : value.array) place_at(item, where);
  for (json::Member& member : value.object) {
    member.key_position = {};
    place_at(member.value, where);
  }
}

}  // namespace

void apply_set(json::Value& config, const std::string& assignment, json::Problems& problems) {
  SetPath reader(assignment);
  const std::optional<std::vector<Step>> steps = reader.read();
  if (!steps) {
    problems.add({"", {}, "", fmt::format("--set {}: expected path.to.key=value", assignment)});
    return;
  }
  const std::string path = assignment.substr(0, reader.position());
  const auto where = std::make_shared<const std::string>("--set " + path);
  json::Value* at = &config;
  for (const Step& step : *steps) {
    if (step.index) {
      if (!at->is_array() || *step.index >= at->array.size()) {
        problems.add({*where, {}, path, fmt::format("there is no element [{}]", *step.index)});
        return;
      }
      at = &at->array[*step.index];
      continue;
    }
    if (at->is_null()) {
      *at = json::make_object();
      place_at(*at, where);
    }
    if (!at->is_object()) {
      problems.add({*where,
                    {},
                    path,
                    fmt::format("\"{}\" would be a member of {}: set the whole value", step.name,
                                at->is_array() ? "an array" : json::dump(*at, -1))});
      return;
    }
    const auto known =
        std::find_if(at->object.begin(), at->object.end(),
                     [&](const json::Member& member) { return member.key == step.name; });
    if (known == at->object.end()) {
      at->object.push_back({step.name, {}, json::make_null()});
      place_at(at->object.back().value, where);
      at = &at->object.back().value;
    } else {
      at = &known->value;
    }
  }
  *at = set_value(assignment.substr(reader.position() + 1), *where);
  place_at(*at, where);
}

}  // namespace tessera::trainer
