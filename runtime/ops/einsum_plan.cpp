// Sorts the letters of an equation into batch, rows, columns and summed ones, and finds the strides
// of the matrix product.
#include "runtime/ops/einsum_plan.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/workspace.h"

namespace tessera::ops {
namespace {

using kernels::MatmulOperand;
using kernels::StridedCopy;

bool has(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

/// Letters of `from` that stand in `in` and not in `out`, in the order of `from`.
std::string select(const std::string& from, const std::string& in, const std::string& out) {
  std::string found;
  for (const char letter : from) {
    if (has(in, letter) && !has(out, letter)) found.push_back(letter);
  }
  return found;
}

std::int64_t size_of_letter(const EinsumTerm& term, char letter) {
  return term.shape[term.letters.find(letter)];
}

std::int64_t size_of_group(const EinsumTerm& term, const std::string& group) {
  std::int64_t product = 1;
  for (const char letter : group) product *= size_of_letter(term, letter);
  return product;
}

std::int64_t stride_of_letter(const EinsumTerm& term, char letter) {
  return term.shape.strides()[term.letters.find(letter)];
}

/// The one stride that walks a group of letters of a dense term in this order; none if there is no
/// such stride. 1 for a group of one element.
std::optional<std::int64_t> stride_of_group(const EinsumTerm& term, const std::string& group) {
  std::optional<std::int64_t> stride;
  std::int64_t expected = 0;
  for (std::size_t i = group.size(); i-- > 0;) {
    const std::int64_t size = size_of_letter(term, group[i]);
    if (size == 1) continue;
    const std::int64_t own = stride_of_letter(term, group[i]);
    if (!stride) {
      stride = own;
    } else if (own != expected) {
      return std::nullopt;
    }
    expected = own * size;
  }
  return stride ? stride : 1;
}

/// Strides of a matrix in a term as it lies, where one of them is 1; else none.
std::optional<MatmulOperand> matrix_of(const EinsumTerm& term, const std::string& rows,
                                       const std::string& columns) {
  const std::optional<std::int64_t> row = stride_of_group(term, rows);
  const std::optional<std::int64_t> column = stride_of_group(term, columns);
  if (!row || !column) return std::nullopt;
  const bool one_row = size_of_group(term, rows) == 1;
  const bool one_column = size_of_group(term, columns) == 1;
  if (*row != 1 && *column != 1 && !one_row && !one_column) return std::nullopt;
  MatmulOperand operand;
  operand.dtype = term.dtype;
  operand.elements = term.shape.elements();
  operand.row = *row;
  operand.column = *column;
  return operand;
}

/// The same elements with dimensions in another order, dense.
EinsumTerm arranged(const EinsumTerm& term, const std::string& letters) {
  EinsumTerm result{letters, {}, term.dtype};
  for (const char letter : letters) result.shape.push_back(size_of_letter(term, letter));
  return result;
}

StridedCopy copy_between(const EinsumTerm& from, const EinsumTerm& to) {
  Shape in_strides;
  for (const char letter : to.letters) in_strides.push_back(stride_of_letter(from, letter));
  return kernels::plan_strided_copy(to.shape, in_strides, to.shape.strides(), size_of(to.dtype));
}

/// Letters of a product: all in the order in which they are walked.
struct Groups {
  std::string batch;
  std::string rows;
  std::string columns;
  std::string summed;
};

Groups groups_of(const EinsumTerm& a, const EinsumTerm& b, const EinsumTerm& c) {
  Groups groups;
  for (const char letter : c.letters) {
    const bool in_a = has(a.letters, letter);
    const bool in_b = has(b.letters, letter);
    (in_a && in_b ? groups.batch : (in_a ? groups.rows : groups.columns)).push_back(letter);
  }
  // The order of the summed letters is free: one that suits both operands, where there is one.
  groups.summed = select(a.letters, b.letters, c.letters);
  const std::string other = select(b.letters, a.letters, c.letters);
  const auto suits = [&](const std::string& order) {
    return stride_of_group(a, order).has_value() && stride_of_group(b, order).has_value();
  };
  if (!suits(groups.summed) && suits(other)) groups.summed = other;
  return groups;
}

class Planner {
 public:
  Planner(EinsumTerm a, EinsumTerm b, EinsumTerm c)
      : a_(std::move(a)), b_(std::move(b)), c_(std::move(c)) {}

  EinsumPlan run(std::optional<DType> bias, std::optional<kernels::MapCode> activation) {
    const Groups as_given = groups_of(a_, b_, c_);
    // Rows of the result lie dense when its last dimension belongs to the second operand.
    plan_.swapped =
        !c_.letters.empty() && has(as_given.rows, c_.letters.back()) && !as_given.columns.empty();
    if (plan_.swapped) std::swap(a_, b_);
    groups_ = groups_of(a_, b_, c_);
    kernels::MatmulArgs& product = plan_.product;
    product.m = size_of_group(a_, groups_.rows);
    product.n = size_of_group(b_, groups_.columns);
    product.k = size_of_group(a_, groups_.summed);
    product.bias = bias;
    product.activation = activation;
    std::optional<StridedCopy> first;
    std::optional<StridedCopy> second;
    std::int64_t first_place = 0;
    std::int64_t second_place = 0;
    product.a = read(a_, groups_.rows, groups_.summed, first, first_place);
    product.b = read(b_, groups_.summed, groups_.columns, second, second_place);
    (plan_.swapped ? plan_.copy_b : plan_.copy_a) = first;
    (plan_.swapped ? plan_.copy_a : plan_.copy_b) = second;
    (plan_.swapped ? plan_.place_b : plan_.place_a) = first_place;
    (plan_.swapped ? plan_.place_a : plan_.place_b) = second_place;
    write();
    add_batch();
    plan_.place_product = plan_.workspace_bytes;
    plan_.workspace_bytes += kernels::matmul_workspace_bytes(product);
    return std::move(plan_);
  }

 private:
  std::int64_t reserve(const EinsumTerm& term) {
    const std::int64_t place = plan_.workspace_bytes;
    const std::int64_t bytes =
        term.shape.elements() * static_cast<std::int64_t>(size_of(term.dtype));
    plan_.workspace_bytes += kernels::aligned(bytes);
    return place;
  }

  /// An operand as it lies, or as a copy [batch..., rows..., columns...].
  MatmulOperand read(EinsumTerm& term, const std::string& rows, const std::string& columns,
                     std::optional<StridedCopy>& copy, std::int64_t& place) {
    if (const auto direct = matrix_of(term, rows, columns)) return *direct;
    const EinsumTerm moved = arranged(term, groups_.batch + rows + columns);
    copy = copy_between(term, moved);
    place = reserve(moved);
    term = moved;
    return *matrix_of(term, rows, columns);
  }

  void write() {
    const auto direct = matrix_of(c_, groups_.rows, groups_.columns);
    if (direct && (direct->column == 1 || plan_.product.n == 1)) {
      plan_.product.c = *direct;
      return;
    }
    const EinsumTerm moved = arranged(c_, groups_.batch + groups_.rows + groups_.columns);
    plan_.copy_c = copy_between(moved, c_);
    plan_.place_c = reserve(moved);
    c_ = moved;
    plan_.product.c = *matrix_of(c_, groups_.rows, groups_.columns);
  }

  /// Batch dimensions, neighbours merged where all three terms allow it.
  void add_batch() {
    kernels::MatmulArgs& product = plan_.product;
    for (const char letter : groups_.batch) {
      const std::int64_t size = size_of_letter(c_, letter);
      if (size == 1) continue;
      const std::array<std::int64_t, 3> strides = {
          stride_of_letter(a_, letter), stride_of_letter(b_, letter), stride_of_letter(c_, letter)};
      const std::array<MatmulOperand*, 3> operands = {&product.a, &product.b, &product.c};
      bool merges = !product.batch.empty();
      for (std::size_t i = 0; merges && i < 3; ++i) {
        merges = operands[i]->batch.back() == strides[i] * size;
      }
      for (std::size_t i = 0; i < 3; ++i) {
        if (merges) operands[i]->batch.pop_back();
        operands[i]->batch.push_back(strides[i]);
      }
      if (merges) {
        product.batch.back() *= size;
      } else {
        product.batch.push_back(size);
      }
    }
  }

  EinsumTerm a_;
  EinsumTerm b_;
  EinsumTerm c_;
  Groups groups_;
  EinsumPlan plan_;
};

}  // namespace

EinsumPlan plan_einsum(const EinsumTerm& a, const EinsumTerm& b, const EinsumTerm& c,
                       std::optional<DType> bias, std::optional<kernels::MapCode> activation) {
  EinsumPlan plan = Planner(a, b, c).run(bias, activation);
  check(!(bias && plan.swapped), "einsum: a bias needs columns of the second operand");
  return plan;
}

}  // namespace tessera::ops
