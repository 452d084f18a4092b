// A config, checked and turned into the library's types.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "api/tessera.h"
#include "base/json.h"

namespace tessera::trainer {

/// What the command line says about a config.
struct ConfigSource {
  std::string file;               // "-": standard input
  std::vector<std::string> sets;  // --set, in order
};

/// Which parts a command needs.
struct Needs {
  bool training_data = false;  // data.train must be there
  bool test_data = false;      // data.test, or data.validation
  bool compiled = true;        // the compile section is read
  int ranks = 0;               // 0: those of the job
};

struct Run {
  json::Value config;            // with defaults
  std::filesystem::path folder;  // where paths that are read start
  std::filesystem::path output_dir;
  std::optional<Model> model;
  CompileOptions compile;
  FitOptions fit;
  std::optional<Dataset> train;
  std::optional<Dataset> test;
  std::filesystem::path initial_weights;  // empty: none
  bool partial_weights = false;
};

/// Reads, applies --set, checks everything that can be checked without data, and makes the model
/// under the config's distribution. Throws one config error with all problems.
Run load_run(const ConfigSource& source, const Needs& needs);

}  // namespace tessera::trainer
