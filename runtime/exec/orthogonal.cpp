// Gram-Schmidt, each column twice: as orthogonal as double arithmetic allows.
#include "runtime/exec/orthogonal.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"

namespace tessera::exec {
namespace {

double dot(const double* a, const double* b, std::int64_t n) {
  // Eight sums side by side: a fixed order that vectorises.
  double sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int lane = 0; lane < 8; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  double rest = 0.0;
  for (; i < n; ++i) rest += a[i] * b[i];
  for (const double sum : sums) rest += sum;
  return rest;
}

void normalise(double* column, std::int64_t n) {
  const double length = std::sqrt(dot(column, column, n));
  for (std::int64_t i = 0; i < n; ++i) column[i] /= length;
}

/// Takes from the columns `first`.. their components along column `along`.
void project_out(std::vector<double>& columns, std::int64_t along, std::int64_t first,
                 std::int64_t count, std::int64_t n) {
  const double* unit = columns.data() + along * n;
#pragma omp parallel for schedule(static) if ((count - first) * n > 65536)
  for (std::int64_t j = first; j < count; ++j) {
    double* column = columns.data() + j * n;
    const double component = dot(unit, column, n);
    for (std::int64_t i = 0; i < n; ++i) column[i] -= component * unit[i];
  }
}

}  // namespace

std::vector<double> orthogonal_matrix(const Shape& shape, std::uint64_t key, double gain) {
  if (shape.rank() < 2) {
    throw Error(Error::Kind::config,
                "the orthogonal initializer needs at least two dimensions, the shape is " +
                    to_string(shape));
  }
  const std::int64_t columns = shape.back();
  const std::int64_t rows = columns == 0 ? 0 : shape.elements() / columns;
  const std::int64_t n = std::max(rows, columns);
  const std::int64_t count = std::min(rows, columns);
  // Column-major: q[j * n + i] is element (i, j) of the matrix [n, count].
  std::vector<double> q(static_cast<std::size_t>(n * count));
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < count; ++j) {
      q[static_cast<std::size_t>(j * n + i)] =
          static_cast<double>(random_normal(key, 0, static_cast<std::uint64_t>(i * count + j)));
    }
  }
  for (int pass = 0; pass < 2; ++pass) {
    for (std::int64_t j = 0; j < count; ++j) {
      normalise(q.data() + j * n, n);
      project_out(q, j, j + 1, count, n);
    }
  }
  std::vector<double> matrix(q.size());
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t at = rows >= columns ? i * columns + j : j * columns + i;
      matrix[static_cast<std::size_t>(at)] = gain * q[static_cast<std::size_t>(j * n + i)];
    }
  }
  return matrix;
}

}  // namespace tessera::exec
