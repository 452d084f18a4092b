// What a library model holds, and the calls that the trainer makes besides the public ones.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/distribution_data.h"
#include "api/model.h"
#include "base/json.h"
#include "layouts/binding.h"
#include "models/model.h"
#include "runtime/data/dataset.h"
#include "runtime/train/fit.h"
#include "runtime/train/session.h"

namespace tessera {

struct Dataset::Data {
  /// Opened for a model; `with_targets` false: inputs alone.
  data::Dataset open(const train::ModelInterface& model, bool with_targets) const;

  std::optional<Arrays> arrays;                // given in code
  std::shared_ptr<const json::Value> section;  // or described
  std::filesystem::path folder;
};

struct Model::Data {
  explicit Data(distribution::Distribution where) : distribution(std::move(where)) {}

  std::unique_ptr<models::Model> model;
  graph::VariableTable table;
  distribution::Distribution distribution;
  layouts::Binding binding;  // rules and placements of the weights
  train::ModelInterface interface;
  std::uint64_t seed = 0;
  std::string policy;
  std::optional<CompileOptions> options;
  std::unique_ptr<train::Session> session;

  /// The session, made (and the weights initialised) when first asked for. Throws config when the
  /// mesh is not that of the job.
  train::Session& open_session();
  /// The session compiled for these targets.
  train::Session& compiled_session(const data::Dataset& dataset);
};

/// The compile section that options stand for.
json::Value compile_section(const CompileOptions& options);
/// What a data section must give: names and shapes of the model's inputs and outputs.
data::Expected expected_of(const train::ModelInterface& model, bool with_targets);

}  // namespace tessera
