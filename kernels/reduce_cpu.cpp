// Sums, maxima and minima on the CPU.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>

#include "kernels/parallel.h"
#include "kernels/reduce.h"

namespace tessera::kernels {
namespace {

constexpr std::int64_t kColumns = 1024;     // of one task, when columns are reduced
constexpr std::int64_t kBlockRows = 64;     // added in T before they go to double
constexpr std::int64_t kPiece = 16384;      // elements of a row taken at once
constexpr std::int64_t kConvertedRows = 8;  // converted at once
// Reductions to few results are cut into chunks so that threads share them; always the same ones.
constexpr std::int64_t kEnoughTasks = 32;
constexpr std::int64_t kMaxChunks = 64;
constexpr std::int64_t kChunkElements = 65536;

/// Neighbouring dimensions of one kind, merged.
struct Group {
  std::int64_t size = 1;
  std::int64_t stride = 1;
};

/// Offset of element `index` of a row-major walk over groups.
std::int64_t offset_of(const std::vector<Group>& groups, std::int64_t index) {
  std::int64_t offset = 0;
  for (std::size_t i = groups.size(); i-- > 1;) {
    offset += index % groups[i].size * groups[i].stride;
    index /= groups[i].size;
  }
  return groups.empty() ? 0 : offset + index * groups[0].stride;
}

std::int64_t product_of(const std::vector<Group>& groups) {
  std::int64_t product = 1;
  for (const Group& group : groups) product *= group.size;
  return product;
}

/// The shape as: kept groups, reduced groups, and a contiguous run that is either reduced (a row)
/// or kept (columns, of which each reduced index is a line).
struct Layout {
  std::vector<Group> kept;
  std::vector<Group> reduced;
  std::int64_t inner = 1;
  bool inner_reduced = true;

  std::int64_t outputs = 1;  // without columns
  std::int64_t column_tiles = 1;
  std::int64_t units = 1;  // pieces of rows, or lines, per output
  std::int64_t pieces_per_row = 1;
  std::int64_t chunks = 1;
};

Layout layout_of(const ReduceArgs& args) {
  std::vector<bool> is_reduced(args.shape.rank(), false);
  for (const int dim : args.dims) is_reduced[static_cast<std::size_t>(dim)] = true;
  const Shape strides = args.shape.strides();
  Layout layout;
  bool first = true;
  bool last_kind = false;
  for (std::size_t dim = 0; dim < args.shape.rank(); ++dim) {
    if (args.shape[dim] == 1) continue;
    std::vector<Group>& groups = is_reduced[dim] ? layout.reduced : layout.kept;
    if (!first && last_kind == is_reduced[dim]) {
      groups.back().size *= args.shape[dim];
      groups.back().stride = strides[dim];
    } else {
      groups.push_back({args.shape[dim], strides[dim]});
    }
    first = false;
    last_kind = is_reduced[dim];
  }
  if (!first) {
    std::vector<Group>& groups = last_kind ? layout.reduced : layout.kept;
    layout.inner = groups.back().size;
    layout.inner_reduced = last_kind;
    groups.pop_back();
  }
  if (!layout.inner_reduced && layout.reduced.empty()) layout.reduced.push_back({1, 0});
  layout.outputs = product_of(layout.kept);
  layout.units = product_of(layout.reduced);
  if (layout.inner_reduced) {
    layout.pieces_per_row = (layout.inner + kPiece - 1) / kPiece;
    layout.units *= layout.pieces_per_row;
  } else {
    layout.column_tiles = (layout.inner + kColumns - 1) / kColumns;
  }
  if (layout.outputs * layout.column_tiles < kEnoughTasks) {
    const std::int64_t most = std::min(kMaxChunks, layout.units);
    layout.chunks = std::clamp<std::int64_t>(args.shape.elements() / kChunkElements, 1,
                                             std::max<std::int64_t>(most, 1));
  }
  return layout;
}

std::int64_t result_elements(const Layout& layout) {
  return layout.outputs * (layout.inner_reduced ? 1 : layout.inner);
}

double identity_of(ReduceCode code) {
  if (code == ReduceCode::sum) return 0.0;
  const double infinity = std::numeric_limits<double>::infinity();
  return code == ReduceCode::max ? -infinity : infinity;
}

double combine(ReduceCode code, double a, double b) {
  if (code == ReduceCode::sum) return a + b;
  const bool second = code == ReduceCode::max ? b > a : b < a;
  return second || b != b ? b : a;
}

/// A reduction whose blocks are reduced in T.
template <typename T>
class ReduceRun {
 public:
  ReduceRun(const ReduceArgs& args, const CpuDevice& device)
      : code_(args.code), layout_(layout_of(args)) {
    const VectorLoops& loops = vector_loops();
    const DType own = std::is_same_v<T, float> ? DType::float32 : DType::float64;
    const auto index = [](DType dtype) { return static_cast<std::size_t>(dtype); };
    reduce_ = loops.typed<T>().reduce[static_cast<std::size_t>(code_)];
    accumulate_ = loops.typed<T>().accumulate[static_cast<std::size_t>(code_)];
    load_ = args.from == own ? nullptr : loops.convert[index(args.from)][index(own)];
    store_ = loops.convert[index(DType::float64)][index(args.to)];
    from_size_ = static_cast<std::int64_t>(size_of(args.from));
    to_size_ = static_cast<std::int64_t>(size_of(args.to));
    tasks_ = layout_.outputs * layout_.column_tiles * layout_.chunks;
    threads_ = threads_for(device, args.shape.elements(), 65536);
  }

  void operator()(const void* input, void* output, void* workspace) const {
    const auto* from = static_cast<const std::byte*>(input);
    auto* to = static_cast<std::byte*>(output);
    if (result_elements(layout_) == 0) return;
    if (layout_.chunks == 1) {
      parallel_ranges(threads_, tasks_, [&](std::int64_t begin, std::int64_t end) {
        if (layout_.inner_reduced) {
          store_rows(from, to, begin, end);
        } else {
          for (std::int64_t task = begin; task < end; ++task) store_columns(from, to, task);
        }
      });
      return;
    }
    auto* partial = static_cast<double*>(workspace);
    const std::int64_t width = result_elements(layout_);
    parallel_ranges(threads_, tasks_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t chunk = task % layout_.chunks;
        const std::int64_t place = task / layout_.chunks;
        run(from, place, part_of(layout_.units, layout_.chunks, chunk),
            partial + chunk * width + first_result(place));
      }
    });
    for (std::int64_t chunk = 1; chunk < layout_.chunks; ++chunk) {
      for (std::int64_t i = 0; i < width; ++i) {
        partial[i] = combine(code_, partial[i], partial[chunk * width + i]);
      }
    }
    store_(partial, to, width);
  }

 private:
  /// First result of a place: an output, and a tile of columns of it.
  std::int64_t first_result(std::int64_t place) const {
    if (layout_.inner_reduced) return place;
    return place / layout_.column_tiles * layout_.inner + place % layout_.column_tiles * kColumns;
  }

  void store_rows(const std::byte* from, std::byte* to, std::int64_t begin,
                  std::int64_t end) const {
    double results[kColumns];
    while (begin < end) {
      const std::int64_t n = std::min(kColumns, end - begin);
      for (std::int64_t i = 0; i < n; ++i) {
        results[i] =
            run_row(from + offset_of(layout_.kept, begin + i) * from_size_, {0, layout_.units});
      }
      store_(results, to + begin * to_size_, n);
      begin += n;
    }
  }

  void store_columns(const std::byte* from, std::byte* to, std::int64_t place) const {
    double results[kColumns];
    const std::int64_t n = run(from, place, {0, layout_.units}, results);
    store_(results, to + first_result(place) * to_size_, n);
  }

  /// Reduces units of one place; returns the number of results.
  std::int64_t run(const std::byte* from, std::int64_t place, Range units, double* results) const {
    if (layout_.inner_reduced) {
      *results = run_row(from + offset_of(layout_.kept, place) * from_size_, units);
      return 1;
    }
    const std::int64_t column = place % layout_.column_tiles * kColumns;
    const std::int64_t n = std::min(kColumns, layout_.inner - column);
    const std::int64_t offset = offset_of(layout_.kept, place / layout_.column_tiles) + column;
    run_columns(from + offset * from_size_, units, results, n);
    return n;
  }

  double run_row(const std::byte* from, Range units) const {
    double result = identity_of(code_);
    if (layout_.units == 1 && load_ == nullptr) {
      return reduce_(reinterpret_cast<const T*>(from), layout_.inner);
    }
    for (std::int64_t unit = units.begin; unit < units.end; ++unit) {
      const std::int64_t begin = unit % layout_.pieces_per_row * kPiece;
      const std::int64_t n = std::min(kPiece, layout_.inner - begin);
      const std::int64_t offset = offset_of(layout_.reduced, unit / layout_.pieces_per_row) + begin;
      const std::byte* x = from + offset * from_size_;
      if (load_ == nullptr) {
        result = combine(code_, result, reduce_(reinterpret_cast<const T*>(x), n));
        continue;
      }
      T converted[kColumns];
      for (std::int64_t i = 0; i < n; i += kColumns) {
        const std::int64_t length = std::min(kColumns, n - i);
        load_(x + i * from_size_, converted, length);
        result = combine(code_, result, reduce_(converted, length));
      }
    }
    return result;
  }

  void run_columns(const std::byte* from, Range units, double* results, std::int64_t n) const {
    std::fill_n(results, n, identity_of(code_));
    T block[kColumns];
    std::int64_t unit = units.begin;
    while (unit < units.end) {
      // Lines of the innermost reduced group lie at one stride.
      const Group& lines = layout_.reduced.back();
      const std::int64_t in_group = unit % lines.size;
      const std::int64_t rows = std::min({kBlockRows, lines.size - in_group, units.end - unit});
      std::fill_n(block, n, static_cast<T>(identity_of(code_)));
      add_lines(from + offset_of(layout_.reduced, unit) * from_size_, lines.stride, rows, block, n);
      for (std::int64_t j = 0; j < n; ++j) {
        results[j] = combine(code_, results[j], static_cast<double>(block[j]));
      }
      unit += rows;
    }
  }

  void add_lines(const std::byte* x, std::int64_t stride, std::int64_t rows, T* block,
                 std::int64_t n) const {
    if (load_ == nullptr) {
      accumulate_(reinterpret_cast<const T*>(x), stride, rows, block, n);
      return;
    }
    T converted[kConvertedRows * kColumns];
    for (std::int64_t row = 0; row < rows; row += kConvertedRows) {
      const std::int64_t count = std::min(kConvertedRows, rows - row);
      for (std::int64_t i = 0; i < count; ++i) {
        load_(x + (row + i) * stride * from_size_, converted + i * kColumns, n);
      }
      accumulate_(converted, kColumns, count, block, n);
    }
  }

  ReduceCode code_;
  Layout layout_;
  ReduceLoop<T> reduce_;
  AccumulateLoop<T> accumulate_;
  ConvertLoop load_;  // null: the elements are of type T
  ConvertLoop store_;
  std::int64_t from_size_ = 0;
  std::int64_t to_size_ = 0;
  std::int64_t tasks_ = 0;
  int threads_ = 1;
};

template <typename T>
ReduceKernel make_run(const ReduceArgs& args, const CpuDevice& device) {
  return
      [run = std::make_shared<const ReduceRun<T>>(args, device)](
          const void* input, void* output, void* workspace) { (*run)(input, output, workspace); };
}

}  // namespace

std::int64_t reduce_workspace_bytes(const ReduceArgs& args) {
  const Layout layout = layout_of(args);
  if (layout.chunks == 1) return 0;
  return layout.chunks * result_elements(layout) * static_cast<std::int64_t>(sizeof(double));
}

ReduceKernel prepare_reduce(const ReduceArgs& args, const CpuDevice& device) {
  const bool wide =
      args.from == DType::float64 || args.from == DType::int32 || args.from == DType::int64;
  return wide ? make_run<double>(args, device) : make_run<float>(args, device);
}

}  // namespace tessera::kernels
