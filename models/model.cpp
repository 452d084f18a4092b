// Reading a whole model: its network, one walk that checks shapes and collects weights, and what
// training asks of it.
#include "models/model.h"

#include <fmt/format.h>

#include <functional>

#include "models/network.h"

namespace tessera::models {
namespace {

class KerasModel : public Model {
 public:
  explicit KerasModel(const json::Value& value) : json_(value) {}

  bool read(const std::string& path, DTypePolicy policy, json::Problems& problems);

  const std::string& name() const override { return network_->info().name; }
  const std::vector<train::TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<train::TensorSpec>& outputs() const override { return outputs_; }
  void declare(graph::VariableTable& table, json::Problems& problems) override;
  const std::vector<graph::VariableId>& weights() const override { return ids_; }
  std::vector<std::pair<std::string, Shape>> output_paths(std::int64_t batch) const override;
  train::ForwardResult forward(graph::Builder& builder, const std::vector<SymbolicTensor>& inputs,
                               bool training) const override;
  std::vector<LayerRow> rows() const override;
  const json::Value& json() const override { return json_; }

 private:
  std::unique_ptr<Network> read_network(const std::string& path, DTypePolicy policy,
                                        json::Problems& problems) const;
  void walk(json::Problems& problems);

  json::Value json_;  // layers point into it
  std::unique_ptr<Network> network_;
  std::vector<train::TensorSpec> inputs_;
  std::vector<train::TensorSpec> outputs_;
  std::vector<graph::Variable> variables_;
  std::vector<graph::VariableId> ids_;
};

std::unique_ptr<Network> KerasModel::read_network(const std::string& path, DTypePolicy policy,
                                                  json::Problems& problems) const {
  json::Identifier identifier;
  const json::Value* class_name = json_.find("class_name");
  if (class_name != nullptr && class_name->is_string() && !class_name->string.empty()) {
    // Beside it may stand what Keras says about itself: keras_version, backend, ...
    identifier = {class_name->string, nullptr, class_name};
  } else {
    identifier = json::read_identifier(json_, path, problems);
  }
  if (identifier.class_name.empty()) return nullptr;
  const bool sequential = identifier.class_name == "Sequential";
  const json::Value* config = json_.find("config");
  const bool usable = config != nullptr && (config->is_object() || config->is_array());
  const bool known =
      sequential || identifier.class_name == "Functional" || identifier.class_name == "Model";
  if (!known || !usable) {
    problems.add({identifier.at->file ? *identifier.at->file : "", identifier.at->position, path,
                  known ? fmt::format("a {} model without a config", identifier.class_name)
                        : fmt::format("a model of class \"{}\" is not supported; supported are "
                                      "Sequential and Functional",
                                      json::printable(identifier.class_name))});
    return nullptr;
  }
  LayerInfo info;
  info.name = name_of_layer(json_);
  if (info.name.empty()) info.name = sequential ? "sequential" : "functional";
  info.class_name = identifier.class_name;
  info.json = &json_;
  info.json_path = path;
  info.policy = policy;
  const json::Value* trainable = config->find("trainable");
  info.trainable =
      trainable == nullptr || trainable->kind != json::Kind::boolean || trainable->boolean;
  const std::string config_path = json::child_path(path, "config");
  if (!sequential) return make_functional(std::move(info), *config, config_path, problems);
  info.path = info.name;
  info.call_path = info.name;
  return make_sequential(std::move(info), *config, config_path, problems);
}

bool KerasModel::read(const std::string& path, DTypePolicy policy, json::Problems& problems) {
  const std::size_t before = problems.list().size();
  network_ = read_network(path, policy, problems);
  if (problems.list().size() != before) return false;
  if (network_->inputs().empty()) {
    problems.add({json_.file ? *json_.file : "", json_.position, path,
                  "the model has no input of known shape: expected an InputLayer, or "
                  "\"batch_input_shape\" in its first layer"});
    return false;
  }
  walk(problems);
  return problems.list().size() == before;
}

// Adds the forward graph of training once to a graph of its own.
void KerasModel::walk(json::Problems& problems) {
  const std::size_t before = problems.list().size();
  WeightStore store(problems);
  graph::Graph graph(store.table());
  graph::Builder builder(graph);
  std::vector<MaskedTensor> inputs;
  for (const train::TensorSpec& spec : network_->inputs()) {
    Shape shape{kProbeBatch};
    for (const std::int64_t size : spec.sample_shape.sizes()) shape.push_back(size);
    inputs.push_back({builder.input(spec.name, shape, spec.dtype), {}});
  }
  Pass::Options options;
  options.store = &store;
  options.training = true;  // so that what only training does is checked too
  Pass pass(builder, options);
  std::vector<MaskedTensor> results;
  try {
    results = network_->run(pass, inputs);
  } catch (const Error& error) {
    if (error.kind != Error::Kind::config) throw;
    problems.add(
        {json_.file ? *json_.file : "", json_.position, network_->info().json_path, error.what()});
  }
  if (problems.list().size() != before) return;
  inputs_ = network_->inputs();
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    inputs_[i].limit = pass.limit_of(inputs[i].value);
  }
  const std::vector<std::string> names = network_->output_names();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const SymbolicTensor value = results[i].value;
    if (value.rank() == 0) {
      problems.add(
          {json_.file ? *json_.file : "", json_.position, network_->info().json_path,
           fmt::format("output \"{}\" is a scalar; expected one value a sample", names[i])});
      return;
    }
    outputs_.push_back({names[i], Shape(value.shape().sizes().subspan(1)), value.dtype(), 0});
  }
  variables_ = store.variables();
}

void KerasModel::declare(graph::VariableTable& table, json::Problems& problems) {
  check(ids_.empty(), "the weights of a model are declared once");
  for (const graph::Variable& variable : variables_) {
    if (table.find(variable.path)) {
      problems.add({json_.file ? *json_.file : "", json_.position, network_->info().json_path,
                    fmt::format("a variable called \"{}\" exists already", variable.path)});
      continue;
    }
    ids_.push_back(table.declare(variable));
  }
}

void add_output_paths(const Network& network, std::int64_t batch,
                      std::vector<std::pair<std::string, Shape>>& paths) {
  for (const auto& layer : network.layers()) {
    if (const auto* inner = dynamic_cast<const Network*>(layer.get())) {
      add_output_paths(*inner, batch, paths);
    }
    if (!layer->has_output_path()) continue;
    Shape shape = layer->output_types().front().shape;
    if (shape.rank() > 0 && shape[0] == kProbeBatch) shape[0] = batch;
    paths.emplace_back(layer->info().call_path + "/output", shape);
  }
}

std::vector<std::pair<std::string, Shape>> KerasModel::output_paths(std::int64_t batch) const {
  std::vector<std::pair<std::string, Shape>> paths;
  add_output_paths(*network_, batch, paths);
  return paths;
}

train::ForwardResult KerasModel::forward(graph::Builder& builder,
                                         const std::vector<SymbolicTensor>& inputs,
                                         bool training) const {
  check(ids_.size() == variables_.size(), "the weights of a model are declared before it is used");
  Pass::Options options;
  options.training = training;
  options.seed = seed;
  options.place = &place;
  options.ids = &ids_;
  Pass pass(builder, options);
  std::vector<MaskedTensor> values;
  for (const SymbolicTensor input : inputs) values.push_back({input, {}});
  train::ForwardResult result;
  for (const MaskedTensor& output : network_->run(pass, values)) {
    result.outputs.push_back(output.value);
    result.masks.push_back(output.mask);
  }
  pass.finish();
  result.added_losses = pass.losses();
  return result;
}

std::vector<LayerRow> KerasModel::rows() const {
  std::vector<LayerRow> rows;
  network_->add_rows(rows, 0);
  for (LayerRow& row : rows) {
    for (graph::VariableId& variable : row.variables) {
      const auto index = static_cast<std::size_t>(variable);
      row.parameters += variables_[index].shape.elements();
      if (index < ids_.size()) variable = ids_[index];
    }
  }
  return rows;
}

}  // namespace

std::unique_ptr<Model> Model::read(const json::Value& value, const std::string& path,
                                   const std::string& policy, json::Problems& problems) {
  const auto default_policy = policy_from_name(policy);
  if (!default_policy) {
    problems.add({"", {}, "dtype_policy", fmt::format("unknown dtype policy \"{}\"", policy)});
    return nullptr;
  }
  auto model = std::make_unique<KerasModel>(value);
  if (!model->read(path, *default_policy, problems)) return nullptr;
  return model;
}

}  // namespace tessera::models
