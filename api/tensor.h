// A global tensor: shape, type, layout, and this rank's part in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "api/distribution.h"
#include "base/dtype.h"

namespace tessera {

class Tensor {
 public:
  /// Whole on every rank, row-major. Throws config when the number of values does not fit the
  /// shape.
  static Tensor from(std::span<const float> values, std::vector<std::int64_t> shape);
  static Tensor from(std::span<const double> values, std::vector<std::int64_t> shape);
  static Tensor from(std::span<const std::int32_t> values, std::vector<std::int64_t> shape);
  static Tensor from(std::span<const std::int64_t> values, std::vector<std::int64_t> shape);
  static Tensor from(std::span<const std::uint8_t> values, std::vector<std::int64_t> shape);
  /// Each rank passes its own part of the global tensor in that layout.
  static Tensor from_local(std::span<const float> values, std::vector<std::int64_t> shape,
                           distribution::TensorLayout layout);

  const std::vector<std::int64_t>& shape() const;  // global
  DType dtype() const;
  const distribution::TensorLayout& layout() const;
  std::vector<std::int64_t> local_shape() const;
  std::vector<std::int64_t> offset() const;  // where this rank's part begins
  std::vector<float> local() const;          // this rank's part, converted to float
  std::vector<float> to_host() const;  // the whole, on every rank (collective where it is split)

  struct Data;  // defined inside the library
  explicit Tensor(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  const Data& data() const { return *data_; }

 private:
  std::shared_ptr<const Data> data_;
};

}  // namespace tessera
