// Sequential and Functional models, which are layers too when they are nested.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/layer_table.h"
#include "models/model.h"

namespace tessera::models {

/// A model as a graph of layers.
class Network : public Layer {
 public:
  using Layer::Layer;

  /// Specs of the inputs; a nested Sequential may have none and takes what it is called with.
  const std::vector<train::TensorSpec>& inputs() const { return inputs_; }
  /// Names of the outputs as metric prefixes use them.
  virtual std::vector<std::string> output_names() const = 0;
  virtual std::vector<MaskedTensor> run(Pass& pass, const std::vector<MaskedTensor>& inputs) = 0;
  /// One row per layer, those of nested models after their model, one deeper.
  virtual void add_rows(std::vector<LayerRow>& rows, int depth) const = 0;
  /// Layers in order, without inputs.
  const std::vector<std::unique_ptr<Layer>>& layers() const { return layers_; }

  /// All weights, nested models included.
  std::vector<Weight> all_weights() const;

 protected:
  std::vector<MaskedTensor> call(Pass& pass, const CallArguments& arguments) override;
  bool casts_inputs() const override { return false; }

  /// Calls a layer. On the first walk a configuration error becomes a problem placed at the layer,
  /// and layers that lack an input because of another one's error are left out (empty result).
  static std::vector<MaskedTensor> call_layer(Layer& layer, Pass& pass,
                                              const CallArguments& arguments);
  static LayerRow input_row(const train::TensorSpec& spec, int depth);
  /// Adds the row of a layer, and of its layers where it is a model.
  static void add_layer_rows(const Layer& layer, const std::string& connected_to, int depth,
                             std::vector<LayerRow>& rows);

  std::vector<train::TensorSpec> inputs_;
  /// Keys of the inputs where they are a dictionary, in the order of `inputs_`.
  std::vector<std::string> input_keys_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

/// Reads "Sequential", "Functional" or "Model".
std::unique_ptr<Network> make_sequential(LayerInfo info, const json::Value& config,
                                         const std::string& config_path, json::Problems& problems);
std::unique_ptr<Network> make_functional(LayerInfo info, const json::Value& config,
                                         const std::string& config_path, json::Problems& problems);

/// The spec of an InputLayer's config (or of any layer that carries "batch_input_shape").
/// `shape` is the whole shape with the batch dimension.
train::TensorSpec read_input_spec(const json::Value& shape, const std::string& path,
                                  std::string name, DType dtype, json::Problems& problems);

/// The spec of an InputLayer object.
train::TensorSpec read_input_layer(const json::Value& layer, const std::string& path,
                                   json::Problems& problems);

/// Batch size of the first walk, which only checks and builds. Large and prime, so that no other
/// dimension is likely to equal it.
inline constexpr std::int64_t kProbeBatch = 1009;

/// Name of a layer: of the object (Functional graphs) or of its config; "" when there is none.
std::string name_of_layer(const json::Value& layer);

/// "(None, 8)", with None for the batch dimension.
std::string keras_shape(const Shape& shape);

}  // namespace tessera::models
