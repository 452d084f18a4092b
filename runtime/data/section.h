// One section of the config's data, read: what opening a data set needs to know.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/shape.h"
#include "runtime/data/dataset.h"

namespace tessera::data {

/// The section, read once for checking and once for opening.
struct Section {
  /// Array name for each input or output.
  using Names = std::vector<std::pair<std::string, std::string>>;

  std::string format;
  std::vector<std::string> paths;
  Names x, y, weights;
  std::vector<std::string> x_columns, y_columns;
  bool y_is_list = false;
  bool header = true;
  std::string separator = ",";
  std::string raw, tokenizer;
  std::int64_t sequence_length = 0;
  double split_begin = 0.0, split_end = 1.0;
  std::int64_t samples = 0;
  struct Drawn {
    std::string name;
    Shape shape;
    std::string distribution;
    std::int64_t high;
  };
  std::vector<Drawn> drawn_x, drawn_y;
};

Section read_section(const json::Value& value, const std::string& path, const Expected& expected,
                     json::Problems& problems);

}  // namespace tessera::data
