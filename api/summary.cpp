#include "api/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tessera {
namespace {

using Cells = std::vector<std::string>;

/// Columns of a UTF-8 text on a terminal: one per character.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string repeated(std::string_view piece, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += piece;
  return text;
}

/// A boxed table; numbers of the last column of a row are aligned to the right.
class Table {
 public:
  explicit Table(Cells header) : rows_{std::move(header)} {}
  void add(Cells cells) { rows_.push_back(std::move(cells)); }

  std::string text(std::size_t right_aligned) const {
    std::vector<std::size_t> widths(rows_.front().size(), 0);
    for (const Cells& row : rows_) {
      for (std::size_t i = 0; i < row.size(); ++i)
        widths[i] = std::max(widths[i], width_of(row[i]));
    }
    std::string text = line(widths, "┏", "━", "┳", "┓");
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const std::string_view bar = r == 0 ? "┃" : "│";
      for (std::size_t i = 0; i < widths.size(); ++i) {
        const std::string space = repeated(" ", widths[i] - width_of(rows_[r][i]));
        text += fmt::format(
            "{} {} ", bar, i == right_aligned && r > 0 ? space + rows_[r][i] : rows_[r][i] + space);
      }
      text += fmt::format("{}\n", bar);
      if (r == 0) text += line(widths, "┡", "━", "╇", "┩");
    }
    return text + line(widths, "└", "─", "┴", "┘");
  }

 private:
  static std::string line(const std::vector<std::size_t>& widths, std::string_view left,
                          std::string_view dash, std::string_view cross, std::string_view right) {
    std::string text(left);
    for (std::size_t i = 0; i < widths.size(); ++i) {
      text += repeated(dash, widths[i] + 2);
      text += i + 1 < widths.size() ? cross : right;
    }
    return text + "\n";
  }

  std::vector<Cells> rows_;
};

/// Digits in groups of three: "1,234".
std::string grouped(std::int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

std::string shown_bytes(std::int64_t bytes) {
  static constexpr std::array<std::string_view, 5> kUnits{"B", "KB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

}  // namespace

std::string summary_text(const std::string& name, const std::vector<models::LayerRow>& rows,
                         const graph::VariableTable& table,
                         const distribution::Distribution& distribution) {
  const bool connected = std::any_of(rows.begin(), rows.end(), [](const models::LayerRow& row) {
    return !row.connected_to.empty();
  });
  Cells header{"Layer (type)", "Output Shape", "Param #"};
  if (connected) header.emplace_back("Connected to");
  Table layers(header);
  for (const models::LayerRow& row : rows) {
    Cells cells{fmt::format("{}{} ({})", std::string(static_cast<std::size_t>(row.depth) * 2, ' '),
                            row.name, row.class_name),
                row.output_shape, grouped(row.parameters)};
    if (connected) cells.push_back(row.connected_to);
    layers.add(std::move(cells));
  }
  std::int64_t trainable = 0;
  std::int64_t frozen = 0;
  std::int64_t trainable_bytes = 0;
  std::int64_t frozen_bytes = 0;
  const layouts::Mesh mesh = distribution::mesh_of(distribution.device_mesh());
  Table variables({"Variable", "Shape", "Layout"});
  bool any = false;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const graph::Variable& variable = table[static_cast<graph::VariableId>(i)];
    if (variable.role != graph::Role::weight) continue;
    any = true;
    (variable.trainable ? trainable : frozen) += variable.shape.elements();
    (variable.trainable ? trainable_bytes : frozen_bytes) +=
        variable.shape.elements() * static_cast<std::int64_t>(size_of(variable.dtype));
    variables.add(
        {variable.path, to_string(variable.shape), layouts::to_string(*variable.storage, mesh)});
  }
  std::string text = fmt::format("Model: \"{}\"\n{}", name, layers.text(2));
  text += fmt::format(
      " Total params: {} ({})\n Trainable params: {} ({})\n Non-trainable params: {} ({})\n",
      grouped(trainable + frozen), shown_bytes(trainable_bytes + frozen_bytes), grouped(trainable),
      shown_bytes(trainable_bytes), grouped(frozen), shown_bytes(frozen_bytes));
  if (any)
    text += fmt::format("\nLayouts on the mesh [{}] ({})\n{}", fmt::join(mesh.shape(), ", "),
                        fmt::join(mesh.axis_names(), ", "), variables.text(9));
  return text;
}

}  // namespace tessera
