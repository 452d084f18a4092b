// From a layer's JSON to the layer: the table of all layer classes and plain operations.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/layer.h"

namespace tessera::models {

/// Where a layer stands: what it inherits from the model around it.
struct LayerContext {
  std::string path;       // prefix of variable paths, "" or "sequential"
  std::string call_path;  // prefix of output paths
  DTypePolicy policy;     // of layers that name none
  bool trainable = true;
};

/// Reads one layer, a nested model, or an operation of a Functional graph. An unknown class is one
/// problem that names it and all classes there are; nullptr is returned then.
std::unique_ptr<Layer> make_layer(const json::Value& value, const std::string& json_path,
                                  const LayerContext& context, json::Problems& problems);

/// Makes a layer from its config. `info` is complete.
using LayerFactory = std::function<std::unique_ptr<Layer>(LayerInfo info, json::Arguments& config)>;

struct LayerEntry {
  std::string class_name;
  LayerFactory factory;
};

/// Plain operations (keras.ops) that Functional graphs may contain; nullptr when unknown.
const LayerFactory* find_operation(const std::string& class_name);
std::vector<std::string> operation_classes();

}  // namespace tessera::models
