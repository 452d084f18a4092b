// What all ops that only move elements run: a list of strided copies.
#include "runtime/ops/copies.h"

#include <cstring>

#include "base/dtype.h"

namespace tessera::ops {
namespace {

template <typename T>
std::uint64_t bits_of(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

}  // namespace

CopyPart box_copy(int source, const Shape& in, std::int64_t in_begin, const Shape& out,
                  std::int64_t out_begin, const Shape& size, std::size_t dim,
                  std::size_t element_size) {
  const Shape in_strides = in.strides();
  const Shape out_strides = out.strides();
  CopyPart part;
  part.source = source;
  if (size.rank() > 0) {
    part.in_offset = in_begin * in_strides[dim];
    part.out_offset = out_begin * out_strides[dim];
  }
  part.copy = kernels::plan_strided_copy(size, in_strides, out_strides, element_size);
  return part;
}

CopyPart box_fill(const Shape& out, std::int64_t out_begin, const Shape& size, std::size_t dim,
                  std::size_t element_size) {
  Shape repeated = size;
  for (std::size_t i = 0; i < repeated.rank(); ++i) repeated[i] = 0;
  const Shape out_strides = out.strides();
  CopyPart part;
  part.source = -1;
  part.out_offset = out_begin * out_strides[dim];
  part.copy = kernels::plan_strided_copy(size, repeated, out_strides, element_size);
  return part;
}

graph::Kernel copy_kernel(std::vector<CopyPart> parts, const kernels::Device& device,
                          std::uint64_t constant) {
  return std::visit(
      [&](const auto& chosen) -> graph::Kernel {
        return [parts = std::move(parts), constant, chosen](
                   const void* const* inputs, void* const* outputs, void* /*workspace*/,
                   const graph::StepState& /*step*/) {
          for (const CopyPart& part : parts) {
            const auto size = static_cast<std::int64_t>(part.copy.element_size);
            const void* from =
                part.source < 0
                    ? static_cast<const void*>(&constant)
                    : static_cast<const std::byte*>(inputs[part.source]) + part.in_offset * size;
            kernels::strided_copy(part.copy, from,
                                  static_cast<std::byte*>(outputs[0]) + part.out_offset * size,
                                  chosen);
          }
        };
      },
      device);
}

std::uint64_t element_bits(double value, DType dtype) {
  switch (dtype) {
    case DType::float32:
      return bits_of(static_cast<float>(value));
    case DType::float64:
      return bits_of(value);
    case DType::bfloat16:
      return bits_of(to_bfloat16(static_cast<float>(value)).bits);
    case DType::float16:
      return bits_of(to_float16(static_cast<float>(value)).bits);
    case DType::int32:
      return bits_of(static_cast<std::int32_t>(value));
    case DType::int64:
      return bits_of(static_cast<std::int64_t>(value));
    case DType::uint8:
      return bits_of(static_cast<std::uint8_t>(value));
    case DType::boolean:
      return bits_of(static_cast<std::uint8_t>(value != 0.0 ? 1 : 0));
  }
  return 0;
}

}  // namespace tessera::ops
