#include "runtime/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "runtime/data/formats.h"
#include "runtime/data/section.h"

namespace tessera::data {
namespace {

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
        throw Error(
            Error::Kind::data,
            fmt::format("{}: has no column \"{}\"{}; its columns are \"{}\"", table.path(),
                        json::printable(name), json::did_you_mean(name, table.columns()),
                        json::printable(fmt::format("{}", fmt::join(table.columns(), "\", \"")))));
      }
      if (std::find(found + 1, table.columns().end(), name) != table.columns().end()) {
        throw Error(Error::Kind::data, fmt::format("{}: has the column \"{}\" more than once",
                                                   table.path(), json::printable(name)));
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

}  // namespace

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

}  // namespace tessera::data
