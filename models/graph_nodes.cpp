#include "models/graph_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace tessera::models {
namespace {

void add_problem(const json::Value& at, const std::string& path, std::string message,
                 json::Problems& problems) {
  problems.add({at.file ? *at.file : "", at.position, path, std::move(message)});
}

// ["dense", 0, 0], perhaps with keyword arguments after it.
bool is_triple(const json::Value& value) {
  return value.is_array() && value.array.size() >= 3 && value.array[0].is_string() &&
         value.array[1].kind == json::Kind::integer && value.array[2].kind == json::Kind::integer;
}

// -1, which no call and no output has, for what is out of any range.
int index_of(const json::Value& value) {
  const bool fits = value.integer >= 0 && value.integer <= std::numeric_limits<int>::max();
  return fits ? static_cast<int>(value.integer) : -1;
}

TensorReference reference_of(const json::Value& triple) {
  return {triple.array[0].string, index_of(triple.array[1]), index_of(triple.array[2]), &triple};
}

bool holds_reference(const NodeArgument& argument) {
  return argument.is_reference ||
         std::any_of(argument.items.begin(), argument.items.end(), holds_reference);
}

NodeArgument make_reference(const json::Value& triple) {
  NodeArgument result;
  result.is_reference = true;
  result.reference = reference_of(triple);
  return result;
}

// `triples`: Keras 2 writes tensors in keyword arguments as bare triples.
NodeArgument read_argument(const json::Value& value, const std::string& path, bool triples,
                           json::Problems& problems) {
  NodeArgument result;
  const json::Value* class_name = value.find("class_name");
  if (class_name != nullptr && class_name->string == "__keras_tensor__") {
    const json::Value* config = value.find("config");
    const json::Value* history = config == nullptr ? nullptr : config->find("keras_history");
    if (history != nullptr && is_triple(*history)) return make_reference(*history);
    add_problem(value, path, "expected keras_history: [layer name, node index, tensor index]",
                problems);
    return result;
  }
  if (triples && is_triple(value)) return make_reference(value);
  for (const json::Value& item : value.array) {
    result.items.push_back(read_argument(item, path, triples, problems));
  }
  if (class_name == nullptr) {
    for (const json::Member& member : value.object) {
      result.items.push_back(read_argument(member.value, path, triples, problems));
      result.keys.push_back(member.key);
    }
  }
  if (!holds_reference(result)) {
    result = {};
    result.constant = &value;
  }
  return result;
}

void read_named(const json::Value& object, const std::string& path, bool triples, LayerNode& node,
                json::Problems& problems) {
  for (const json::Member& member : object.object) {
    node.named.emplace_back(
        member.key,
        read_argument(member.value, json::child_path(path, member.key), triples, problems));
  }
}

LayerNode read_keras3_node(const json::Value& value, const std::string& path,
                           json::Problems& problems) {
  LayerNode node;
  const json::Value* arguments = value.find("args");
  if (arguments != nullptr) {
    for (std::size_t i = 0; i < arguments->array.size(); ++i) {
      node.positional.push_back(
          read_argument(arguments->array[i], json::child_path(path + ".args", i), false, problems));
    }
  }
  if (const json::Value* named = value.find("kwargs")) {
    read_named(*named, path + ".kwargs", false, node, problems);
  }
  return node;
}

// Keras 2: [[name, node, tensor, {kwargs}], ...], or one such entry where a function was called
// with a single tensor. Keyword arguments stand in the first entry.
LayerNode read_keras2_node(const json::Value& value, const std::string& path,
                           json::Problems& problems) {
  LayerNode node;
  NodeArgument first;
  const auto add = [&](const json::Value& entry) {
    if (!is_triple(entry)) {
      add_problem(entry, path, "expected [layer name, node index, tensor index, {arguments}]",
                  problems);
      return;
    }
    first.items.push_back(make_reference(entry));
    if (entry.array.size() > 3 && node.named.empty()) {
      read_named(entry.array[3], path, true, node, problems);
    }
  };
  if (is_triple(value)) {
    add(value);
  } else {
    for (const json::Value& entry : value.array) add(entry);
  }
  if (first.items.empty()) return node;
  if (first.items.size() == 1) first = NodeArgument(first.items.front());
  node.positional.push_back(std::move(first));
  return node;
}

void visit_references(const NodeArgument& argument,
                      const std::function<void(const TensorReference&)>& visit) {
  if (argument.is_reference) visit(argument.reference);
  for (const NodeArgument& item : argument.items) visit_references(item, visit);
}

void collect(const json::Value& value, const std::string& path, Endpoints& result,
             json::Problems& problems) {
  if (is_triple(value)) {
    result.references.push_back(reference_of(value));
  } else if (value.is_array()) {
    for (const json::Value& item : value.array) collect(item, path, result, problems);
  } else {
    add_problem(value, path, "expected [layer name, node index, tensor index]", problems);
  }
}

}  // namespace

std::vector<LayerNode> read_nodes(const json::Value* value, const std::string& path,
                                  json::Problems& problems) {
  std::vector<LayerNode> result;
  if (value == nullptr || value->is_null()) return result;
  if (!value->is_array()) {
    add_problem(*value, path, "expected an array: one entry for each call of the layer", problems);
    return result;
  }
  for (std::size_t i = 0; i < value->array.size(); ++i) {
    const json::Value& node = value->array[i];
    const std::string node_path = json::child_path(path, i);
    if (node.is_object()) {
      result.push_back(read_keras3_node(node, node_path, problems));
    } else if (node.is_array()) {
      result.push_back(read_keras2_node(node, node_path, problems));
    } else {
      add_problem(node, node_path, "expected the arguments of a call", problems);
    }
  }
  return result;
}

Endpoints read_endpoints(const json::Value* value, const std::string& path,
                         const json::Value& model, json::Problems& problems) {
  Endpoints result;
  if (value == nullptr) {
    add_problem(model, path, "missing: the layers that begin or end the graph", problems);
    return result;
  }
  if (!value->is_object()) {
    collect(*value, path, result, problems);
    return result;
  }
  std::vector<const json::Member*> members;
  for (const json::Member& member : value->object) members.push_back(&member);
  std::sort(members.begin(), members.end(),
            [](const auto* a, const auto* b) { return a->key < b->key; });
  for (const json::Member* member : members) {
    const std::size_t before = result.references.size();
    collect(member->value, json::child_path(path, member->key), result, problems);
    const std::size_t added = result.references.size() - before;
    for (std::size_t i = 0; i < added; ++i) {
      result.keys.push_back(added == 1 ? member->key : fmt::format("{}_{}", member->key, i));
    }
  }
  return result;
}

void for_each_reference(const LayerNode& node,
                        const std::function<void(const TensorReference&)>& visit) {
  for (const NodeArgument& argument : node.positional) visit_references(argument, visit);
  for (const auto& entry : node.named) visit_references(entry.second, visit);
}

}  // namespace tessera::models
