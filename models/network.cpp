#include "models/network.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::models {
namespace {

// Shapes in messages of the first walk show the user's "None", not the batch size of that walk.
std::string without_probe(std::string text) {
  const std::string probe = fmt::format("[{}", kProbeBatch);
  for (std::size_t at = text.find(probe); at != std::string::npos; at = text.find(probe, at)) {
    const std::size_t after = at + probe.size();
    const bool whole = after < text.size() && (text[after] == ',' || text[after] == ']');
    if (whole) text.replace(at, probe.size(), "[None");
    ++at;
  }
  return text;
}

bool lacks_tensor(const Argument& argument) {
  if (argument.constant != nullptr) return false;
  if (argument.tensor.value) return false;
  if (argument.items.empty()) return true;
  return std::any_of(argument.items.begin(), argument.items.end(), lacks_tensor);
}

}  // namespace

std::string name_of_layer(const json::Value& layer) {
  const json::Value* name = layer.find("name");
  if (name == nullptr || !name->is_string()) {
    const json::Value* config = layer.find("config");
    name = config == nullptr ? nullptr : config->find("name");
  }
  return name != nullptr && name->is_string() ? name->string : "";
}

std::string keras_shape(const Shape& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += ", ";
    text += i == 0 && shape[i] == kProbeBatch ? "None" : fmt::format("{}", shape[i]);
  }
  return text + (shape.rank() == 1 ? ",)" : ")");
}

std::vector<Weight> Network::all_weights() const {
  std::vector<Weight> result;
  for (const auto& layer : layers_) {
    if (const auto* network = dynamic_cast<const Network*>(layer.get())) {
      const std::vector<Weight> inner = network->all_weights();
      result.insert(result.end(), inner.begin(), inner.end());
    } else if (layer) {
      result.insert(result.end(), layer->weights().begin(), layer->weights().end());
    }
  }
  return result;
}

std::vector<MaskedTensor> Network::call(Pass& pass, const CallArguments& arguments) {
  std::vector<MaskedTensor> tensors = arguments.tensors();
  const Argument& first = arguments.positional.front();
  if (!first.keys.empty()) {
    // A dictionary: by key, else by the names of the inputs.
    tensors.clear();
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const std::string& key = input_keys_.empty() ? inputs_[i].name : input_keys_[i];
      const auto found = std::find_if(first.keys.begin(), first.keys.end(), [&](const auto& name) {
        return name == key || name == inputs_[i].name;
      });
      if (found == first.keys.end()) fail(fmt::format("called without its input \"{}\"", key));
      tensors.push_back(first.items[static_cast<std::size_t>(found - first.keys.begin())].tensor);
    }
  }
  if (!inputs_.empty() && tensors.size() != inputs_.size()) {
    fail(fmt::format("takes {} inputs, got {}", inputs_.size(), tensors.size()));
  }
  if (const Argument* mask = arguments.find("mask"); mask != nullptr && mask->tensor.value) {
    tensors.front().mask = mask->tensor.value;
  }
  return run(pass, tensors);
}

std::vector<MaskedTensor> Network::call_layer(Layer& layer, Pass& pass,
                                              const CallArguments& arguments) {
  if (pass.store() == nullptr) return layer(pass, arguments);
  bool incomplete = false;
  for (const Argument& argument : arguments.positional) {
    incomplete = incomplete || lacks_tensor(argument);
  }
  for (const auto& [name, argument] : arguments.named) {
    incomplete = incomplete || lacks_tensor(argument);
  }
  if (incomplete) return {};
  try {
    return layer(pass, arguments);
  } catch (const Error& error) {
    if (error.kind != Error::Kind::config) throw;
    const LayerInfo& info = layer.info();
    std::string message = without_probe(error.what());
    if (message.rfind(info.call_path + ": ", 0) == 0) {
      message = message.substr(info.call_path.size() + 2);
    }
    pass.store()->problems().add(
        {info.json->file ? *info.json->file : "", info.json->position, info.json_path,
         fmt::format("layer \"{}\" ({}): {}", info.name, info.class_name, message)});
    return {};
  }
}

LayerRow Network::input_row(const train::TensorSpec& spec, int depth) {
  Shape shape{kProbeBatch};
  for (const std::int64_t size : spec.sample_shape.sizes()) shape.push_back(size);
  return {spec.name, "InputLayer", keras_shape(shape), "-", 0, depth, {}};
}

void Network::add_layer_rows(const Layer& layer, const std::string& connected_to, int depth,
                             std::vector<LayerRow>& rows) {
  LayerRow row;
  row.name = layer.info().name;
  row.class_name = layer.info().class_name;
  for (const graph::ValueType& type : layer.output_types()) {
    row.output_shape += (row.output_shape.empty() ? "" : ", ") + keras_shape(type.shape);
  }
  if (layer.output_types().size() > 1) row.output_shape = "[" + row.output_shape + "]";
  row.connected_to = connected_to;
  row.depth = depth;
  const auto* network = dynamic_cast<const Network*>(&layer);
  // Until the variables are declared their ids are the indices of the weights.
  for (const Weight weight : network != nullptr ? network->all_weights() : layer.weights()) {
    row.variables.push_back(weight.index);
  }
  rows.push_back(std::move(row));
  if (network != nullptr) network->add_rows(rows, depth + 1);
}

train::TensorSpec read_input_spec(const json::Value& shape, const std::string& path,
                                  std::string name, DType dtype, json::Problems& problems) {
  train::TensorSpec spec{std::move(name), {}, dtype, 0};
  const auto problem = [&](const json::Value& at, std::string message) {
    problems.add({at.file ? *at.file : "", at.position, path, std::move(message)});
  };
  if (!shape.is_array() || shape.array.empty() || shape.array.size() > Shape::kMaxRank) {
    problem(shape, fmt::format("expected a shape: an array of 1 to {} sizes, the first of them the "
                               "batch (null)",
                               Shape::kMaxRank));
    return spec;
  }
  for (std::size_t i = 1; i < shape.array.size(); ++i) {
    const json::Value& size = shape.array[i];
    if (size.kind == json::Kind::integer && size.integer >= 0 && size.integer <= kMaxSize) {
      spec.sample_shape.push_back(size.integer);
      continue;
    }
    problem(size, size.is_null()
                      ? fmt::format("dimension {} of input \"{}\" has no size; only the batch may "
                                    "be null",
                                    i, json::printable(spec.name))
                      : std::string("expected a size: a whole number that is not negative"));
    spec.sample_shape.push_back(1);
  }
  try {
    Shape whole = spec.sample_shape;
    if (whole.rank() < Shape::kMaxRank) whole.push_back(kProbeBatch);
    checked_elements(whole.sizes());
  } catch (const Error& error) {
    problem(shape, error.what());
    spec.sample_shape = {};
  }
  return spec;
}

train::TensorSpec read_input_layer(const json::Value& layer, const std::string& path,
                                   json::Problems& problems) {
  static const json::Value kNoConfig = json::make_object();
  const json::Value* found = layer.find("config");
  json::Arguments config(found == nullptr ? kNoConfig : *found, path + ".config", problems);
  config.ignore_rest();
  const DType dtype = read_input_dtype(config.value("dtype"), config.path_of("dtype"), problems);
  std::string name = name_of_layer(layer);
  if (name.empty()) name = "input_layer";
  for (const char* key : {"batch_shape", "batch_input_shape"}) {
    const json::Value* shape = config.value(key);
    if (shape != nullptr && !shape->is_null()) {
      return read_input_spec(*shape, config.path_of(key), std::move(name), dtype, problems);
    }
  }
  config.required("batch_shape");
  return {std::move(name), {}, dtype, 0};
}

}  // namespace tessera::models
