// Element-wise programs against a plain interpreter: broadcasting, dtypes, odd sizes, results over
// operands, threads.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "kernels/map.h"
#include "kernels/map_plan.h"
#include "tests/support/buffer.h"

namespace tessera::kernels {
namespace {

using testing::Buffer;

constexpr DType kAll[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16,
                          DType::int32,   DType::int64,   DType::uint8,    DType::boolean};

MapOperand in(int index) {
  return {MapOperand::Kind::input, static_cast<std::int16_t>(index), 0.0};
}
MapOperand step(int index) {
  return {MapOperand::Kind::step, static_cast<std::int16_t>(index), 0.0};
}
MapOperand number(double value) { return {MapOperand::Kind::constant, 0, value}; }

double apply(MapCode code, double a, double b, double c) {
  switch (code) {
    case MapCode::copy:
      return a;
    case MapCode::negate:
      return -a;
    case MapCode::square:
      return a * a;
    case MapCode::relu:
      return a < 0 ? 0 : a;
    case MapCode::add:
      return a + b;
    case MapCode::subtract:
      return a - b;
    case MapCode::multiply:
      return a * b;
    case MapCode::maximum:
      return std::max(a, b);
    case MapCode::less:
      return a < b ? 1 : 0;
    case MapCode::select:
      return a != 0 ? b : c;
    default:
      FAIL("a code that the reference lacks");
      return 0;
  }
}

/// Index of the element of an input that element `index` of the output reads.
std::int64_t broadcast_index(std::int64_t index, const Shape& output, const Shape& input) {
  std::int64_t result = 0;
  std::int64_t stride = 1;
  for (std::size_t back = 0; back < output.rank(); ++back) {
    const std::size_t dim = output.rank() - 1 - back;
    const std::int64_t at = index % output[dim];
    index /= output[dim];
    if (back < input.rank()) {
      const std::int64_t size = input[input.rank() - 1 - back];
      if (size != 1) result += at * stride;
      stride *= size;
    }
  }
  return result;
}

std::vector<std::vector<double>> reference(const MapProgram& program,
                                           const std::vector<MapTensor>& inputs,
                                           const std::vector<std::vector<double>>& values,
                                           const Shape& output) {
  std::vector<std::vector<double>> results(program.results.size());
  for (std::int64_t i = 0; i < output.elements(); ++i) {
    std::vector<double> steps;
    for (const MapStep& each : program.steps) {
      double x[3] = {0, 0, 0};
      for (int j = 0; j < operands_of(each.code); ++j) {
        const MapOperand& operand = each.operands[static_cast<std::size_t>(j)];
        const auto index = static_cast<std::size_t>(operand.index);
        if (operand.kind == MapOperand::Kind::constant) {
          x[j] = operand.constant;
        } else if (operand.kind == MapOperand::Kind::step) {
          x[j] = steps[index];
        } else {
          x[j] = values[index]
                       [static_cast<std::size_t>(broadcast_index(i, output, inputs[index].shape))];
        }
      }
      steps.push_back(apply(each.code, x[0], x[1], x[2]));
    }
    for (std::size_t r = 0; r < results.size(); ++r) {
      results[r].push_back(steps[static_cast<std::size_t>(program.results[r])]);
    }
  }
  return results;
}

std::vector<double> whole_numbers(std::int64_t n, std::mt19937& random, int low, int high) {
  std::uniform_int_distribution<int> value(low, high);
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& each : values) each = value(random);
  return values;
}

Shape broadcast(const std::vector<MapTensor>& inputs) {
  Shape result;
  std::size_t rank = 0;
  for (const MapTensor& input : inputs) rank = std::max(rank, input.shape.rank());
  for (std::size_t i = 0; i < rank; ++i) result.push_back(1);
  for (const MapTensor& input : inputs) {
    const std::size_t missing = rank - input.shape.rank();
    for (std::size_t dim = 0; dim < input.shape.rank(); ++dim) {
      if (input.shape[dim] != 1) result[missing + dim] = input.shape[dim];
    }
  }
  return result;
}

/// Runs with 1 and 3 threads and compares with the reference; `over`: the input in whose memory the
/// first output is written, or -1.
void check_program(MapProgram program, const std::vector<MapTensor>& inputs,
                   const std::vector<DType>& results, int low = -3, int over = -1) {
  std::mt19937 random(3);
  const Shape shape = broadcast(inputs);
  std::vector<MapTensor> outputs;
  for (const DType dtype : results) outputs.push_back({shape, dtype});
  std::vector<std::vector<double>> values;
  for (const MapTensor& input : inputs) {
    const int high = input.dtype == DType::boolean ? 1 : 3;
    values.push_back(
        whole_numbers(input.shape.elements(), random, std::max(low, high == 1 ? 0 : low), high));
  }
  const auto expected = reference(program, inputs, values, shape);
  for (const int threads : {1, 3}) {
    std::vector<Buffer> memory;
    std::vector<const void*> in_pointers;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      memory.emplace_back(inputs[i].dtype, inputs[i].shape.elements());
      memory.back().set(values[i]);
    }
    for (const Buffer& buffer : memory) in_pointers.push_back(buffer.data());
    std::vector<Buffer> written;
    std::vector<void*> out_pointers;
    for (const DType dtype : results) written.emplace_back(dtype, shape.elements());
    for (Buffer& buffer : written) out_pointers.push_back(buffer.data());
    if (over >= 0) out_pointers[0] = memory[static_cast<std::size_t>(over)].data();
    prepare_map(program, inputs, outputs, CpuDevice{threads})(in_pointers.data(),
                                                              out_pointers.data());
    for (std::size_t r = 0; r < results.size(); ++r) {
      const Buffer& found =
          over >= 0 && r == 0 ? memory[static_cast<std::size_t>(over)] : written[r];
      Buffer rounded(results[r], shape.elements());
      rounded.set(expected[r]);
      INFO(to_string(program) << " of " << to_string(inputs[0].shape) << " to " << to_string(shape)
                              << " " << name_of(results[r]) << ", " << threads << " threads");
      CHECK(found.get() == rounded.get());
    }
  }
}

MapProgram one(MapCode code, std::array<MapOperand, 3> operands) {
  MapProgram program;
  program.steps.push_back({code, operands});
  program.results.push_back(0);
  return program;
}

TEST_CASE("binary steps broadcast in every arrangement") {
  const std::vector<std::pair<Shape, Shape>> shapes = {{{}, {}},
                                                       {{7}, {7}},
                                                       {{7}, {}},
                                                       {{}, {7}},
                                                       {{7}, {1}},
                                                       {{5, 3}, {3}},
                                                       {{5, 3}, {5, 1}},
                                                       {{5, 1}, {1, 3}},
                                                       {{3}, {5, 3}},
                                                       {{4, 700}, {700}},
                                                       {{4, 700}, {4, 1}},
                                                       {{3, 5000}, {5000}},
                                                       {{3, 5000}, {3, 1}},
                                                       {{1000, 3}, {3}},
                                                       {{1000, 3}, {1000, 1}},
                                                       {{2, 3, 4, 5}, {3, 1, 5}},
                                                       {{2, 1, 4, 1}, {1, 3, 1, 5}},
                                                       {{2, 300, 2}, {2, 1, 2}},
                                                       {{1, 1}, {1}},
                                                       {{0, 3}, {3}},
                                                       {{3, 0}, {3, 1}},
                                                       {{200, 257}, {257}},
                                                       {{2, 1, 600}, {2, 3, 1}},
                                                       {{100000}, {100000}}};
  for (const auto& [a, b] : shapes) {
    check_program(one(MapCode::subtract, {in(0), in(1), {}}),
                  {{a, DType::float32}, {b, DType::float32}}, {DType::float32});
    check_program(one(MapCode::subtract, {in(0), in(1), {}}),
                  {{a, DType::bfloat16}, {b, DType::bfloat16}}, {DType::bfloat16});
  }
}

TEST_CASE("all dtypes convert to all dtypes") {
  for (const DType from : kAll) {
    for (const DType to : kAll) {
      const bool has_sign = from != DType::uint8 && to != DType::uint8;
      for (const std::int64_t n : {1, 15, 16, 17, 1025, 70001}) {
        check_program(one(MapCode::copy, {in(0), {}, {}}), {{{n}, from}}, {to}, has_sign ? -3 : 0);
      }
      check_program(one(MapCode::copy, {in(0), {}, {}}), {{{3, 1}, from}, {{1, 5}, from}}, {to},
                    has_sign ? -3 : 0);
    }
  }
}

TEST_CASE("64-bit integers are copied whole") {
  const std::int64_t large = (std::int64_t{1} << 53U) + 1;
  std::int64_t copied = 0;
  const void* inputs[] = {&large};
  void* outputs[] = {&copied};
  MapProgram program = one(MapCode::copy, {in(0), {}, {}});
  program.wide = true;
  const MapTensor tensor{{1}, DType::int64};
  prepare_map(program, {{tensor}}, {{tensor}}, CpuDevice{1})(inputs, outputs);
  CHECK(copied == large);
}

TEST_CASE("mixed dtypes and wide programs") {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16,
                            DType::int32, DType::int64}) {
    MapProgram program;
    program.steps = {{MapCode::multiply, {in(0), number(2.0), {}}},
                     {MapCode::less, {step(0), in(1), {}}},
                     {MapCode::select, {in(2), step(0), in(1)}}};
    program.results = {1, 2};
    program.wide = dtype == DType::float64 || dtype == DType::int32 || dtype == DType::int64;
    for (const Shape& shape : {Shape{9}, Shape{3000}, Shape{5, 7}, Shape{2, 900}}) {
      check_program(program, {{shape, dtype}, {shape, dtype}, {{1}, DType::boolean}},
                    {DType::boolean, dtype});
      check_program(program, {{shape, dtype}, {{shape.back()}, dtype}, {shape, DType::boolean}},
                    {DType::boolean, dtype});
    }
  }
}

/// p -= m, with m and the gradient updated before: outputs in the order m, p.
MapProgram momentum() {
  MapProgram program;
  program.steps = {{MapCode::multiply, {in(1), number(2.0), {}}},
                   {MapCode::add, {step(0), in(2), {}}},
                   {MapCode::multiply, {in(3), number(3.0), {}}},  // a step on one value
                   {MapCode::multiply, {step(1), step(2), {}}},
                   {MapCode::subtract, {in(0), step(3), {}}}};
  program.results = {1, 4};
  return program;
}

TEST_CASE("results may lie in the memory of any operand of their shape") {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64}) {
    MapProgram program = momentum();
    program.wide = dtype == DType::float64;
    for (const Shape& shape :
         {Shape{}, Shape{1}, Shape{5}, Shape{2500}, Shape{3, 700}, Shape{40, 5}}) {
      const std::vector<MapTensor> inputs = {
          {shape, dtype}, {shape, dtype}, {shape, dtype}, {Shape{}, dtype}};
      for (const int over : {-1, 0, 1, 2}) {
        check_program(program, inputs, {dtype, dtype}, -3, over);
      }
    }
  }
}

TEST_CASE("long programs reuse registers") {
  MapProgram program;
  program.steps.push_back({MapCode::add, {in(0), in(1), {}}});
  for (int i = 1; i < 100; ++i) {
    // Every result stays alive until the end, and is bounded.
    program.steps.push_back({MapCode::maximum, {step(i - 1), number(-i), {}}});
  }
  for (int i = 100; i < 127; ++i) {
    program.steps.push_back({MapCode::subtract, {step(i - 1), step(127 - i), {}}});
  }
  program.results = {126, 50, 99};
  for (const Shape& shape : {Shape{3}, Shape{999}, Shape{300, 7}}) {
    check_program(program, {{shape, DType::float32}, {{shape.back()}, DType::bfloat16}},
                  {DType::float32, DType::bfloat16, DType::float32});
  }
}

TEST_CASE("a result of single values fills the output") {
  MapProgram program = one(MapCode::multiply, {in(1), number(2.0), {}});
  for (const Shape& shape : {Shape{2000}, Shape{3, 5}, Shape{3, 500}}) {
    check_program(program, {{shape, DType::float32}, {Shape{}, DType::float32}}, {DType::float32});
  }
}

TEST_CASE("loops merge where all operands allow it") {
  const MapTensor inputs[] = {{{4, 1, 6, 5}, DType::float32}, {{6, 5}, DType::float32}};
  const MapLoops loops = merge_loops(inputs, {4, 3, 6, 5});
  CHECK(loops.sizes == std::vector<std::int64_t>{4, 3, 30});
  CHECK(loops.strides[0] == std::vector<std::int64_t>{30, 0, 1});
  CHECK(loops.strides[1] == std::vector<std::int64_t>{0, 0, 1});
  const MapLoops dense = merge_loops({inputs, 1}, {4, 1, 6, 5});
  CHECK(dense.sizes == std::vector<std::int64_t>{120});
}

TEST_CASE("programs that do not fit are refused") {
  const MapTensor four{{4}, DType::float32};
  const MapTensor three{{3}, DType::float32};
  const MapProgram program = one(MapCode::negate, {in(0), {}, {}});
  CHECK_THROWS(prepare_map(program, {{three}}, {{four}}, CpuDevice{1}));
  CHECK_THROWS(prepare_map(program, {}, {{four}}, CpuDevice{1}));
}

}  // namespace
}  // namespace tessera::kernels
