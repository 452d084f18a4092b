#include "runtime/data/source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "runtime/io/array_file.h"

namespace tessera::data {
namespace {

class RowsSource : public Source {
 public:
  RowsSource(std::shared_ptr<const Source> source, std::int64_t begin, std::int64_t count)
      : source_(std::move(source)), begin_(begin) {
    sample_shape_ = source_->sample_shape();
    rows_ = count;
    integral_ = source_->integral();
  }
  void read(std::span<const std::int64_t> rows, DType to, void* out) const override {
    std::vector<std::int64_t> moved(rows.begin(), rows.end());
    for (std::int64_t& row : moved) row += begin_;
    source_->read(moved, to, out);
  }
  std::string place(std::int64_t row, std::int64_t element) const override {
    return source_->place(row + begin_, element);
  }
  std::string shown() const override { return source_->shown(); }

 private:
  std::shared_ptr<const Source> source_;
  std::int64_t begin_;
};

class ClassWeightSource : public Source {
 public:
  ClassWeightSource(std::shared_ptr<const Source> labels,
                    std::vector<std::pair<std::int64_t, double>> weights,
                    std::shared_ptr<const Source> weight)
      : labels_(std::move(labels)), weights_(std::move(weights)), weight_(std::move(weight)) {
    rows_ = labels_->rows();
    if (weight_ != nullptr) sample_shape_ = weight_->sample_shape();
  }
  void read(std::span<const std::int64_t> rows, DType to, void* out) const override {
    const auto classes = static_cast<std::size_t>(labels_->sample_elements());
    const auto per_row = static_cast<std::size_t>(sample_elements());
    std::vector<double> labels(rows.size() * classes);
    labels_->read(rows, DType::float64, labels.data());
    std::vector<double> values(rows.size() * per_row, 1.0);
    if (weight_ != nullptr) weight_->read(rows, DType::float64, values.data());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double* first = labels.data() + i * classes;
      const auto label = classes == 1 ? static_cast<std::int64_t>(*first)
                                      : std::max_element(first, first + classes) - first;
      for (const auto& [known, factor] : weights_) {
        if (known != label) continue;
        for (std::size_t j = 0; j < per_row; ++j) values[i * per_row + j] *= factor;
      }
    }
    io::convert(io::FileType::float64, reinterpret_cast<const std::byte*>(values.data()), to, out,
                static_cast<std::int64_t>(values.size()));
  }
  std::string place(std::int64_t row, std::int64_t element) const override {
    return labels_->place(row, element);
  }
  std::string shown() const override { return labels_->shown(); }

 private:
  std::shared_ptr<const Source> labels_;
  std::vector<std::pair<std::int64_t, double>> weights_;
  std::shared_ptr<const Source> weight_;
};

}  // namespace

MemorySource::MemorySource(std::vector<float> values, std::int64_t rows, Shape sample_shape,
                           bool integral, std::string shown)
    : values_(std::move(values)), shown_(std::move(shown)) {
  sample_shape_ = sample_shape;
  rows_ = rows;
  integral_ = integral;
  check(static_cast<std::int64_t>(values_.size()) == rows * sample_elements(),
        "values do not fit the shape");
}

void MemorySource::read(std::span<const std::int64_t> rows, DType to, void* out) const {
  const std::int64_t elements = sample_elements();
  auto* target = static_cast<std::byte*>(out);
  for (const std::int64_t row : rows) {
    io::convert(io::FileType::float32,
                reinterpret_cast<const std::byte*>(values_.data() + row * elements), to, target,
                elements);
    target += static_cast<std::size_t>(elements) * size_of(to);
  }
}

std::string MemorySource::place(std::int64_t row, std::int64_t element) const {
  return sample_elements() == 1 ? fmt::format("{}: row {}", shown_, row)
                                : fmt::format("{}: row {}, column {}", shown_, row, element);
}

std::shared_ptr<const Source> rows_of(std::shared_ptr<const Source> source, std::int64_t begin,
                                      std::int64_t count) {
  return std::make_shared<RowsSource>(std::move(source), begin, count);
}

std::shared_ptr<const Source> class_weights(std::shared_ptr<const Source> labels,
                                            std::vector<std::pair<std::int64_t, double>> weights,
                                            std::shared_ptr<const Source> weight) {
  return std::make_shared<ClassWeightSource>(std::move(labels), std::move(weights),
                                             std::move(weight));
}

}  // namespace tessera::data
