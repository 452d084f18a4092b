// JSON of small models, as Keras writes it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera::models::test {

using Strings = std::vector<std::string>;

// {"module": "keras.layers", "class_name": ..., "config": {"name": ..., ...}}
inline std::string layer(const std::string& class_name, const std::string& name,
                         const std::string& rest = "") {
  return R"({"module": "keras.layers", "class_name": ")" + class_name +
         R"(", "config": {"name": ")" + name + "\"" +
         (rest.empty() ? rest : fmt::format(", {}", rest)) + R"(}, "registered_name": null})";
}

inline std::string join(const Strings& parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += ", ";
    text += part;
  }
  return text;
}

inline std::string sequential(const std::string& name, const Strings& layers,
                              const std::string& rest = "") {
  return R"({"module": "keras", "class_name": "Sequential", "config": {"name": ")" + name +
         R"(", )" + (rest.empty() ? rest : fmt::format("{}, ", rest)) + R"("layers": [)" +
         join(layers) + "]}}";
}

inline std::string input(const std::string& name, const std::string& shape,
                         const std::string& dtype = "float32") {
  return layer("InputLayer", name, "\"batch_shape\": " + shape + ", \"dtype\": \"" + dtype + "\"");
}

inline std::string tensor(const std::string& name, int node = 0) {
  return R"({"class_name": "__keras_tensor__", "config": {"keras_history": [")" + name + "\", " +
         std::to_string(node) + ", 0]}}";
}

// `layer` with its calls: each a list of positional arguments.
inline std::string called(std::string layer, const Strings& calls) {
  Strings nodes;
  for (const std::string& call : calls) {
    nodes.push_back(R"({"args": [)" + call + R"(], "kwargs": {}})");
  }
  layer.pop_back();
  return layer + R"(, "inbound_nodes": [)" + join(nodes) + "]}";
}

inline std::string functional(const std::string& name, const Strings& layers,
                              const std::string& inputs, const std::string& outputs,
                              const std::string& rest = "") {
  return R"({"module": "keras.src.models.functional", "class_name": "Functional",
             "config": {"name": ")" +
         name + R"(", )" + (rest.empty() ? rest : fmt::format("{}, ", rest)) + R"("layers": [)" +
         join(layers) + R"(], "input_layers": )" + inputs + R"(, "output_layers": )" + outputs +
         "}}";
}

inline const std::string kX = "[\"x\", 0, 0]";

// A Sequential "m" of layers given as "ClassName", config members.
inline std::string model_of(const std::string& shape,
                            const std::vector<std::pair<std::string, std::string>>& layers,
                            const std::string& dtype = "float32") {
  std::string text = R"({"class_name": "Sequential", "config": {"name": "m", "layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "dtype": ")" +
                     dtype + R"(", "batch_shape": )" + shape + "}}";
  int index = 0;
  for (const auto& [class_name, config] : layers) {
    text += R"(, {"class_name": ")" + class_name + R"(", "config": {"name": "l)" +
            std::to_string(index++) + "\"" + (config.empty() ? "" : ", " + config) + "}}";
  }
  return text + "]}}";
}

}  // namespace tessera::models::test
