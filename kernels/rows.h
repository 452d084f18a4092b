// Vector loops over rows: softmax, cross-entropy and normalisation along a dense last dimension.
// Compiled once per instruction-set level, as kernels/vector.h; `row_loops` gives those that this
// processor runs.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/dispatch.h"

namespace tessera::kernels {

/// Arguments of one normalisation over rows [rows, columns]. gamma, beta: [columns]. mean, rstd:
/// [rows].
template <typename T>
struct NormRows {
  using Sum = SumOf<T>;
  const T* x = nullptr;
  const Sum* gamma = nullptr;
  const Sum* beta = nullptr;
  T* y = nullptr;
  Sum* mean = nullptr;  // null: the root mean square is taken around 0
  Sum* rstd = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Sum epsilon = 0;
};

/// Its backward. dgamma and dbeta [columns] are added to.
template <typename T>
struct NormGradientRows {
  using Sum = SumOf<T>;
  const T* dy = nullptr;
  const T* x = nullptr;
  const Sum* mean = nullptr;  // null: around 0
  const Sum* rstd = nullptr;
  const Sum* gamma = nullptr;
  T* dx = nullptr;
  Sum* dgamma = nullptr;
  Sum* dbeta = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// Loops over rows of elements of type T. Elements of one row are summed in an order that depends
/// on its length alone. Results may lie in the memory of an operand of the same shape.
template <typename T>
struct TypedRowLoops {
  using Sum = SumOf<T>;
  void (*softmax)(const T* x, T* y, std::int64_t rows, std::int64_t columns);
  void (*log_softmax)(const T* x, T* y, std::int64_t rows, std::int64_t columns);
  /// dx = y (dy - sum(y dy))
  void (*softmax_gradient)(const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t columns);
  /// dx = dy - exp(y) sum(dy)
  void (*log_softmax_gradient)(const T* y, const T* dy, T* dx, std::int64_t rows,
                               std::int64_t columns);
  /// Per row: the largest element, and log(sum(exp(x - largest))).
  void (*log_sum_exp)(const T* x, Sum* largest, Sum* log_sum, std::int64_t rows,
                      std::int64_t columns);
  /// dx = scale exp(x - largest - log_sum)
  void (*scaled_probabilities)(const T* x, const Sum* largest, const Sum* log_sum, const Sum* scale,
                               T* dx, std::int64_t rows, std::int64_t columns);
  void (*norm)(const NormRows<T>& call);
  void (*norm_gradient)(const NormGradientRows<T>& call);
};

struct RowLoops {
  TypedRowLoops<float> f32;
  TypedRowLoops<double> f64;
  TypedRowLoops<BFloat16> bf16;
  TypedRowLoops<Float16> f16;

  template <typename T>
  const TypedRowLoops<T>& typed() const {
    if constexpr (std::is_same_v<T, double>) {
      return f64;
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      return bf16;
    } else if constexpr (std::is_same_v<T, Float16>) {
      return f16;
    } else {
      return f32;
    }
  }
};

/// The best level that this processor has. The same on every call.
const RowLoops& row_loops();

}  // namespace tessera::kernels
