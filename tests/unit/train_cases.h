// Tensors of the cases of losses and metrics.
#pragma once

#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "runtime/graph/op.h"

namespace tessera::train::cases {

struct Data {
  Shape shape;
  DType dtype;
  std::vector<double> values;

  graph::ValueType type() const { return {shape, dtype}; }
};

inline Data floats(Shape shape, std::vector<double> values) {
  return {shape, DType::float32, std::move(values)};
}
inline Data integers(Shape shape, std::vector<double> values) {
  return {shape, DType::int32, std::move(values)};
}

}  // namespace tessera::train::cases
