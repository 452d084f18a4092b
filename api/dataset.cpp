#include <fmt/format.h>

#include <algorithm>

#include "api/job.h"
#include "api/model_data.h"
#include "api/tensor_data.h"
#include "runtime/io/array_file.h"

namespace tessera {
namespace {

/// A tensor as rows: every rank reads the whole tensor's rows it needs from host memory.
class TensorSource : public data::Source {
 public:
  TensorSource(const Tensor& tensor, std::string shown)
      : values_(tensor.to_host()), shown_(std::move(shown)) {
    const std::vector<std::int64_t>& shape = tensor.shape();
    if (shape.empty())
      throw Error(Error::Kind::data,
                  fmt::format("{}: the first dimension must count the samples", shown_));
    rows_ = shape[0];
    sample_shape_ = Shape(std::span(shape).subspan(1));
    integral_ = !is_floating(tensor.dtype());
  }
  void read(std::span<const std::int64_t> rows, DType to, void* out) const override {
    const std::int64_t elements = sample_elements();
    auto* target = static_cast<std::byte*>(out);
    for (const std::int64_t row : rows) {
      io::convert(io::FileType::float32,
                  reinterpret_cast<const std::byte*>(values_.data() + row * elements), to, target,
                  elements);
      target += static_cast<std::size_t>(elements) * size_of(to);
    }
  }
  std::string place(std::int64_t row, std::int64_t element) const override {
    return fmt::format("{}: row {}, column {}", shown_, row, element);
  }
  std::string shown() const override { return shown_; }

 private:
  std::vector<float> values_;
  std::string shown_;
};

/// The smallest row over all ranks wins, so that every number of ranks gives the same message.
void throw_first(const std::vector<data::Violation>& found) {
  std::string mine;
  for (const data::Violation& violation : found) {
    if (violation.row < 0) continue;
    mine = fmt::format("{:020d}{}", violation.row, violation.message);
    break;
  }
  std::string first;
  for (const std::string& text : comm::gather_texts(job().all(), mine)) {
    if (!text.empty() && (first.empty() || text < first)) first = text;
  }
  if (!first.empty()) throw Error(Error::Kind::data, first.substr(20));
}

/// Each rank looks at its share of the rows.
void check_values(const data::Source& source, const data::Demand& demand) {
  const layouts::Interval share = layouts::balanced_part(source.rows(), job().size(), job().rank());
  throw_first({data::find_violation(source, demand, share.begin, share.begin + share.size)});
}

}  // namespace

data::Expected expected_of(const train::ModelInterface& model, bool with_targets) {
  data::Expected expected;
  for (const train::TensorSpec& input : model.inputs)
    expected.inputs.push_back({input.name, input.sample_shape, input.limit});
  for (const train::TensorSpec& output : model.outputs)
    expected.outputs.push_back({output.name, output.sample_shape, 0});
  expected.needs_targets = with_targets;
  return expected;
}

data::Dataset Dataset::Data::open(const train::ModelInterface& model, bool with_targets) const {
  data::Dataset dataset;
  if (arrays) {
    dataset.shown = "the arrays";
    const auto add = [](std::vector<data::Column>& columns, const std::vector<Tensor>& tensors,
                        const std::vector<train::TensorSpec>& specs, std::string_view what) {
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const std::string name = i < specs.size() ? specs[i].name : std::to_string(i);
        columns.push_back(
            {name, std::make_shared<TensorSource>(tensors[i], fmt::format("{}[{}]", what, i))});
      }
    };
    add(dataset.x, arrays->x, model.inputs, "x");
    if (with_targets) add(dataset.y, arrays->y, model.outputs, "y");
    if (with_targets) add(dataset.weights, arrays->sample_weight, model.outputs, "sample_weight");
    if (dataset.x.empty()) throw Error(Error::Kind::data, "a data set without inputs");
    dataset.rows = dataset.x.front().source->rows();
    for (const auto* columns : {&dataset.x, &dataset.y, &dataset.weights}) {
      for (const data::Column& column : *columns) {
        if (column.source->rows() == dataset.rows) continue;
        throw Error(Error::Kind::data, fmt::format("x has {} rows, {} has {}", dataset.rows,
                                                   column.source->shown(), column.source->rows()));
      }
    }
  } else {
    dataset = data::open_dataset(*section, folder.string(), expected_of(model, with_targets),
                                 random_seed());
  }
  return dataset;
}

void check_data(const data::Dataset& dataset, const train::ModelInterface& model,
                const train::CompiledTraining* training) {
  for (std::size_t i = 0; i < dataset.x.size(); ++i) {
    const std::int64_t limit = i < model.inputs.size() ? model.inputs[i].limit : 0;
    check_values(*dataset.x[i].source, {.classes = limit});
  }
  for (const data::Column& column : dataset.y) {
    data::Demand demand;
    for (std::size_t o = 0;
         training != nullptr && o < model.outputs.size() && o < training->losses.losses.size();
         ++o) {
      const train::Loss* loss = training->losses.losses[o].get();
      if (loss == nullptr || model.outputs[o].name != column.name) continue;
      demand.classes = loss->classes(model.outputs[o].sample_shape);
      if (const auto ignored = loss->ignored_class()) {
        demand.has_ignored = true;
        demand.ignored = *ignored;
      }
    }
    check_values(*column.source, demand);
  }
  for (const data::Column& column : dataset.weights) check_values(*column.source, {});
}

std::int64_t Dataset::rows(const Model& model) const { return data_->open(model.data().interface, false).rows; }

Dataset Dataset::from(Arrays arrays) {
  auto data = std::make_shared<Data>();
  data->arrays = std::move(arrays);
  return Dataset(std::move(data));
}
Dataset Dataset::from(Tensor x, Tensor y) {
  return from(Arrays{{std::move(x)}, {std::move(y)}, {}});
}
Dataset Dataset::from(Tensor x) { return from(Arrays{{std::move(x)}, {}, {}}); }
Dataset Dataset::from(Object section, std::filesystem::path folder) {
  if (section.value() == nullptr)
    throw Error(Error::Kind::config, "a data set needs a description");
  auto data = std::make_shared<Data>();
  data->section = std::make_shared<const json::Value>(*section.value());
  data->folder = std::move(folder);
  return Dataset(std::move(data));
}

}  // namespace tessera
