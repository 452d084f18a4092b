// Sequential models: layers one after another.
#include <fmt/format.h>

#include "models/network.h"

namespace tessera::models {
namespace {

class Sequential : public Network {
 public:
  using Network::Network;

  void read(const json::Value& config, const std::string& config_path, json::Problems& problems);

  std::vector<std::string> output_names() const override {
    return {layers_.empty() ? inputs_.front().name : layers_.back()->info().name};
  }
  std::vector<MaskedTensor> run(Pass& pass, const std::vector<MaskedTensor>& inputs) override;
  void add_rows(std::vector<LayerRow>& rows, int depth) const override {
    for (const auto& layer : layers_) add_layer_rows(*layer, "", depth, rows);
  }

 private:
  void read_input(const json::Value& layers, const json::Value& config,
                  const std::string& config_path, const std::string& layers_path,
                  json::Problems& problems);
};

bool is_input_layer(const json::Value& layer) {
  const json::Value* class_name = layer.find("class_name");
  return class_name != nullptr && class_name->is_string() && class_name->string == "InputLayer";
}

void Sequential::read(const json::Value& config, const std::string& config_path,
                      json::Problems& problems) {
  static const json::Value kNone = json::make_array();
  // Keras before 2.2.3 wrote the bare list of layers where the config is now.
  const json::Value* layers = config.is_array() ? &config : config.find("layers");
  const std::string layers_path = config.is_array() ? config_path : config_path + ".layers";
  if (layers == nullptr || !layers->is_array()) {
    const json::Value& at = layers == nullptr ? config : *layers;
    problems.add({at.file ? *at.file : "", at.position, layers_path,
                  "expected the array of a Sequential model's layers"});
    layers = &kNone;
  }
  const json::Value* dtype = config.find("dtype");
  const LayerContext context{info().path, info().call_path,
                             read_policy(dtype, config_path + ".dtype", info().policy, problems),
                             info().trainable};
  for (std::size_t i = 0; i < layers->array.size(); ++i) {
    const json::Value& layer = layers->array[i];
    if (is_input_layer(layer)) continue;
    if (auto made = make_layer(layer, json::child_path(layers_path, i), context, problems)) {
      layers_.push_back(std::move(made));
    }
  }
  read_input(*layers, config, config_path, layers_path, problems);
}

void Sequential::read_input(const json::Value& layers, const json::Value& config,
                            const std::string& config_path, const std::string& layers_path,
                            json::Problems& problems) {
  if (layers.array.empty()) return;
  const json::Value& first = layers.array.front();
  const std::string first_path = json::child_path(layers_path, std::size_t{0});
  if (is_input_layer(first)) {
    inputs_.push_back(read_input_layer(first, first_path, problems));
    return;
  }
  const json::Value* first_config = first.find("config");
  if (first_config != nullptr) {
    const json::Value* shape = first_config->find("batch_input_shape");
    if (shape == nullptr) shape = first_config->find("batch_shape");
    if (shape != nullptr && !shape->is_null()) {
      inputs_.push_back(read_input_spec(*shape, first_path + ".config.batch_input_shape",
                                        name_of_layer(first) + "_input", DType::float32, problems));
      return;
    }
  }
  const json::Value* shape = config.find("build_input_shape");
  std::string shape_path = config_path + ".build_input_shape";
  const json::Value* build = info().json->find("build_config");
  if ((shape == nullptr || shape->is_null()) && build != nullptr) {
    shape = build->find("input_shape");
    shape_path = info().json_path + ".build_config.input_shape";
  }
  if (shape != nullptr && !shape->is_null()) {
    inputs_.push_back(read_input_spec(*shape, shape_path, "input_layer", DType::float32, problems));
  }
}

std::vector<MaskedTensor> Sequential::run(Pass& pass, const std::vector<MaskedTensor>& inputs) {
  std::vector<MaskedTensor> values = inputs;
  for (const auto& layer : layers_) {
    CallArguments arguments;
    Argument argument;
    if (values.size() == 1) {
      argument.tensor = values.front();
    } else {
      for (const MaskedTensor& value : values) argument.items.push_back({value, nullptr, {}, {}});
    }
    arguments.positional.push_back(std::move(argument));
    values = call_layer(*layer, pass, arguments);
  }
  return values;
}

}  // namespace

std::unique_ptr<Network> make_sequential(LayerInfo info, const json::Value& config,
                                         const std::string& config_path, json::Problems& problems) {
  auto model = std::make_unique<Sequential>(std::move(info));
  model->read(config, config_path, problems);
  return model;
}

}  // namespace tessera::models
