// Functional models: layers called on tensors, in any graph without cycles.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "models/graph_nodes.h"
#include "models/network.h"

namespace tessera::models {
namespace {

// A tensor of the walk: the output of a step, or an input of the model (step -1).
struct Slot {
  int step = -1;
  int output = 0;
};

// An argument whose references are resolved.
struct StepArgument {
  std::optional<Slot> slot;
  const json::Value* constant = nullptr;
  std::vector<StepArgument> items;
  std::vector<std::string> keys;
};

// One call, in an order in which every call comes after those it reads.
struct Step {
  Layer* layer = nullptr;
  std::vector<StepArgument> positional;
  std::vector<std::pair<std::string, StepArgument>> named;
  std::string connected_to;  // as the summary shows it
};

class Functional : public Network {
 public:
  using Network::Network;

  void read(const json::Value& config, const std::string& config_path, json::Problems& problems);

  std::vector<std::string> output_names() const override { return output_names_; }
  std::vector<MaskedTensor> run(Pass& pass, const std::vector<MaskedTensor>& inputs) override;
  void add_rows(std::vector<LayerRow>& rows, int depth) const override;

 private:
  // A layer of the JSON while it is read.
  struct Entry {
    const json::Value* json = nullptr;
    std::string path;
    std::string name;
    Layer* layer = nullptr;  // nullptr: an input, or a layer that could not be read
    bool is_input = false;
    train::TensorSpec spec;  // of an input
    std::vector<LayerNode> nodes;
    std::vector<int> steps;  // of the calls that are ordered already
  };

  void read_layers(const json::Value& layers, const std::string& path, json::Problems& problems);
  void read_inputs(const json::Value& config, const std::string& path, json::Problems& problems);
  void order_calls(json::Problems& problems);
  bool ready(const LayerNode& node) const;
  void add_step(Entry& entry, const LayerNode& node);
  void report_unordered(json::Problems& problems) const;
  void read_outputs(const json::Value& config, const std::string& path, json::Problems& problems);
  std::optional<Slot> find_slot(const TensorReference& reference) const;
  StepArgument resolve(const NodeArgument& argument) const;

  std::vector<Entry> entries_;
  std::map<std::string, std::size_t> by_name_;
  std::map<std::string, int> input_index_;
  std::vector<Step> steps_;
  std::vector<Slot> outputs_;
  std::vector<std::string> output_names_;
};

void add_problem(const json::Value& at, const std::string& path, std::string message,
                 json::Problems& problems) {
  problems.add({at.file ? *at.file : "", at.position, path, std::move(message)});
}

void Functional::read(const json::Value& config, const std::string& config_path,
                      json::Problems& problems) {
  static const json::Value kNone = json::make_array();
  const json::Value* layers = config.find("layers");
  if (layers == nullptr || !layers->is_array()) {
    add_problem(layers == nullptr ? config : *layers, config_path + ".layers",
                "expected the array of a Functional model's layers", problems);
    layers = &kNone;
  }
  const std::size_t before = problems.list().size();
  read_layers(*layers, config_path + ".layers", problems);
  if (problems.list().size() != before) return;  // what follows would only repeat them
  read_inputs(config, config_path, problems);
  order_calls(problems);
  if (problems.list().size() == before) read_outputs(config, config_path, problems);
}

void Functional::read_layers(const json::Value& layers, const std::string& path,
                             json::Problems& problems) {
  // A Functional model's layers were built before the model was: its name is no part of their
  // variables' paths, whatever surrounds it.
  const LayerContext context{"", info().call_path, info().policy, info().trainable};
  for (std::size_t i = 0; i < layers.array.size(); ++i) {
    const json::Value& layer = layers.array[i];
    Entry entry;
    entry.json = &layer;
    entry.path = json::child_path(path, i);
    entry.name = name_of_layer(layer);
    const json::Value* class_name = layer.find("class_name");
    entry.is_input = class_name != nullptr && class_name->string == "InputLayer";
    if (entry.is_input) {
      entry.spec = read_input_layer(layer, entry.path, problems);
      entry.name = entry.spec.name;
    } else if (auto made = make_layer(layer, entry.path, context, problems)) {
      entry.layer = made.get();
      entry.name = made->info().name;
      layers_.push_back(std::move(made));
      entry.nodes =
          read_nodes(layer.find("inbound_nodes"), entry.path + ".inbound_nodes", problems);
    }
    if (!by_name_.emplace(entry.name, entries_.size()).second) {
      add_problem(
          layer, entry.path,
          fmt::format("a second layer called \"{}\" in one model", json::printable(entry.name)),
          problems);
    }
    entries_.push_back(std::move(entry));
  }
}

void Functional::read_inputs(const json::Value& config, const std::string& path,
                             json::Problems& problems) {
  const Endpoints inputs =
      read_endpoints(config.find("input_layers"), path + ".input_layers", config, problems);
  for (std::size_t i = 0; i < inputs.references.size(); ++i) {
    const TensorReference& reference = inputs.references[i];
    const auto found = by_name_.find(reference.layer);
    if (found == by_name_.end() || !entries_[found->second].is_input) {
      add_problem(
          *reference.at, path + ".input_layers",
          fmt::format("\"{}\" is no InputLayer of this model", json::printable(reference.layer)),
          problems);
      continue;
    }
    input_index_.emplace(reference.layer, static_cast<int>(inputs_.size()));
    inputs_.push_back(entries_[found->second].spec);
    // A dictionary's keys are the names by which data is given.
    if (!inputs.keys.empty()) {
      input_keys_.push_back(inputs.keys[i]);
      inputs_.back().name = inputs.keys[i];
    }
  }
}

std::optional<Slot> Functional::find_slot(const TensorReference& reference) const {
  const auto found = by_name_.find(reference.layer);
  if (found == by_name_.end()) return std::nullopt;
  const Entry& entry = entries_[found->second];
  if (entry.is_input) {
    const auto index = input_index_.find(reference.layer);
    if (index == input_index_.end() || reference.node != 0 || reference.tensor != 0) {
      return std::nullopt;
    }
    return Slot{-1, index->second};
  }
  if (reference.node < 0 || static_cast<std::size_t>(reference.node) >= entry.steps.size()) {
    return std::nullopt;
  }
  return Slot{entry.steps[static_cast<std::size_t>(reference.node)], reference.tensor};
}

bool Functional::ready(const LayerNode& node) const {
  bool result = true;
  for_each_reference(node, [&](const TensorReference& reference) {
    result = result && find_slot(reference).has_value();
  });
  return result;
}

StepArgument Functional::resolve(const NodeArgument& argument) const {
  StepArgument result;
  if (argument.is_reference) result.slot = find_slot(argument.reference);
  result.constant = argument.constant;
  result.keys = argument.keys;
  for (const NodeArgument& item : argument.items) result.items.push_back(resolve(item));
  return result;
}

void Functional::add_step(Entry& entry, const LayerNode& node) {
  Step step;
  step.layer = entry.layer;
  for (const NodeArgument& argument : node.positional) {
    step.positional.push_back(resolve(argument));
  }
  for (const auto& [name, argument] : node.named) step.named.emplace_back(name, resolve(argument));
  std::vector<std::string> sources;
  for_each_reference(node, [&](const TensorReference& reference) {
    sources.push_back(fmt::format("{}[{}][{}]", reference.layer, reference.node, reference.tensor));
  });
  step.connected_to = fmt::format("{}", fmt::join(sources, ", "));
  entry.steps.push_back(static_cast<int>(steps_.size()));
  steps_.push_back(std::move(step));
}

// As Keras rebuilds a graph: again and again over the layers in their order, each time every call
// whose inputs exist. Layers may stand before those they read.
void Functional::order_calls(json::Problems& problems) {
  bool progress = true;
  while (progress) {
    progress = false;
    for (Entry& entry : entries_) {
      while (entry.steps.size() < entry.nodes.size() && ready(entry.nodes[entry.steps.size()])) {
        add_step(entry, entry.nodes[entry.steps.size()]);
        progress = true;
      }
    }
  }
  report_unordered(problems);
}

void Functional::report_unordered(json::Problems& problems) const {
  std::vector<std::string> waiting;
  const Entry* first = nullptr;
  const std::size_t before = problems.list().size();
  for (const Entry& entry : entries_) {
    if (entry.steps.size() == entry.nodes.size()) continue;
    waiting.push_back(entry.name);
    if (first == nullptr) first = &entry;
    for (std::size_t i = entry.steps.size(); i < entry.nodes.size(); ++i) {
      for_each_reference(entry.nodes[i], [&](const TensorReference& reference) {
        const auto found = by_name_.find(reference.layer);
        const bool known = found != by_name_.end();
        const bool exists =
            known && reference.node >= 0 &&
            static_cast<std::size_t>(reference.node) <
                (entries_[found->second].is_input ? 1 : entries_[found->second].nodes.size());
        if (exists) return;
        add_problem(*reference.at, json::child_path(entry.path + ".inbound_nodes", i),
                    known
                        ? fmt::format("layer \"{}\" has no call {}",
                                      json::printable(reference.layer), reference.node)
                        : fmt::format("there is no layer \"{}\"", json::printable(reference.layer)),
                    problems);
      });
    }
  }
  if (first == nullptr || problems.list().size() != before) return;
  add_problem(*first->json, first->path,
              fmt::format("the calls of these layers wait for each other: {}",
                          json::printable(fmt::format("{}", fmt::join(waiting, ", ")))),
              problems);
}

void Functional::read_outputs(const json::Value& config, const std::string& path,
                              json::Problems& problems) {
  const Endpoints outputs =
      read_endpoints(config.find("output_layers"), path + ".output_layers", config, problems);
  std::set<std::string> used;
  for (std::size_t i = 0; i < outputs.references.size(); ++i) {
    const TensorReference& reference = outputs.references[i];
    const std::optional<Slot> slot = find_slot(reference);
    if (!slot) {
      add_problem(*reference.at, path + ".output_layers",
                  fmt::format("there is no call {} of a layer \"{}\"", reference.node,
                              json::printable(reference.layer)),
                  problems);
      continue;
    }
    const std::string base = outputs.keys.empty() ? reference.layer : outputs.keys[i];
    std::string name = base;
    for (int n = 1; !used.insert(name).second; ++n) name = fmt::format("{}_{}", base, n);
    outputs_.push_back(*slot);
    output_names_.push_back(std::move(name));
  }
}

// Nothing where the call was left out; throws config where it has no such output.
MaskedTensor output_at(const std::vector<MaskedTensor>& from, std::size_t output) {
  if (from.empty()) return {};
  if (output < from.size()) return from[output];
  throw Error(Error::Kind::config,
              fmt::format("output {} of a call that has {}", output, from.size()));
}

// Values of the steps so far, as a call's arguments.
Argument bind_values(const StepArgument& argument, const std::vector<MaskedTensor>& inputs,
                     const std::vector<std::vector<MaskedTensor>>& results) {
  Argument bound;
  bound.constant = argument.constant;
  bound.keys = argument.keys;
  if (argument.slot) {
    const auto& from =
        argument.slot->step < 0 ? inputs : results[static_cast<std::size_t>(argument.slot->step)];
    const auto output = static_cast<std::size_t>(argument.slot->output);
    bound.tensor = output_at(from, output);
  }
  for (const StepArgument& item : argument.items) {
    bound.items.push_back(bind_values(item, inputs, results));
  }
  return bound;
}

std::vector<MaskedTensor> Functional::run(Pass& pass, const std::vector<MaskedTensor>& inputs) {
  std::vector<std::vector<MaskedTensor>> results;
  results.reserve(steps_.size());
  for (const Step& step : steps_) {
    CallArguments arguments;
    for (const StepArgument& argument : step.positional) {
      arguments.positional.push_back(bind_values(argument, inputs, results));
    }
    for (const auto& [name, argument] : step.named) {
      arguments.named.emplace_back(name, bind_values(argument, inputs, results));
    }
    results.push_back(call_layer(*step.layer, pass, arguments));
  }
  std::vector<MaskedTensor> outputs;
  for (const Slot slot : outputs_) {
    const auto& from = slot.step < 0 ? inputs : results[static_cast<std::size_t>(slot.step)];
    outputs.push_back(output_at(from, static_cast<std::size_t>(slot.output)));
  }
  return outputs;
}

void Functional::add_rows(std::vector<LayerRow>& rows, int depth) const {
  for (const Entry& entry : entries_) {
    if (entry.is_input) {
      rows.push_back(input_row(entry.spec, depth));
      continue;
    }
    std::vector<std::string> sources;
    for (const int step : entry.steps) {
      sources.push_back(steps_[static_cast<std::size_t>(step)].connected_to);
    }
    add_layer_rows(*entry.layer, fmt::format("{}", fmt::join(sources, ", ")), depth, rows);
  }
}

}  // namespace

std::unique_ptr<Network> make_functional(LayerInfo info, const json::Value& config,
                                         const std::string& config_path, json::Problems& problems) {
  auto model = std::make_unique<Functional>(std::move(info));
  model->read(config, config_path, problems);
  return model;
}

}  // namespace tessera::models
