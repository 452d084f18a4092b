#include "api/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/json.h"

namespace tessera {
namespace {

using Members = std::vector<std::pair<std::string, json::Value>>;

std::string snake_case(const std::string& name) {
  std::string snake;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool upper = name[i] >= 'A' && name[i] <= 'Z';
    const bool after_lower = i > 0 && !(name[i - 1] >= 'A' && name[i - 1] <= 'Z');
    const bool before_lower = i + 1 < name.size() && name[i + 1] >= 'a' && name[i + 1] <= 'z';
    if (upper && i > 0 && (after_lower || before_lower)) snake.push_back('_');
    snake.push_back(upper ? static_cast<char>(name[i] - 'A' + 'a') : name[i]);
  }
  return snake;
}

/// Keras counts names over the whole process: "dense", "dense_1", ...
std::string automatic_name(const std::string& class_name) {
  thread_local std::map<std::string, int> counts;
  const std::string stem = snake_case(class_name);
  const int count = counts[stem]++;
  return count == 0 ? stem : fmt::format("{}_{}", stem, count);
}

json::Value integers(const std::vector<std::int64_t>& values) {
  std::vector<json::Value> items;
  for (const std::int64_t value : values) items.push_back(json::make(value));
  return json::make_array(std::move(items));
}

json::Value batch_shape(const std::vector<std::int64_t>& shape) {
  json::Value list = integers(shape);
  list.array.insert(list.array.begin(), json::make_null());
  return list;
}

Object to_object(json::Value value) {
  return Object(std::make_shared<const json::Value>(std::move(value)));
}

void add(Members& members, const char* key, const Object& object) {
  members.emplace_back(key, object.value() == nullptr ? json::make_null() : *object.value());
}

Layer make_layer(const std::string& class_name, Members members, const std::string& name) {
  if (!name.empty()) members.emplace_back("name", json::make(name));
  return Layer(class_name, to_object(json::make_object(std::move(members))));
}

}  // namespace

struct Layer::Data {
  std::string class_name;
  std::string name;
  json::Value config;
};

struct Value::Data {
  std::shared_ptr<const Layer::Data> layer;
  std::vector<std::shared_ptr<const Value::Data>> inputs;
  bool listed = false;  // the layer was called with a list
};

Layer::Layer(std::string class_name, Object config) {
  auto data = std::make_shared<Data>();
  data->config = config.value() != nullptr && config.value()->is_object() ? *config.value()
                                                                          : json::make_object();
  if (const json::Value* given = data->config.find("name");
      given != nullptr && given->is_string()) {
    data->name = given->string;
  } else {
    data->name = automatic_name(class_name);
    data->config.object.push_back({"name", {}, json::make(data->name)});
  }
  data->class_name = std::move(class_name);
  data_ = std::move(data);
}

Value Layer::operator()(const Value& input) const {
  return Value(std::make_shared<Value::Data>(Value::Data{data_, {input.data()}, false}));
}

Value Layer::operator()(const std::vector<Value>& inputs) const {
  auto data = std::make_shared<Value::Data>(Value::Data{data_, {}, true});
  for (const Value& input : inputs) data->inputs.push_back(input.data());
  return Value(std::move(data));
}

Layer Dense(DenseOptions options) {
  Members members{{"units", json::make(options.units)}, {"use_bias", json::make(options.use_bias)}};
  add(members, "activation", options.activation);
  add(members, "kernel_initializer", options.kernel_initializer);
  add(members, "bias_initializer", options.bias_initializer);
  add(members, "kernel_regularizer", options.kernel_regularizer);
  return make_layer("Dense", std::move(members), options.name);
}

Layer Activation(std::string activation, std::string name) {
  return make_layer("Activation", {{"activation", json::make(std::move(activation))}}, name);
}
Layer Dropout(double rate, std::string name) {
  return make_layer("Dropout", {{"rate", json::make(rate)}}, name);
}
Layer Flatten(std::string name) { return make_layer("Flatten", {}, name); }
Layer Embedding(EmbeddingOptions options) {
  return make_layer("Embedding",
                    {{"input_dim", json::make(options.input_dim)},
                     {"output_dim", json::make(options.output_dim)},
                     {"mask_zero", json::make(options.mask_zero)}},
                    options.name);
}
Layer LayerNormalization(double epsilon, std::string name) {
  return make_layer("LayerNormalization", {{"epsilon", json::make(epsilon)}}, name);
}
Layer BatchNormalization(double momentum, double epsilon, std::string name) {
  return make_layer("BatchNormalization",
                    {{"momentum", json::make(momentum)}, {"epsilon", json::make(epsilon)}}, name);
}
Layer InputLayer(std::vector<std::int64_t> shape, std::string dtype, std::string name) {
  return make_layer("InputLayer",
                    {{"batch_shape", batch_shape(shape)}, {"dtype", json::make(std::move(dtype))}},
                    name);
}

Value Input(std::vector<std::int64_t> shape, std::string dtype, std::string name) {
  const Layer layer = InputLayer(std::move(shape), std::move(dtype), std::move(name));
  return Value(std::make_shared<Value::Data>(Value::Data{layer.data(), {}, false}));
}

Model Sequential(std::vector<Layer> layers, std::string name) {
  std::vector<json::Value> items;
  for (const Layer& layer : layers) {
    items.push_back(json::make_object(
        {{"class_name", json::make(layer.data()->class_name)}, {"config", layer.data()->config}}));
  }
  if (name.empty()) name = automatic_name("Sequential");
  const json::Value model = json::make_object(
      {{"class_name", json::make("Sequential")},
       {"config", json::make_object({{"name", json::make(std::move(name))},
                                     {"layers", json::make_array(std::move(items))}})}});
  return Model::from_json(json::dump(model, -1, 17));
}

namespace {

/// Writes values as the layers and calls of a Functional model's JSON.
class FunctionalWriter {
 public:
  /// Number of the call that makes a value; calls are numbered per layer in order of first visit.
  std::int64_t visit(const std::shared_ptr<const Value::Data>& value) {
    if (const auto known = numbers_.find(value.get()); known != numbers_.end())
      return known->second;
    std::vector<json::Value> tensors;
    for (const auto& input : value->inputs) {
      const std::int64_t call = visit(input);
      tensors.push_back(json::make_object(
          {{"class_name", json::make("__keras_tensor__")},
           {"config",
            json::make_object({{"keras_history",
                                json::make_array({json::make(input->layer->name), json::make(call),
                                                  json::make(std::int64_t{0})})}})}}));
    }
    Entry& entry = entry_of(value->layer);
    const auto number = static_cast<std::int64_t>(entry.calls.size());
    numbers_.emplace(value.get(), number);
    if (!value->inputs.empty()) {
      json::Value list = json::make_array(std::move(tensors));
      json::Value args = value->listed ? json::make_array({std::move(list)}) : std::move(list);
      entry.calls.push_back(
          json::make_object({{"args", std::move(args)}, {"kwargs", json::make_object()}}));
    }
    return number;
  }

  json::Value reference(const Value& value) {
    const std::int64_t call = visit(value.data());
    return json::make_array(
        {json::make(value.data()->layer->name), json::make(call), json::make(std::int64_t{0})});
  }

  json::Value layers() const {
    std::vector<json::Value> items;
    for (const Entry& entry : entries_) {
      items.push_back(json::make_object({{"class_name", json::make(entry.layer->class_name)},
                                         {"config", entry.layer->config},
                                         {"name", json::make(entry.layer->name)},
                                         {"inbound_nodes", json::make_array(entry.calls)}}));
    }
    return json::make_array(std::move(items));
  }

 private:
  struct Entry {
    std::shared_ptr<const Layer::Data> layer;
    std::vector<json::Value> calls;
  };
  Entry& entry_of(const std::shared_ptr<const Layer::Data>& layer) {
    for (Entry& entry : entries_) {
      if (entry.layer == layer) return entry;
    }
    entries_.push_back({layer, {}});
    return entries_.back();
  }

  std::vector<Entry> entries_;
  std::map<const Value::Data*, std::int64_t> numbers_;
};

json::Value references(FunctionalWriter& writer, const std::vector<Value>& values) {
  if (values.size() == 1) return writer.reference(values.front());
  std::vector<json::Value> list;
  for (const Value& value : values) list.push_back(writer.reference(value));
  return json::make_array(std::move(list));
}

}  // namespace

Model Functional(std::vector<Value> inputs, std::vector<Value> outputs, std::string name) {
  FunctionalWriter writer;
  json::Value input_layers = references(writer, inputs);
  json::Value output_layers = references(writer, outputs);
  if (name.empty()) name = automatic_name("Functional");
  const json::Value model = json::make_object(
      {{"class_name", json::make("Functional")},
       {"config", json::make_object({{"name", json::make(std::move(name))},
                                     {"layers", writer.layers()},
                                     {"input_layers", std::move(input_layers)},
                                     {"output_layers", std::move(output_layers)}})}});
  return Model::from_json(json::dump(model, -1, 17));
}

}  // namespace tessera
