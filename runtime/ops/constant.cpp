// Constant: values that a graph holds, for small tables that a model's config gives.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <variant>

#include "base/error.h"
#include "runtime/ops/dims.h"
#include "runtime/ops/ops.h"

namespace tessera::ops {
namespace {

using graph::Kernel;
using graph::LocalCall;
using graph::Rule;
using graph::ValueId;
using graph::ValueType;

template <typename T>
void store(const std::vector<double>& values, std::vector<std::byte>& bytes) {
  bytes.resize(values.size() * sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
}

std::vector<std::byte> stored(const std::vector<double>& values, DType dtype) {
  std::vector<std::byte> bytes;
  switch (dtype) {
    case DType::float32:
      store<float>(values, bytes);
      break;
    case DType::float64:
      store<double>(values, bytes);
      break;
    case DType::int32:
      store<std::int32_t>(values, bytes);
      break;
    case DType::int64:
      store<std::int64_t>(values, bytes);
      break;
    case DType::uint8:
    case DType::boolean:
      store<std::uint8_t>(values, bytes);
      break;
    case DType::bfloat16:
    case DType::float16:
      bytes.resize(values.size() * 2);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto value = static_cast<float>(values[i]);
        const std::uint16_t bits =
            dtype == DType::bfloat16 ? to_bfloat16(value).bits : to_float16(value).bits;
        std::memcpy(bytes.data() + i * 2, &bits, 2);
      }
      break;
  }
  return bytes;
}

// The elements of `box`, row-major.
std::vector<double> part(const std::vector<double>& values, const Shape& shape, const Box& box) {
  std::vector<double> result;
  const std::int64_t count = box.elements();
  result.reserve(static_cast<std::size_t>(count));
  const Shape strides = shape.strides();
  const Shape inner = box.size.strides();
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t at = 0;
    std::int64_t rest = i;
    for (std::size_t dim = 0; dim < shape.rank(); ++dim) {
      at += (box.begin[dim] + rest / inner[dim]) * strides[dim];
      rest %= inner[dim];
    }
    result.push_back(values[static_cast<std::size_t>(at)]);
  }
  return result;
}

class ConstantOp final : public graph::Op {
 public:
  ConstantOp(Shape shape, std::vector<double> values, DType dtype)
      : shape_(shape), values_(std::move(values)), dtype_(dtype) {}

  std::string_view name() const override { return "constant"; }
  std::string attributes() const override {
    return fmt::format("{} {} {}", to_string(shape_), tessera::name_of(dtype_),
                       fmt::join(values_, ","));
  }
  std::vector<ValueType> infer(std::span<const ValueType> /*inputs*/) const override {
    return {{shape_, dtype_}};
  }
  Rule rule(std::span<const ValueType> /*inputs*/,
            std::span<const ValueType> /*outputs*/) const override {
    return graph::parse_rule("->" + factor_letters(shape_.rank()));
  }
  std::vector<ValueId> gradient(const graph::GradientCall& /*call*/) const override { return {}; }

  Kernel prepare(const LocalCall& call, const kernels::Device& /*device*/) const override {
    return [bytes = stored(part(values_, shape_, call.outputs[0].box), dtype_)](
               const void* const* /*inputs*/, void* const* outputs, void* /*workspace*/,
               const graph::StepState& /*step*/) {
      if (!bytes.empty()) std::memcpy(outputs[0], bytes.data(), bytes.size());
    };
  }

 private:
  Shape shape_;
  std::vector<double> values_;
  DType dtype_;
};

}  // namespace

SymbolicTensor constant(graph::Builder& builder, Shape shape, const std::vector<double>& values,
                        DType dtype) {
  check(static_cast<std::int64_t>(values.size()) == shape.elements(),
        "a constant needs one value an element");
  return builder.add_one(std::make_shared<const ConstantOp>(shape, values, dtype), {});
}

}  // namespace tessera::ops
