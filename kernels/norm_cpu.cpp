// Normalisation on the CPU: rows over threads, vector loops within rows, parameter gradients by
// blocks of rows.
#include <algorithm>

#include "kernels/dispatch.h"
#include "kernels/norm.h"
#include "kernels/parallel.h"
#include "kernels/rows.h"

namespace tessera::kernels {
namespace {

/// Blocks of rows whose parameter gradients are summed apart: enough for the threads, few enough to
/// add up quickly.
constexpr std::int64_t kMostBlocks = 64;
constexpr std::int64_t kFewestRows = 16;

std::int64_t rows_per_block(std::int64_t rows) {
  return std::max(kFewestRows, (rows + kMostBlocks - 1) / kMostBlocks);
}

std::int64_t blocks_of(std::int64_t rows) {
  return (rows + rows_per_block(rows) - 1) / rows_per_block(rows);
}

std::int64_t sum_size(DType dtype) { return static_cast<std::int64_t>(size_of(sum_dtype(dtype))); }

/// A parameter as an array of sums: itself where it is stored as one, else converted into `memory`.
template <typename S>
const S* as_sums(const void* parameter, DType dtype, std::int64_t columns, S absent, S* memory) {
  if (parameter == nullptr) {
    std::fill_n(memory, columns, absent);
    return memory;
  }
  const S* result = memory;
  with_floating(dtype, [&](auto element) {
    using P = decltype(element);
    if constexpr (std::is_same_v<P, S>) {
      result = static_cast<const S*>(parameter);
    } else {
      const auto* from = static_cast<const P*>(parameter);
      for (std::int64_t i = 0; i < columns; ++i) memory[i] = static_cast<S>(widen(from[i]));
    }
  });
  return result;
}

/// parameter[columns] = sum over blocks of partial[block * stride + column].
template <typename S>
void add_blocks(const S* partial, std::int64_t blocks, std::int64_t stride, std::int64_t columns,
                S* total, void* parameter, DType dtype) {
  std::fill_n(total, columns, S{0});
  for (std::int64_t block = 0; block < blocks; ++block) {
    for (std::int64_t i = 0; i < columns; ++i) total[i] += partial[block * stride + i];
  }
  with_floating(dtype, [&](auto element) {
    using P = decltype(element);
    auto* to = static_cast<P*>(parameter);
    for (std::int64_t i = 0; i < columns; ++i) to[i] = narrow<P>(static_cast<SumOf<P>>(total[i]));
  });
}

template <typename T>
void norm_gradient_typed(const NormArgs& args, const NormGradientPointers& pointers,
                         void* workspace, const CpuDevice& device) {
  using S = SumOf<T>;
  const std::int64_t columns = args.columns;
  const std::int64_t blocks = blocks_of(args.rows);
  const std::int64_t block_rows = rows_per_block(args.rows);
  auto* scratch = static_cast<S*>(workspace);
  NormGradientRows<T> call;
  call.gamma = as_sums(pointers.gamma, args.parameter_dtype, columns, S{1}, scratch);
  S* partial = scratch + columns;  // [blocks, 2, columns]
  const auto run_blocks = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * block_rows;
      NormGradientRows<T> rows = call;
      rows.dy = static_cast<const T*>(pointers.dy) + first * columns;
      rows.x = static_cast<const T*>(pointers.x) + first * columns;
      if (args.centered) rows.mean = static_cast<const S*>(pointers.mean) + first;
      rows.rstd = static_cast<const S*>(pointers.rstd) + first;
      rows.dx = static_cast<T*>(pointers.dx) + first * columns;
      S* sums = partial + block * 2 * columns;
      std::fill_n(sums, 2 * columns, S{0});
      rows.dgamma = sums;
      rows.dbeta = sums + columns;
      rows.rows = std::min(block_rows, args.rows - first);
      rows.columns = columns;
      row_loops().typed<T>().norm_gradient(rows);
    }
  };
  parallel_rows(blocks, block_rows * columns, device.threads, run_blocks);
  S* total = partial + blocks * 2 * columns;
  if (pointers.dgamma != nullptr) {
    add_blocks(partial, blocks, 2 * columns, columns, total, pointers.dgamma, args.parameter_dtype);
  }
  if (pointers.dbeta != nullptr) {
    add_blocks(partial + columns, blocks, 2 * columns, columns, total, pointers.dbeta,
               args.parameter_dtype);
  }
}

}  // namespace

std::int64_t norm_workspace(const NormArgs& args) {
  return 2 * args.columns * sum_size(args.dtype);
}

void norm(const NormArgs& args, const void* x, const void* gamma, const void* beta, void* y,
          void* mean, void* rstd, void* workspace, const CpuDevice& device) {
  if (args.columns == 0) return;
  with_floating(args.dtype, [&](auto element) {
    using T = decltype(element);
    using S = SumOf<T>;
    const std::int64_t columns = args.columns;
    auto* scratch = static_cast<S*>(workspace);
    NormRows<T> call;
    call.gamma = as_sums(gamma, args.parameter_dtype, columns, S{1}, scratch);
    call.beta = as_sums(beta, args.parameter_dtype, columns, S{0}, scratch + columns);
    call.columns = columns;
    call.epsilon = static_cast<S>(args.epsilon);
    parallel_rows(args.rows, columns, device.threads, [&](std::int64_t begin, std::int64_t end) {
      NormRows<T> rows = call;
      rows.x = static_cast<const T*>(x) + begin * columns;
      rows.y = static_cast<T*>(y) + begin * columns;
      if (args.centered) rows.mean = static_cast<S*>(mean) + begin;
      rows.rstd = static_cast<S*>(rstd) + begin;
      rows.rows = end - begin;
      row_loops().typed<T>().norm(rows);
    });
  });
}

std::int64_t norm_gradient_workspace(const NormArgs& args) {
  return (2 + 2 * blocks_of(args.rows)) * args.columns * sum_size(args.dtype);
}

void norm_gradient(const NormArgs& args, const NormGradientPointers& pointers, void* workspace,
                   const CpuDevice& device) {
  if (args.columns == 0) return;
  with_floating(args.dtype, [&](auto element) {
    norm_gradient_typed<decltype(element)>(args, pointers, workspace, device);
  });
}

}  // namespace tessera::kernels
