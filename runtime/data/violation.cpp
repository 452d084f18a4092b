// Values that a model or a loss cannot take: where the first one stands.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/data/dataset.h"

namespace tessera::data {
namespace {

std::string shown_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "infinity" : "-infinity";
  return fmt::format("{}", value);
}

}  // namespace

Violation find_violation(const Source& source, const Demand& demand, std::int64_t begin,
                         std::int64_t end) {
  constexpr std::int64_t kElements = 1 << 16;
  const std::int64_t elements = source.sample_elements();
  if (elements == 0 || (source.integral() && demand.classes == 0)) return {};
  const std::int64_t piece = std::max<std::int64_t>(1, kElements / elements);
  std::vector<double> values;
  std::vector<std::int64_t> rows;
  for (std::int64_t first = begin; first < end; first += piece) {
    rows.clear();
    for (std::int64_t row = first; row < std::min(end, first + piece); ++row) rows.push_back(row);
    values.resize(rows.size() * static_cast<std::size_t>(elements));
    source.read(rows, DType::float64, values.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double value = values[i];
      const bool whole = value == std::trunc(value) && std::isfinite(value);
      std::string wrong;
      if (!std::isfinite(value)) {
        wrong = fmt::format("{} is not a finite number", shown_number(value));
      } else if (demand.classes > 0 && !whole) {
        wrong = fmt::format("{} is not a whole number, a class from 0 to {} was expected", value,
                            demand.classes - 1);
      } else if (demand.classes > 0 &&
                 !(value >= 0 && value < static_cast<double>(demand.classes)) &&
                 !(demand.has_ignored && value == static_cast<double>(demand.ignored))) {
        wrong = fmt::format("{} is out of range: expected 0 to {} ({} classes)", value,
                            demand.classes - 1, demand.classes);
      }
      if (wrong.empty()) continue;
      const std::int64_t row = rows[i / static_cast<std::size_t>(elements)];
      return {row, fmt::format("{}: {}", source.place(row, static_cast<std::int64_t>(i) % elements),
                               wrong)};
    }
  }
  return {};
}

}  // namespace tessera::data
