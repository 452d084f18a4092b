#include "runtime/data/section.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/arguments.h"
#include "runtime/io/array_file.h"

namespace tessera::data {
namespace {

using Tensors = std::vector<Expected::Tensor>;
using Names = Section::Names;

/// "x" is an array's name (one input), or an object from input names to arrays.
Names read_names(json::Arguments& arguments, std::string_view key, const std::string& fallback,
                 const Tensors& tensors) {
  const json::Value* value = arguments.value(key);
  Names names;
  if (value == nullptr || value->is_null() || value->is_string()) {
    const std::string array = value != nullptr && value->is_string() ? value->string : fallback;
    if (array.empty()) return names;
    if (tensors.size() > 1 && (key != "sample_weight")) {
      std::string list;
      for (const Expected::Tensor& tensor : tensors)
        list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", tensor.name);
      arguments.problem(
          value != nullptr ? *value : arguments.object(), key,
          fmt::format("the model has {}: give an object from their names ({}) to arrays",
                      tensors.size(), list));
      return names;
    }
    names.emplace_back(tensors.empty() ? "" : tensors.front().name, array);
    return names;
  }
  if (!value->is_object()) {
    arguments.problem(
        *value, key,
        "expected an array's name or an object from names of inputs or outputs to arrays");
    return names;
  }
  std::vector<std::string> known;
  for (const Expected::Tensor& tensor : tensors) known.push_back(tensor.name);
  for (const json::Member& member : value->object) {
    if (std::find(known.begin(), known.end(), member.key) == known.end()) {
      arguments.problem(member.value, fmt::format("{}.{}", key, member.key),
                        fmt::format("the model has no {} \"{}\"{}", key == "x" ? "input" : "output",
                                    member.key, json::did_you_mean(member.key, known)));
    } else if (!member.value.is_string()) {
      arguments.problem(member.value, fmt::format("{}.{}", key, member.key),
                        "expected an array's name");
    }
  }
  for (const Expected::Tensor& tensor : tensors) {  // the model's order
    if (const json::Value* array = value->find(tensor.name); array != nullptr) {
      names.emplace_back(tensor.name, array->string);
    } else if (key == "x") {
      arguments.problem(*value, key, fmt::format("lacks the model's input \"{}\"", tensor.name));
    }
  }
  return names;
}

void read_arrays(Section& section, json::Arguments& arguments, const Expected& expected) {
  if (section.format == "npy") {
    section.x = read_names(arguments, "x", "x.npy", expected.inputs);
  } else {
    arguments.required("path");
    section.x = read_names(arguments, "x", "x", expected.inputs);
  }
  const std::string y = section.format == "npy" ? (arguments.has("y") ? "y" : "") : "y";
  section.y = read_names(arguments, "y", y, expected.outputs);
  section.weights = read_names(arguments, "sample_weight", "", expected.outputs);
}

void read_csv(Section& section, json::Arguments& arguments) {
  arguments.required("path");
  section.x_columns = arguments.texts("x").value_or(std::vector<std::string>{});
  if (const json::Value* y = arguments.value("y"); y != nullptr && !y->is_null()) {
    section.y_is_list = y->is_array();
    section.y_columns = arguments.texts("y").value_or(std::vector<std::string>{});
  }
  section.header = arguments.boolean("header", true);
  section.separator = arguments.text("separator", ",");
  if (section.separator.size() != 1 ||
      std::string_view("\"\r\n").find(section.separator) != std::string_view::npos) {
    arguments.problem(*arguments.value("separator"), "separator", "expected one character");
    section.separator = ",";
  }
}

/// "shape" of one sample: sizes, or null where the model's input or output of this name says it.
Shape read_shape(json::Arguments& arguments, const Tensors& tensors, const std::string& name) {
  const json::Value* value = arguments.required("shape");
  Shape shape;
  if (value == nullptr) return shape;
  const auto tensor = std::find_if(tensors.begin(), tensors.end(),
                                   [&](const auto& known) { return known.name == name; });
  bool good = value->is_array() && value->array.size() < Shape::kMaxRank;
  for (std::size_t i = 0; good && i < value->array.size(); ++i) {
    const json::Value& size = value->array[i];
    const bool known =
        tensor != tensors.end() && i < tensor->sample_shape.rank() && tensor->sample_shape[i] > 0;
    good = (size.kind == json::Kind::integer && size.integer > 0) || (size.is_null() && known);
    if (good) shape.push_back(size.is_null() ? tensor->sample_shape[i] : size.integer);
  }
  if (!good) {
    arguments.problem(
        *value, "shape",
        "expected an array of sizes of at least 1 (null where the model knows the size)");
    shape = {};
  }
  return shape;
}

void read_drawn(std::vector<Section::Drawn>& drawn, json::Arguments& arguments,
                std::string_view key, const Tensors& tensors) {
  const json::Value* value = arguments.value(key);
  if (value == nullptr || value->is_null()) return;
  const auto read_one = [&](const json::Value& object, const std::string& path,
                            const std::string& name) {
    json::Arguments one(object, path, arguments.problems());
    Section::Drawn draw;
    draw.name = name;
    draw.shape = read_shape(one, tensors, name);
    draw.distribution = one.choice("distribution", "normal", {"normal", "uniform", "integers"});
    draw.high = one.integer("high", 2, 1, std::int64_t{1} << 24U);
    one.finish();
    drawn.push_back(std::move(draw));
  };
  const bool single = value->find("shape") != nullptr || tensors.size() <= 1;
  if (single) {
    read_one(*value, arguments.path_of(key),
             tensors.empty() ? std::string(key) : tensors.front().name);
    return;
  }
  for (const Expected::Tensor& tensor : tensors) {
    if (const json::Value* one = value->find(tensor.name); one != nullptr) {
      read_one(*one, fmt::format("{}.{}", arguments.path_of(key), tensor.name), tensor.name);
    } else if (key == "x") {
      arguments.problem(*value, key, fmt::format("lacks the model's input \"{}\"", tensor.name));
    }
  }
}

/// The bytes of every array that is drawn can be counted.
void refuse_overflow(const Section& section, json::Arguments& arguments) {
  for (const auto* list : {&section.drawn_x, &section.drawn_y}) {
    for (const Section::Drawn& draw : *list) {
      std::vector<std::int64_t> sizes{std::max<std::int64_t>(section.samples, 1)};
      sizes.insert(sizes.end(), draw.shape.begin(), draw.shape.end());
      std::int64_t bytes = 0;
      if (io::declared_bytes(sizes, sizeof(double), bytes)) continue;
      const char* key = list == &section.drawn_x ? "x" : "y";
      arguments.problem(*arguments.value(key), key,
                        fmt::format("{} samples of shape {} are more than memory can hold",
                                    section.samples, to_string(draw.shape)));
    }
  }
}

void read_split(Section& section, json::Arguments& arguments) {
  const auto split = arguments.numbers("split");
  if (!split) return;
  if (split->size() != 2 || (*split)[0] < 0 || (*split)[1] > 1 || (*split)[0] >= (*split)[1]) {
    arguments.problem(*arguments.value("split"), "split",
                      "expected [begin, end] with 0 <= begin < end <= 1");
    return;
  }
  section.split_begin = (*split)[0];
  section.split_end = (*split)[1];
}

}  // namespace

Section read_section(const json::Value& value, const std::string& path, const Expected& expected,
                     json::Problems& problems) {
  Section section;
  json::Arguments arguments(value, path, problems);
  static const std::vector<std::string> kFormats{"npz", "safetensors", "npy",  "csv",
                                                 "idx", "tokens",      "text", "synthetic"};
  const json::Value* format = arguments.required("format");
  if (format == nullptr || !format->is_string() ||
      std::find(kFormats.begin(), kFormats.end(), format->string) == kFormats.end()) {
    if (format != nullptr) section.format = arguments.choice("format", "", kFormats);
    return section;  // keys depend on the format
  }
  section.format = format->string;
  if (section.format == "npz" || section.format == "safetensors" || section.format == "npy") {
    read_arrays(section, arguments, expected);
  } else if (section.format == "csv") {
    read_csv(section, arguments);
  } else if (section.format == "idx") {
    section.x = read_names(arguments, "x", "x.idx", expected.inputs);
    section.y = read_names(arguments, "y", expected.needs_targets ? "y.idx" : "", expected.outputs);
  } else if (section.format == "synthetic") {
    section.samples = arguments.integer("samples", 0, 1);
    if (!arguments.has("samples")) arguments.required("samples");
    read_drawn(section.drawn_x, arguments, "x", expected.inputs);
    read_drawn(section.drawn_y, arguments, "y", expected.outputs);
    if (!arguments.has("x")) arguments.required("x");
    refuse_overflow(section, arguments);
  } else {
    section.sequence_length = arguments.integer("sequence_length", 0, 1);
    if (!arguments.has("sequence_length")) arguments.required("sequence_length");
    if (section.format == "text") {
      arguments.required("path");
      section.tokenizer = arguments.choice("tokenizer", "char", {"char", "byte"});
      read_split(section, arguments);
    } else {
      section.raw = arguments.has("raw") ? arguments.choice("raw", "", {"uint16", "uint32"}) : "";
      if (!arguments.has("raw")) arguments.value("raw");
      section.paths = arguments.texts("paths").value_or(std::vector<std::string>{});
      if (section.paths.empty()) arguments.required("path");
    }
  }
  if (section.format != "npy" && section.format != "idx" && section.format != "synthetic" &&
      section.paths.empty()) {
    section.paths = {arguments.text("path", "")};
  }
  arguments.finish();
  return section;
}

void check_section(const json::Value& section, const std::string& path, const Expected& expected,
                   json::Problems& problems) {
  read_section(section, path, expected, problems);
}

}  // namespace tessera::data
