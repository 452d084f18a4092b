// Where samples come from: rows of equal shape, read by index.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace tessera::data {

/// Rows 0..rows-1 of one array. Thread-safe for reading.
class Source {
 public:
  virtual ~Source() = default;
  const Shape& sample_shape() const { return sample_shape_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t sample_elements() const { return sample_shape_.elements(); }
  /// True where the file holds integers (labels, ids, pixels).
  bool integral() const { return integral_; }
  /// The given rows, one after another, converted to `to`.
  virtual void read(std::span<const std::int64_t> rows, DType to, void* out) const = 0;
  /// Where an element stands, for messages: `train.npz: array "x": row 8, column 2`, `train.csv:6:
  /// column 3 ("width")`.
  virtual std::string place(std::int64_t row, std::int64_t element) const = 0;
  /// The file and array, for messages about the whole.
  virtual std::string shown() const = 0;

 protected:
  Shape sample_shape_;
  std::int64_t rows_ = 0;
  bool integral_ = false;
};

/// Values held in memory, one array of doubles or of floats (from CSV, text, IDX, generated ones,
/// programs).
class MemorySource : public Source {
 public:
  MemorySource(std::vector<float> values, std::int64_t rows, Shape sample_shape, bool integral,
               std::string shown);
  void read(std::span<const std::int64_t> rows, DType to, void* out) const override;
  std::string place(std::int64_t row, std::int64_t element) const override;
  std::string shown() const override { return shown_; }

 private:
  std::vector<float> values_;
  std::string shown_;
};

/// Rows begin..begin+count-1 of another source.
std::shared_ptr<const Source> rows_of(std::shared_ptr<const Source> source, std::int64_t begin,
                                      std::int64_t count);

/// One weight a sample from integer class labels (the last position of a one-hot row wins by its
/// largest entry), times `weight` where given: Keras's class_weight.
std::shared_ptr<const Source> class_weights(std::shared_ptr<const Source> labels,
                                            std::vector<std::pair<std::int64_t, double>> weights,
                                            std::shared_ptr<const Source> weight);

}  // namespace tessera::data
