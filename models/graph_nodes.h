// The calls of layers in a Functional model's JSON: Keras 3's form and Keras 2's nested lists.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace tessera::models {

/// A tensor of the graph: output `tensor` of call `node` of a layer.
struct TensorReference {
  std::string layer;
  int node = 0;
  int tensor = 0;
  const json::Value* at = nullptr;
};

/// One argument as written: a reference, a constant, or a list (`keys`: a dictionary).
struct NodeArgument {
  bool is_reference = false;
  TensorReference reference;
  const json::Value* constant = nullptr;
  std::vector<NodeArgument> items;
  std::vector<std::string> keys;
};

/// One call of a layer.
struct LayerNode {
  std::vector<NodeArgument> positional;
  std::vector<std::pair<std::string, NodeArgument>> named;
};

/// Reads a layer object's "inbound_nodes"; a missing list is empty.
std::vector<LayerNode> read_nodes(const json::Value* value, const std::string& path,
                                  json::Problems& problems);

/// Reads "input_layers" or "output_layers": one triple, a list, or a dictionary. `keys` is empty
/// but for dictionaries, whose entries come in the order of their keys, as Keras flattens them.
struct Endpoints {
  std::vector<TensorReference> references;
  std::vector<std::string> keys;
};
Endpoints read_endpoints(const json::Value* value, const std::string& path,
                         const json::Value& model, json::Problems& problems);

void for_each_reference(const LayerNode& node,
                        const std::function<void(const TensorReference&)>& visit);

}  // namespace tessera::models
