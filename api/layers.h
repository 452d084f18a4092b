// Building models in code: layers as Keras names them, Sequential and Functional.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/model.h"

namespace tessera {

/// The result of a layer in a functional model.
class Value {
 public:
  struct Data;  // defined inside the library
  explicit Value(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  const std::shared_ptr<const Data>& data() const { return data_; }

 private:
  std::shared_ptr<const Data> data_;
};

/// Any layer: Keras's class name and its config as JSON text ({} for defaults). Names are made as
/// Keras makes them ("dense", "dense_1", ...) where the config has none. Calling one layer twice
/// shares its weights.
class Layer {
 public:
  explicit Layer(std::string class_name, Object config = {});
  Value operator()(const Value& input) const;
  Value operator()(const std::vector<Value>& inputs) const;  // merging layers

  struct Data;  // defined inside the library
  const std::shared_ptr<const Data>& data() const { return data_; }

 private:
  std::shared_ptr<const Data> data_;
};

struct DenseOptions {
  std::int64_t units = 1;
  Object activation = {};
  bool use_bias = true;
  Object kernel_initializer = "glorot_uniform";
  Object bias_initializer = "zeros";
  Object kernel_regularizer = {};
  std::string name = {};
};
Layer Dense(DenseOptions options);
Layer Activation(std::string activation, std::string name = "");
Layer Dropout(double rate, std::string name = "");
Layer Flatten(std::string name = "");
struct EmbeddingOptions {
  std::int64_t input_dim = 1;
  std::int64_t output_dim = 1;
  bool mask_zero = false;
  std::string name = {};
};
Layer Embedding(EmbeddingOptions options);
Layer LayerNormalization(double epsilon = 1e-3, std::string name = "");
Layer BatchNormalization(double momentum = 0.99, double epsilon = 1e-3, std::string name = "");
/// First layer of a Sequential: the shape of one sample.
Layer InputLayer(std::vector<std::int64_t> shape, std::string dtype = "float32",
                 std::string name = "");

/// An input of a functional model: the shape of one sample.
Value Input(std::vector<std::int64_t> shape, std::string dtype = "float32", std::string name = "");

Model Sequential(std::vector<Layer> layers, std::string name = "");
Model Functional(std::vector<Value> inputs, std::vector<Value> outputs, std::string name = "");

}  // namespace tessera
