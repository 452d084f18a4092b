// Speeds of the hot kernels: GB/s of element-wise programs and column sums, GFLOP/s of matrix
// products beside oneDNN alone, nanoseconds of tiny calls. Not a test. Usage: kernel_bench
// [threads]
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dnnl.hpp>
#include <functional>
#include <string>
#include <vector>

#include "kernels/map.h"
#include "kernels/matmul.h"
#include "kernels/reduce.h"
#include "kernels/source.h"
#include "tests/support/buffer.h"

namespace tessera {
namespace {

using kernels::CpuDevice;
using kernels::MapCode;
using kernels::MapOperand;
using kernels::MapTensor;
using testing::Buffer;

/// Seconds: of this thread's work when it is the only one, so that a busy machine disturbs less.
double now() {
  timespec time{};
  clock_gettime(omp_get_max_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Shortest time of a call in seconds, of as many as fit into a quarter of a second.
double best_time(const std::function<void()>& call) {
  call();
  double best = 1e9;
  const double start = now();
  for (int calls = 0; calls < 5 || now() - start < 0.25; ++calls) {
    const double begin = now();
    call();
    best = std::min(best, now() - begin);
  }
  return best;
}

/// The same for calls too short to be timed alone.
double best_time_of_many(const std::function<void()>& call) {
  constexpr int kMany = 1000;
  return best_time([&] {
           for (int i = 0; i < kMany; ++i) call();
         }) /
         kMany;
}

Buffer filled(DType dtype, std::int64_t n) {
  Buffer buffer(dtype, n);
  std::vector<double> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(i % 7) / 8.0 + 0.25;
  buffer.set(values);
  return buffer;
}

MapOperand in(int index) {
  return {MapOperand::Kind::input, static_cast<std::int16_t>(index), 0.0};
}
MapOperand step(int index) {
  return {MapOperand::Kind::step, static_cast<std::int16_t>(index), 0.0};
}
MapOperand number(double value) { return {MapOperand::Kind::constant, 0, value}; }

/// Inputs p, m, v, g, rate; outputs p, m, v.
kernels::MapProgram adam() {
  kernels::MapProgram program;
  program.steps = {{MapCode::subtract, {in(3), in(1), {}}},
                   {MapCode::multiply, {step(0), number(0.1), {}}},
                   {MapCode::add, {in(1), step(1), {}}},
                   {MapCode::square, {in(3), {}, {}}},
                   {MapCode::subtract, {step(3), in(2), {}}},
                   {MapCode::multiply, {step(4), number(0.001), {}}},
                   {MapCode::add, {in(2), step(5), {}}},
                   {MapCode::sqrt, {step(6), {}, {}}},
                   {MapCode::add, {step(7), number(1e-7), {}}},
                   {MapCode::multiply, {step(2), in(4), {}}},
                   {MapCode::divide, {step(9), step(8), {}}},
                   {MapCode::subtract, {in(0), step(10), {}}}};
  program.results = {11, 2, 6};
  return program;
}

kernels::MapProgram one_step(MapCode code, std::array<MapOperand, 3> operands) {
  kernels::MapProgram program;
  program.steps.push_back({code, operands});
  program.results.push_back(0);
  return program;
}

void bench_adam(std::int64_t n, CpuDevice device, bool tiny) {
  const MapTensor tensor{{n}, DType::float32};
  const std::vector<MapTensor> inputs = {tensor, tensor, tensor, tensor, {Shape{}, DType::float32}};
  const std::vector<MapTensor> outputs = {tensor, tensor, tensor};
  std::vector<Buffer> memory;
  for (int i = 0; i < 4; ++i) memory.push_back(filled(DType::float32, n));
  memory.push_back(filled(DType::float32, 1));
  const void* in_pointers[] = {memory[0].data(), memory[1].data(), memory[2].data(),
                               memory[3].data(), memory[4].data()};
  void* out_pointers[] = {memory[0].data(), memory[1].data(), memory[2].data()};
  const kernels::MapKernel kernel = kernels::prepare_map(adam(), inputs, outputs, device);
  const auto call = [&] { kernel(in_pointers, out_pointers); };
  const double time = tiny ? best_time_of_many(call) : best_time(call);
  fmt::print("adam, in place            n {:>9}  {:10.1f} us  {:7.1f} GB/s\n", n, time * 1e6,
             28e-9 * static_cast<double>(n) / time);
}

void bench_map(const char* name, const kernels::MapProgram& program,
               const std::vector<MapTensor>& inputs, const MapTensor& output, CpuDevice device,
               bool tiny = false) {
  std::vector<Buffer> memory;
  std::vector<const void*> pointers;
  double bytes = 0.0;
  for (const MapTensor& input : inputs) {
    memory.push_back(filled(input.dtype, input.shape.elements()));
    bytes += static_cast<double>(memory.back().bytes());
  }
  for (const Buffer& buffer : memory) pointers.push_back(buffer.data());
  Buffer result(output.dtype, output.shape.elements());
  bytes += static_cast<double>(result.bytes());
  void* out[] = {result.data()};
  const kernels::MapKernel kernel = kernels::prepare_map(program, inputs, {{output}}, device);
  const auto call = [&] { kernel(pointers.data(), out); };
  const double time = tiny ? best_time_of_many(call) : best_time(call);
  fmt::print("{:<25} n {:>9}  {:10.3f} us  {:7.1f} GB/s  {:7.2f} G elements/s\n", name,
             output.shape.elements(), time * 1e6, bytes * 1e-9 / time,
             1e-9 * static_cast<double>(output.shape.elements()) / time);
}

void bench_maps(CpuDevice device) {
  const std::int64_t large = std::int64_t{1} << 24U;
  for (const std::int64_t n : {std::int64_t{5}, std::int64_t{64}}) bench_adam(n, device, true);
  for (const std::int64_t n : {std::int64_t{1} << 16U, large}) bench_adam(n, device, false);
  const DType single = DType::float32;
  const kernels::MapProgram add = one_step(MapCode::add, {in(0), in(1), {}});
  bench_map("add tiny", add, {{{16}, single}, {{16}, single}}, {{16}, single}, device, true);
  bench_map("add bias tiny", add, {{{16, 4}, single}, {{4}, single}}, {{16, 4}, single}, device,
            true);
  bench_map("add", add, {{{large}, single}, {{large}, single}}, {{large}, single}, device);
  bench_map("add bias [4096, 4096]", add, {{{4096, 4096}, single}, {{4096}, single}},
            {{4096, 4096}, single}, device);
  bench_map("add bias [1M, 10]", add, {{{1 << 20, 10}, single}, {{10}, single}},
            {{1 << 20, 10}, single}, device);
  bench_map("scale rows [1M, 10]", add, {{{1 << 20, 10}, single}, {{1 << 20, 1}, single}},
            {{1 << 20, 10}, single}, device);
  const kernels::MapProgram copy = one_step(MapCode::copy, {in(0), {}, {}});
  bench_map("cast to bfloat16", copy, {{{large}, single}}, {{large}, DType::bfloat16}, device);
  bench_map("cast to float16", copy, {{{large}, single}}, {{large}, DType::float16}, device);
  bench_map("copy", copy, {{{large}, single}}, {{large}, single}, device);
  for (const MapCode code : {MapCode::exp, MapCode::log, MapCode::tanh, MapCode::sigmoid,
                             MapCode::erf, MapCode::gelu_erf, MapCode::gelu_tanh, MapCode::softplus,
                             MapCode::sqrt, MapCode::relu, MapCode::sin}) {
    bench_map(std::string(kernels::name_of(code)).c_str(), one_step(code, {in(0), {}, {}}),
              {{{1 << 14}, single}}, {{1 << 14}, single}, device);
  }
}

void bench_reductions(CpuDevice device) {
  struct Entry {
    const char* name;
    Shape shape;
    std::vector<int> dims;
  };
  for (const Entry& entry :
       {Entry{"column sums", {256, 4096}, {0}}, Entry{"column sums", {4096, 4096}, {0}},
        Entry{"column sums", {1 << 20, 10}, {0}}, Entry{"row sums", {4096, 4096}, {1}},
        Entry{"row sums", {1 << 20, 10}, {1}}, Entry{"sum of all", {1 << 24}, {0}},
        Entry{"column sums tiny", {16, 1}, {0}}}) {
    const Buffer x = filled(DType::float32, entry.shape.elements());
    const kernels::ReduceArgs args{kernels::ReduceCode::sum, entry.shape, entry.dims,
                                   DType::float32, DType::float32};
    Buffer y(DType::float32, entry.shape.elements());
    Buffer workspace(DType::uint8, kernels::reduce_workspace_bytes(args));
    const kernels::ReduceKernel kernel = kernels::prepare_reduce(args, device);
    const auto call = [&] { kernel(x.data(), y.data(), workspace.data()); };
    const double time = x.elements() < 10000 ? best_time_of_many(call) : best_time(call);
    fmt::print("{:<18} {:>16}  {:10.3f} us  {:7.1f} GB/s\n", entry.name, to_string(entry.shape),
               time * 1e6, 4e-9 * static_cast<double>(entry.shape.elements()) / time);
  }
}

/// The library's own time for dense row-major operands.
double library_time(std::int64_t m, std::int64_t n, std::int64_t k, bool ta, bool tb, bool half,
                    const Buffer& a, const Buffer& b, Buffer& c) {
  using dnnl::memory;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto type = half ? memory::data_type::bf16 : memory::data_type::f32;
  const memory::dims a_strides = ta ? memory::dims{1, m} : memory::dims{k, 1};
  const memory::dims b_strides = tb ? memory::dims{1, k} : memory::dims{n, 1};
  const memory::desc a_desc({m, k}, type, a_strides);
  const memory::desc b_desc({k, n}, type, b_strides);
  const memory::desc c_desc({m, n}, memory::data_type::f32, memory::dims{n, 1});
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc chosen(engine, a_desc, b_desc, c_desc);
#else
  const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(a_desc, b_desc, c_desc), engine);
#endif
  const dnnl::matmul product(chosen);
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, memory(a_desc, engine, const_cast<void*>(a.data()))},
      {DNNL_ARG_WEIGHTS, memory(b_desc, engine, const_cast<void*>(b.data()))},
      {DNNL_ARG_DST, memory(c_desc, engine, c.data())}};
  return best_time([&] {
    product.execute(stream, arguments);
    stream.wait();
  });
}

void bench_products(CpuDevice device) {
  struct Entry {
    const char* name;
    std::int64_t m;
    std::int64_t n;
    std::int64_t k;
    bool ta;
    bool tb;
  };
  const Entry entries[] = {{"forward", 256, 4096, 1024, false, false},
                           {"dW", 1024, 4096, 256, true, false},
                           {"forward", 256, 4096, 4096, false, false},
                           {"dX", 256, 4096, 4096, false, true},
                           {"dW", 4096, 4096, 256, true, false},
                           {"forward", 256, 10, 4096, false, false},
                           {"dX", 256, 4096, 10, false, true},
                           {"dW", 4096, 10, 256, true, false},
                           {"forward, half", 128, 4096, 4096, false, false},
                           {"forward, half", 256, 2048, 4096, false, false},
                           {"tiny forward", 16, 1, 4, false, false},
                           {"tiny dW", 4, 1, 16, true, false},
                           {"small", 16, 32, 32, false, false},
                           {"small", 32, 32, 32, false, false}};
  for (const bool half : {false, true}) {
    for (const Entry& entry : entries) {
      const DType dtype = half ? DType::bfloat16 : DType::float32;
      const auto& [name, m, n, k, ta, tb] = entry;
      kernels::MatmulArgs args;
      args.m = m;
      args.n = n;
      args.k = k;
      args.a = {dtype, m * k, ta ? 1 : k, ta ? m : 1, {}};
      args.b = {dtype, k * n, tb ? 1 : n, tb ? k : 1, {}};
      args.c = {DType::float32, m * n, n, 1, {}};
      const Buffer a = filled(dtype, m * k);
      const Buffer b = filled(dtype, k * n);
      Buffer c(DType::float32, m * n);
      Buffer workspace(DType::uint8, kernels::matmul_workspace_bytes(args));
      const double start = now();
      const kernels::MatmulKernel kernel = kernels::prepare_matmul(args, device);
      const double prepared = now() - start;
      const auto call = [&] { kernel(a.data(), b.data(), nullptr, c.data(), workspace.data()); };
      const double time = m * n * k < 100000 ? best_time_of_many(call) : best_time(call);
      const double alone = library_time(m, n, k, ta, tb, half, a, b, c);
      const double flops = 2e-9 * static_cast<double>(m * n * k);
      fmt::print(
          "{:<14} {} {:>5} x {:>4} x {:>4}  {:10.3f} us {:8.1f} GFLOP/s  oneDNN alone {:8.1f}, "
          "prepared in {:.2f} ms\n",
          name, half ? "bf16" : "f32 ", m, n, k, time * 1e6, flops / time, flops / alone,
          prepared * 1e3);
    }
  }
}

void bench_random(CpuDevice device) {
  const Shape shape{1 << 20};
  Buffer x(DType::float32, shape.elements());
  for (const auto distribution : {kernels::Distribution::uniform, kernels::Distribution::normal}) {
    const kernels::SourceKernel kernel =
        kernels::prepare_random(distribution, 1, shape, {{0}, shape}, DType::float32, device);
    const double time = best_time([&] { kernel(x.data(), 0); });
    fmt::print("random {:<18} n {:>9}  {:10.1f} us  {:7.2f} ns an element\n",
               distribution == kernels::Distribution::uniform ? "uniform" : "normal",
               shape.elements(), time * 1e6, time * 1e9 / static_cast<double>(shape.elements()));
  }
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const std::string only = argc > 2 ? argv[2] : "";
  const tessera::kernels::CpuDevice device{threads};
  omp_set_num_threads(threads);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  fmt::print("{} threads\n", threads);
  if (only.empty() || only == "map") tessera::bench_maps(device);
  if (only.empty() || only == "random") tessera::bench_random(device);
  if (only.empty() || only == "reduce") tessera::bench_reductions(device);
  if (only.empty() || only == "matmul") tessera::bench_products(device);
  return 0;
}
