#include "runtime/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>

#include "base/arguments.h"
#include "base/error.h"
#include "runtime/data/formats.h"

namespace tessera::data {
namespace {

using Tensors = std::vector<Expected::Tensor>;
/// Array name for each input or output.
using Names = std::vector<std::pair<std::string, std::string>>;

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

/// The section, read once for checking and once for opening.
struct Section {
  std::string format;
  std::vector<std::string> paths;
  Names x, y, weights;
  std::vector<std::string> x_columns, y_columns;
  bool y_is_list = false;
  bool header = true;
  std::string separator = ",";
  std::string raw, tokenizer;
  std::int64_t sequence_length = 0;
  double split_begin = 0.0, split_end = 1.0;
  std::int64_t samples = 0;
  struct Drawn {
    std::string name;
    Shape shape;
    std::string distribution;
    std::int64_t high;
  };
  std::vector<Drawn> drawn_x, drawn_y;
};

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
  if (section.separator.size() != 1 || section.separator == "\"") {
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

class Opener {
 public:
  Opener(Section section, const std::string& folder, const Expected& expected, std::uint64_t seed)
      : section_(std::move(section)), folder_(folder), expected_(expected), seed_(seed) {}

  Dataset open() {
    const std::string& format = section_.format;
    if (format == "npz" || format == "safetensors") {
      open_arrays();
    } else if (format == "npy" || format == "idx") {
      open_single_files();
    } else if (format == "csv") {
      open_csv();
    } else if (format == "synthetic") {
      for (const Section::Drawn& draw : section_.drawn_x)
        dataset_.x.push_back({draw.name, drawn(draw, "x/")});
      for (const Section::Drawn& draw : section_.drawn_y)
        dataset_.y.push_back({draw.name, drawn(draw, "y/")});
    } else {
      open_windows();
    }
    finish();
    return std::move(dataset_);
  }

 private:
  std::string resolve(const std::string& path) const {
    return (std::filesystem::path(folder_) / path).lexically_normal().string();
  }
  std::shared_ptr<const Source> drawn(const Section::Drawn& draw, const std::string& prefix) const {
    return synthetic(section_.samples, draw.shape, draw.distribution, draw.high, seed_,
                     fmt::format("{}{}", prefix, draw.name));
  }
  const std::string& output_name() const {
    static const std::string kNone;
    return expected_.outputs.empty() ? kNone : expected_.outputs.front().name;
  }

  void open_arrays() {
    dataset_.shown = resolve(section_.paths.front());
    const std::shared_ptr<const io::ArrayFile> file =
        io::open_array_file(dataset_.shown, Error::Kind::data, section_.format);
    for (const auto& [name, array] : section_.x)
      dataset_.x.push_back({name, open_array(file, array)});
    if (expected_.needs_targets) {
      for (const auto& [name, array] : section_.y)
        dataset_.y.push_back({name, open_array(file, array)});
      for (const auto& [name, array] : section_.weights)
        dataset_.weights.push_back({name, open_array(file, array)});
    }
  }

  void open_single_files() {
    const auto one = [this](const std::string& file) -> std::shared_ptr<const Source> {
      if (section_.format == "idx") return open_idx(resolve(file));
      return open_array(io::open_array_file(resolve(file), Error::Kind::data, "npy"), "");
    };
    for (const auto& [name, file] : section_.x) dataset_.x.push_back({name, one(file)});
    if (expected_.needs_targets) {
      for (const auto& [name, file] : section_.y) dataset_.y.push_back({name, one(file)});
      for (const auto& [name, file] : section_.weights)
        dataset_.weights.push_back({name, one(file)});
    }
    if (!dataset_.x.empty()) dataset_.shown = dataset_.x.front().source->shown();
  }

  void open_csv() {
    const CsvTable table(resolve(section_.paths.front()), section_.separator.front(),
                         section_.header);
    dataset_.shown = table.path();
    const auto index = [&table](const std::string& name) {
      const auto found = std::find(table.columns().begin(), table.columns().end(), name);
      if (found == table.columns().end()) {
        throw Error(Error::Kind::data,
                    fmt::format("{}: has no column \"{}\"{}; its columns are \"{}\"", table.path(),
                                name, json::did_you_mean(name, table.columns()),
                                fmt::join(table.columns(), "\", \"")));
      }
      return static_cast<std::size_t>(found - table.columns().begin());
    };
    std::vector<std::size_t> y;
    for (const std::string& name : section_.y_columns) y.push_back(index(name));
    std::vector<std::size_t> x;
    for (const std::string& name : section_.x_columns) x.push_back(index(name));
    if (section_.x_columns.empty()) {
      for (std::size_t i = 0; i < table.columns().size(); ++i) {
        if (std::find(y.begin(), y.end(), i) == y.end()) x.push_back(i);
      }
    }
    dataset_.x.push_back(
        {expected_.inputs.empty() ? "" : expected_.inputs.front().name, table.select(x, false)});
    if (expected_.needs_targets && !y.empty()) {
      dataset_.y.push_back({output_name(), table.select(y, !section_.y_is_list)});
    }
  }

  void open_windows() {
    std::vector<std::string> paths;
    for (const std::string& path : section_.paths) paths.push_back(resolve(path));
    const Windows windows =
        section_.format == "text"
            ? open_text(paths.front(), section_.tokenizer, section_.sequence_length,
                        section_.split_begin, section_.split_end)
            : open_tokens(paths, section_.raw, section_.sequence_length);
    dataset_.shown = paths.front();
    dataset_.x.push_back(
        {expected_.inputs.empty() ? "" : expected_.inputs.front().name, windows.x});
    if (expected_.needs_targets) dataset_.y.push_back({output_name(), windows.y});
  }

  /// Equal lengths, rows, and shapes that the model takes.
  void finish() {
    if (dataset_.shown.empty()) dataset_.shown = "synthetic data";
    check(!dataset_.x.empty(), "a data set without inputs");
    dataset_.rows = dataset_.x.front().source->rows();
    for (const auto* columns : {&dataset_.x, &dataset_.y, &dataset_.weights}) {
      for (const Column& column : *columns) {
        if (column.source->rows() != dataset_.rows) {
          throw Error(Error::Kind::data,
                      fmt::format("{} has {} rows, {} has {}: lengths must be equal",
                                  dataset_.x.front().source->shown(), dataset_.rows,
                                  column.source->shown(), column.source->rows()));
        }
      }
    }
    if (dataset_.rows == 0)
      throw Error(Error::Kind::data,
                  fmt::format("{}: is empty: no rows", dataset_.x.front().source->shown()));
    for (std::size_t i = 0; i < dataset_.x.size() && i < expected_.inputs.size(); ++i)
      check_shape(dataset_.x[i], expected_.inputs[i]);
  }

  /// As Keras: a trailing dimension of 1 may be missing or too many.
  static void check_shape(const Column& column, const Expected::Tensor& tensor) {
    const Shape& have = column.source->sample_shape();
    const Shape& want = tensor.sample_shape;
    const auto trailing_one = [](const Shape& longer, const Shape& shorter) {
      return longer.rank() == shorter.rank() + 1 && longer.back() == 1 &&
             std::equal(shorter.begin(), shorter.end(), longer.begin());
    };
    if (have == want || trailing_one(have, want) || trailing_one(want, have)) return;
    throw Error(Error::Kind::data,
                fmt::format("{}: samples have the shape {}, the model's input{} takes {}",
                            column.source->shown(), to_string(have),
                            tensor.name.empty() ? "" : fmt::format(" \"{}\"", tensor.name),
                            to_string(want)));
  }

  Section section_;
  std::string folder_;
  const Expected& expected_;
  std::uint64_t seed_;
  Dataset dataset_;
};

std::string shown_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "infinity" : "-infinity";
  return fmt::format("{}", value);
}

}  // namespace

void check_section(const json::Value& section, const std::string& path, const Expected& expected,
                   json::Problems& problems) {
  read_section(section, path, expected, problems);
}

Dataset open_dataset(const json::Value& section, const std::string& folder,
                     const Expected& expected, std::uint64_t seed) {
  json::Problems problems;
  Section read = read_section(section, "data", expected, problems);
  problems.throw_if_any();
  return Opener(std::move(read), folder, expected, seed).open();
}

Dataset rows_of(const Dataset& dataset, std::int64_t begin, std::int64_t count) {
  Dataset part = dataset;
  part.rows = count;
  for (auto* columns : {&part.x, &part.y, &part.weights}) {
    for (Column& column : *columns) column.source = rows_of(column.source, begin, count);
  }
  return part;
}

Violation find_violation(const Source& source, const Demand& demand, std::int64_t begin,
                         std::int64_t end) {
  constexpr std::int64_t kElements = 1 << 16;
  const std::int64_t elements = source.sample_elements();
  if (elements == 0 || (source.integral() && demand.classes == 0)) return {};
  const std::int64_t piece = std::max<std::int64_t>(1, kElements / elements);
  std::vector<double> values;
  std::vector<std::int64_t> rows;
  for (std::int64_t first = begin; first < end; first += piece) {
    rows.clear();
    for (std::int64_t row = first; row < std::min(end, first + piece); ++row) rows.push_back(row);
    values.resize(rows.size() * static_cast<std::size_t>(elements));
    source.read(rows, DType::float64, values.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double value = values[i];
      const bool whole = value == std::trunc(value) && std::isfinite(value);
      std::string wrong;
      if (!std::isfinite(value)) {
        wrong = fmt::format("{} is not a finite number", shown_number(value));
      } else if (demand.classes > 0 && !whole) {
        wrong = fmt::format("{} is not a whole number, a class from 0 to {} was expected", value,
                            demand.classes - 1);
      } else if (demand.classes > 0 &&
                 !(value >= 0 && value < static_cast<double>(demand.classes)) &&
                 !(demand.has_ignored && value == static_cast<double>(demand.ignored))) {
        wrong = fmt::format("{} is out of range: expected 0 to {} ({} classes)", value,
                            demand.classes - 1, demand.classes);
      }
      if (wrong.empty()) continue;
      const std::int64_t row = rows[i / static_cast<std::size_t>(elements)];
      return {row, fmt::format("{}: {}", source.place(row, static_cast<std::int64_t>(i) % elements),
                               wrong)};
    }
  }
  return {};
}

}  // namespace tessera::data
