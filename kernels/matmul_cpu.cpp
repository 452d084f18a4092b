// Matrix products on the CPU: the one file that knows oneDNN (2.x and 3.x).
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <dnnl.hpp>
#include <memory>
#include <string>

#include "base/error.h"
#include "kernels/matmul.h"
#include "kernels/matmul_loops.h"
#include "kernels/parallel.h"
#include "kernels/vector.h"
#include "kernels/workspace.h"

namespace tessera::kernels {
namespace {

/// Below this many multiplications own loops beat the library's cost of a call.
constexpr std::int64_t kSmallProduct = 20000;

ConvertLoop converter(DType from, DType to) {
  return vector_loops().convert[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

void convert(DType from, DType to, const void* source, void* target, std::int64_t n, int threads) {
  const ConvertLoop loop = converter(from, to);
  const auto from_size = static_cast<std::int64_t>(size_of(from));
  const auto to_size = static_cast<std::int64_t>(size_of(to));
  parallel_ranges(n < 131072 ? 1 : threads, n, [&](std::int64_t begin, std::int64_t end) {
    loop(static_cast<const std::byte*>(source) + begin * from_size,
         static_cast<std::byte*>(target) + begin * to_size, end - begin);
  });
}

/// Is it one for own loops? Also where there is nothing to multiply.
bool is_small(const MatmulArgs& args) {
  const auto work = static_cast<double>(batch_size(args)) * static_cast<double>(args.m) *
                    static_cast<double>(args.n) * static_cast<double>(args.k);
  return work <= static_cast<double>(kSmallProduct);
}

/// Dtypes in which the product is computed; operands in others are converted.
struct ComputeTypes {
  DType operands = DType::float32;
  DType bias = DType::float32;
  DType result = DType::float32;
};

ComputeTypes compute_types(const MatmulArgs& args) {
  const auto is_wide = [](DType dtype) {
    return dtype == DType::float64 || dtype == DType::int32 || dtype == DType::int64;
  };
  if (is_wide(args.a.dtype) || is_wide(args.b.dtype) || is_wide(args.c.dtype)) {
    return {DType::float64, DType::float64, DType::float64};
  }
  if (args.a.dtype != DType::bfloat16 || args.b.dtype != DType::bfloat16) return {};
  if (is_small(args)) return {};  // own loops
  const bool half_result = args.c.dtype == DType::bfloat16;
  const bool half_bias = args.bias == DType::bfloat16;
  return {DType::bfloat16, half_bias ? DType::bfloat16 : DType::float32,
          half_result ? DType::bfloat16 : DType::float32};
}

// ---- oneDNN ----

dnnl::engine& cpu_engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

/// The library's scratch memory, grown to the largest product and shared by all of a thread: its
/// size depends on processor and threads, so that it cannot be part of a plan that ranks compare.
void* scratch_of_thread(std::size_t bytes) {
  struct Free {
    void operator()(std::byte* memory) const {
      ::operator delete (memory, std::align_val_t{kAlignment});
    }
  };
  thread_local std::unique_ptr<std::byte, Free> memory;
  thread_local std::size_t size = 0;
  if (bytes > size) {
    memory.reset();
    memory.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment})));
    size = bytes;
  }
  return memory.get();
}

/// While it lives, parallel regions of this thread have this many threads.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) : before_(omp_get_max_threads()) {
    if (before_ != threads) omp_set_num_threads(threads);
    changed_ = before_ != threads;
  }
  ~ThreadCount() {
    if (changed_) omp_set_num_threads(before_);
  }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
  bool changed_;
};

dnnl::memory::data_type library_type(DType dtype) {
  return dtype == DType::bfloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

std::optional<dnnl::algorithm> library_activation(MapCode code) {
  switch (code) {
    case MapCode::relu:
      return dnnl::algorithm::eltwise_relu;
    case MapCode::sigmoid:
      return dnnl::algorithm::eltwise_logistic;
    case MapCode::tanh:
      return dnnl::algorithm::eltwise_tanh;
    case MapCode::gelu_erf:
      return dnnl::algorithm::eltwise_gelu_erf;
    case MapCode::gelu_tanh:
      return dnnl::algorithm::eltwise_gelu_tanh;
    case MapCode::silu:
      return dnnl::algorithm::eltwise_swish;
    case MapCode::softplus:
      return dnnl::algorithm::eltwise_soft_relu;
    default:
      return std::nullopt;
  }
}

dnnl::memory::desc descriptor(const MatmulArgs& args, const MatmulOperand& operand, DType dtype,
                              std::int64_t rows, std::int64_t columns) {
  dnnl::memory::dims dims(args.batch);
  dnnl::memory::dims strides(operand.batch);
  dims.insert(dims.end(), {rows, columns});
  // The stride of a dimension of size 1 is free: the library recognises layouts by dense ones.
  std::int64_t row = operand.row;
  std::int64_t column = operand.column;
  if (columns == 1) column = row == 1 ? rows : 1;
  if (rows == 1) row = column == 1 ? columns : 1;
  strides.insert(strides.end(), {row, column});
  return {dims, library_type(dtype), strides};
}

/// A product by the library; all operands are of the types given.
class LibraryMatmul {
 public:
  LibraryMatmul(const MatmulArgs& args, const ComputeTypes& types, const CpuDevice& device)
      : threads_(std::max(device.threads, 1)), stream_(cpu_engine()) {
    const ThreadCount count(threads_);
    const dnnl::memory::desc a = descriptor(args, args.a, types.operands, args.m, args.k);
    const dnnl::memory::desc b = descriptor(args, args.b, types.operands, args.k, args.n);
    const dnnl::memory::desc c = descriptor(args, args.c, types.result, args.m, args.n);
    dnnl::memory::desc bias;
    if (args.bias) {
      dnnl::memory::dims dims(args.batch.size() + 2, 1);
      dims.back() = args.n;
      const dnnl::memory::dims strides(dims.size(), args.n);
      dnnl::memory::dims dense = strides;
      dense.back() = 1;
      bias = {dims, library_type(types.bias), dense};
    }
    const dnnl::matmul::primitive_desc chosen = describe(a, b, bias, c, attributes(args));
    product_ = dnnl::matmul(chosen);
    scratch_bytes_ = chosen.scratchpad_desc().get_size();
    add(DNNL_ARG_SRC, a);
    add(DNNL_ARG_WEIGHTS, b);
    add(DNNL_ARG_DST, c);
    add(DNNL_ARG_SCRATCHPAD, chosen.scratchpad_desc());
    if (args.bias) add(DNNL_ARG_BIAS, bias);
    for (std::size_t i = 0; i < memories_.size(); ++i) {
      arguments_.push_back({keys_[i], memories_[i].get()});
    }
  }

  void operator()(const void* a, const void* b, const void* bias, void* c) {
    const ThreadCount count(threads_);
    // The library reads operands through the same type of pointer that it writes results through.
    const std::array<void*, 5> pointers = {const_cast<void*>(a), const_cast<void*>(b), c,
                                           scratch_of_thread(scratch_bytes_),
                                           const_cast<void*>(bias)};
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      dnnl_memory_set_data_handle(arguments_[i].memory, pointers[i]);
    }
    // The C function takes a plain array; the C++ one would build a hash map on every call.
    const dnnl_status_t status = dnnl_primitive_execute(
        product_.get(), stream_.get(), static_cast<int>(arguments_.size()), arguments_.data());
    check(status == dnnl_success, "oneDNN failed to execute a matrix product");
  }

 private:
  static dnnl::primitive_attr attributes(const MatmulArgs& args) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (!args.activation) return attributes;
    const std::optional<dnnl::algorithm> algorithm = library_activation(*args.activation);
    check(algorithm.has_value(), "an activation that the matrix product cannot apply");
    // The scale of the argument, where the function has one.
    const float alpha = *args.activation == MapCode::relu ? 0.0F : 1.0F;
    dnnl::post_ops ops;
#if DNNL_VERSION_MAJOR >= 3
    ops.append_eltwise(*algorithm, alpha, 0.0F);
#else
    ops.append_eltwise(1.0F, *algorithm, alpha, 0.0F);
#endif
    attributes.set_post_ops(ops);
    return attributes;
  }

  static dnnl::matmul::primitive_desc describe(const dnnl::memory::desc& a,
                                               const dnnl::memory::desc& b,
                                               const dnnl::memory::desc& bias,
                                               const dnnl::memory::desc& c,
                                               const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
    return {cpu_engine(), a, b, bias, c, attributes};
#else
    return {dnnl::matmul::desc(a, b, bias, c), attributes, cpu_engine()};
#endif
  }

  void add(int key, const dnnl::memory::desc& descriptor) {
    keys_.push_back(key);
    memories_.emplace_back(descriptor, cpu_engine(), nullptr);
  }

  int threads_;
  dnnl::stream stream_;
  dnnl::matmul product_;
  std::vector<int> keys_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;  // src, weights, dst, scratchpad, bias
  std::size_t scratch_bytes_ = 0;
};

// ---- conversion around a product ----

/// Where converted operands lie in the workspace; -1: not converted.
struct WorkspaceLayout {
  std::int64_t a = -1;
  std::int64_t b = -1;
  std::int64_t bias = -1;
  std::int64_t c = -1;
  std::int64_t bytes = 0;
};

WorkspaceLayout workspace_layout(const MatmulArgs& args, const ComputeTypes& types) {
  WorkspaceLayout layout;
  const auto place = [&layout](DType from, DType to, std::int64_t elements) -> std::int64_t {
    if (from == to) return -1;
    const std::int64_t begin = layout.bytes;
    layout.bytes += aligned(elements * static_cast<std::int64_t>(size_of(to)));
    return begin;
  };
  layout.a = place(args.a.dtype, types.operands, args.a.elements);
  layout.b = place(args.b.dtype, types.operands, args.b.elements);
  if (args.bias) layout.bias = place(*args.bias, types.bias, args.n);
  layout.c = place(args.c.dtype, types.result, args.c.elements);
  return layout;
}

/// Runs a product of the compute types on operands of the args' types.
template <typename Product>
MatmulKernel with_conversions(std::shared_ptr<Product> product, const MatmulArgs& args,
                              const ComputeTypes& types, const CpuDevice& device) {
  const WorkspaceLayout layout = workspace_layout(args, types);
  if (layout.bytes == 0) {
    return [product](const void* a, const void* b, const void* bias, void* c, void* /*workspace*/) {
      (*product)(a, b, bias, c);
    };
  }
  return [product, args, types, layout, threads = device.threads](
             const void* a, const void* b, const void* bias, void* c, void* workspace) {
    auto* memory = static_cast<std::byte*>(workspace);
    const auto take = [&](std::int64_t place, DType from, DType to, const void* source,
                          std::int64_t n) -> const void* {
      if (place < 0) return source;
      convert(from, to, source, memory + place, n, threads);
      return memory + place;
    };
    a = take(layout.a, args.a.dtype, types.operands, a, args.a.elements);
    b = take(layout.b, args.b.dtype, types.operands, b, args.b.elements);
    if (args.bias) bias = take(layout.bias, *args.bias, types.bias, bias, args.n);
    void* result = layout.c < 0 ? c : memory + layout.c;
    (*product)(a, b, bias, result);
    if (layout.c >= 0) {
      convert(types.result, args.c.dtype, result, c, args.c.elements, threads);
    }
  };
}

/// A product whose converted operands lie in memory of its own: for dtypes that the plan takes for
/// supported but this processor is not.
MatmulKernel with_own_memory(const MatmulArgs& args, const CpuDevice& device) {
  const ComputeTypes single{};
  auto memory = std::make_shared<std::vector<std::byte>>(
      static_cast<std::size_t>(workspace_layout(args, single).bytes));
  MatmulKernel kernel =
      with_conversions(std::make_shared<LibraryMatmul>(args, single, device), args, single, device);
  return [memory, kernel = std::move(kernel)](const void* a, const void* b, const void* bias,
                                              void* c, void* /*workspace*/) {
    kernel(a, b, bias, c, memory->data());
  };
}

}  // namespace

bool can_fuse_activation(MapCode code) { return library_activation(code).has_value(); }

std::int64_t matmul_workspace_bytes(const MatmulArgs& args) {
  return workspace_layout(args, compute_types(args)).bytes;
}

MatmulKernel prepare_matmul(const MatmulArgs& args, const CpuDevice& device) {
  const std::size_t rank = args.batch.size();
  check(args.a.batch.size() == rank && args.b.batch.size() == rank && args.c.batch.size() == rank,
        "matrix product: batch strides differ in number");
  check(args.c.column == 1 || args.n <= 1, "matrix product: rows of the result must lie dense");
  const ComputeTypes types = compute_types(args);
  if (types.operands == DType::float64) {
    return with_conversions(std::make_shared<LoopMatmul<double>>(args, device), args, types,
                            device);
  }
  if (is_small(args)) {
    return with_conversions(std::make_shared<LoopMatmul<float>>(args, device), args, types, device);
  }
  try {
    return with_conversions(std::make_shared<LibraryMatmul>(args, types, device), args, types,
                            device);
  } catch (const dnnl::error& error) {
    if (types.operands == DType::bfloat16) return with_own_memory(args, device);
    throw Error(Error::Kind::internal,
                std::string("oneDNN has no product for these operands: ") + error.what());
  }
}

}  // namespace tessera::kernels
