#include "models/layer_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "models/layers/layers.h"
#include "models/network.h"

namespace tessera::models {
namespace {

// All layer classes but InputLayer and the models.
const std::vector<LayerEntry>& layer_entries() {
  static const std::vector<LayerEntry> table{
      {"Activation", layers::make_activation_layer},
      {"ActivityRegularization", layers::make_activity_regularization},
      {"Add", layers::make_add},
      {"AlphaDropout", layers::make_alpha_dropout},
      {"Average", layers::make_average},
      {"BatchNormalization", layers::make_batch_normalization},
      {"Concatenate", layers::make_concatenate},
      {"Dense", layers::make_dense},
      {"Dot", layers::make_dot},
      {"Dropout", layers::make_dropout},
      {"ELU", layers::make_elu},
      {"EinsumDense", layers::make_einsum_dense},
      {"Embedding", layers::make_embedding},
      {"Flatten", layers::make_flatten},
      {"GaussianDropout", layers::make_gaussian_dropout},
      {"GaussianNoise", layers::make_gaussian_noise},
      {"GroupNormalization", layers::make_group_normalization},
      {"Identity", layers::make_identity},
      {"LayerNormalization", layers::make_layer_normalization},
      {"LeakyReLU", layers::make_leaky_relu},
      {"Masking", layers::make_masking},
      {"Maximum", layers::make_maximum},
      {"Minimum", layers::make_minimum},
      {"Multiply", layers::make_multiply},
      {"Normalization", layers::make_normalization},
      {"PReLU", layers::make_prelu},
      {"Permute", layers::make_permute},
      {"RMSNormalization", layers::make_rms_normalization},
      {"ReLU", layers::make_relu},
      {"RepeatVector", layers::make_repeat_vector},
      {"Rescaling", layers::make_rescaling},
      {"Reshape", layers::make_reshape},
      {"ReversibleEmbedding", layers::make_reversible_embedding},
      {"Softmax", layers::make_softmax},
      {"SpatialDropout1D", layers::make_spatial_dropout_1d},
      {"SpatialDropout2D", layers::make_spatial_dropout_2d},
      {"SpatialDropout3D", layers::make_spatial_dropout_3d},
      {"Subtract", layers::make_subtract},
      {"UnitNormalization", layers::make_unit_normalization},
  };
  return table;
}

const LayerFactory* find_layer(const std::string& class_name) {
  for (const LayerEntry& entry : layer_entries()) {
    if (class_name == entry.class_name) return &entry.factory;
  }
  return nullptr;
}

bool is_model(const std::string& class_name) {
  return class_name == "Sequential" || class_name == "Functional" || class_name == "Model";
}

std::string module_of(const json::Value& layer) {
  const json::Value* module = layer.find("module");
  return module != nullptr && module->is_string() ? module->string : "";
}

bool starts_with(const std::string& text, std::string_view prefix) {
  return text.rfind(prefix, 0) == 0;
}

// Classes of other packages are not Keras's even where their names are.
bool is_keras_module(const std::string& module) {
  return module.empty() || module == "keras" || starts_with(module, "keras.") ||
         starts_with(module, "tf_keras") || starts_with(module, "tensorflow.");
}

void report_unknown(const json::Identifier& identifier, const LayerInfo& info,
                    const std::string& module, json::Problems& problems) {
  const bool operation = starts_with(module, "keras.src.ops") || starts_with(module, "keras.ops");
  const std::vector<std::string> known = operation ? operation_classes() : layer_classes();
  const std::string from = is_keras_module(module)
                               ? std::string()
                               : fmt::format(" from module \"{}\"", json::printable(module));
  problems.add(
      {identifier.at->file ? *identifier.at->file : "", identifier.at->position,
       info.json_path + ".class_name",
       fmt::format("{} \"{}\" of class \"{}\"{} is not supported{}; supported are {}",
                   operation ? "operation" : "layer", json::printable(info.name),
                   json::printable(identifier.class_name), from,
                   json::did_you_mean(identifier.class_name, known), fmt::join(known, ", "))});
}

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "/" + name;
}

// What all layers read alike. Keys that this version does not know are other versions' and stay
// without effect, as in Keras.
std::unique_ptr<Layer> make_from_config(const LayerFactory& factory, LayerInfo info,
                                        const json::Value& config_value,
                                        const DTypePolicy& fallback, json::Problems& problems) {
  json::Arguments config(config_value, info.json_path + ".config", problems);
  config.ignore_rest();
  info.trainable = config.boolean("trainable", true) && info.trainable;
  info.policy = read_policy(config.value("dtype"), config.path_of("dtype"), fallback, problems);
  static const json::Value kNone = json::make_null();
  const json::Value* regularizer = config.value("activity_regularizer");
  auto activity = train::make_regularizer(regularizer == nullptr ? kNone : *regularizer,
                                          config.path_of("activity_regularizer"), problems);
  std::unique_ptr<Layer> layer = factory(std::move(info), config);
  if (activity) layer->set_activity_regularizer(std::move(activity));
  return layer;
}

}  // namespace

std::unique_ptr<Layer> make_layer(const json::Value& value, const std::string& json_path,
                                  const LayerContext& context, json::Problems& problems) {
  const json::Identifier identifier = json::read_identifier(value, json_path, problems);
  if (identifier.class_name.empty()) return nullptr;
  LayerInfo info;
  info.name = name_of_layer(value);
  info.class_name = identifier.class_name;
  info.json = &value;
  info.json_path = json_path;
  info.trainable = context.trainable;
  info.policy = context.policy;
  const std::string module = module_of(value);
  const bool model = is_model(identifier.class_name) && is_keras_module(module);
  const LayerFactory* factory = nullptr;
  if (starts_with(module, "keras.src.ops") || starts_with(module, "keras.ops")) {
    factory = find_operation(identifier.class_name);
  } else if (is_keras_module(module)) {
    factory = find_layer(identifier.class_name);
  }
  if (!model && factory == nullptr) {
    report_unknown(identifier, info, module, problems);
    return nullptr;
  }
  if (info.name.empty()) {
    problems.add({value.file ? *value.file : "", value.position, json_path + ".config.name",
                  fmt::format("a layer of class \"{}\" without a name", info.class_name)});
    return nullptr;
  }
  info.path = join(context.path, info.name);
  info.call_path = join(context.call_path, info.name);
  if (!model) {
    return make_from_config(*factory, std::move(info), *identifier.config, context.policy,
                            problems);
  }
  const json::Value* config = value.find("config");
  const json::Value* trainable = config == nullptr ? nullptr : config->find("trainable");
  if (trainable != nullptr && trainable->kind == json::Kind::boolean) {
    info.trainable = info.trainable && trainable->boolean;
  }
  return info.class_name == "Sequential"
             ? make_sequential(std::move(info), *config, json_path + ".config", problems)
             : make_functional(std::move(info), *config, json_path + ".config", problems);
}

std::vector<std::string> layer_classes() {
  std::vector<std::string> names{"Functional", "InputLayer", "Sequential"};
  for (const LayerEntry& entry : layer_entries()) names.emplace_back(entry.class_name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tessera::models
