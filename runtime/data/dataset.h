// Data sets as the config describes them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "runtime/data/source.h"

namespace tessera::data {

/// An array and the model's input or output that it is for.
struct Column {
  std::string name;
  std::shared_ptr<const Source> source;
};

struct Dataset {
  std::string shown;  // file, for messages
  std::int64_t rows = 0;
  std::vector<Column> x;        // one per model input, in the model's order
  std::vector<Column> y;        // one per model output that has data; empty: none
  std::vector<Column> weights;  // sample weights: as y, or one for all
};

/// What the model takes: names and shapes of one sample.
struct Expected {
  struct Tensor {
    std::string name;
    Shape sample_shape;
    std::int64_t limit = 0;  // integer ids must lie below this; 0: no limit
  };
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  bool needs_targets = true;
};

/// Checks one of data.train, data.validation, data.test: keys, types, names (problems of the
/// config; nothing is opened).
void check_section(const json::Value& section, const std::string& path, const Expected& expected,
                   json::Problems& problems);

/// Opens what a checked section names. `folder`: where relative paths start. `seed` feeds synthetic
/// data. Throws data (with file and place).
Dataset open_dataset(const json::Value& section, const std::string& folder,
                     const Expected& expected, std::uint64_t seed);

/// Rows begin..begin+count-1.
Dataset rows_of(const Dataset& dataset, std::int64_t begin, std::int64_t count);

/// What a value must satisfy.
struct Demand {
  std::int64_t classes = 0;   // > 0: whole numbers from 0 to classes-1
  std::int64_t ignored = -1;  // a label that is allowed besides (when has_ignored)
  bool has_ignored = false;
};

/// First row from `begin` on with a value that is not finite or breaks `demand`: a message with
/// place and value, or "". Checks rows begin..end-1. The caller spreads rows over ranks and lets
/// the smallest row win.
struct Violation {
  std::int64_t row = -1;
  std::string message;
};
Violation find_violation(const Source& source, const Demand& demand, std::int64_t begin,
                         std::int64_t end);

}  // namespace tessera::data
