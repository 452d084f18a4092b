// Checks that the trainer makes before anything starts, with problems placed in the config; and
// what a config says beyond the public options.
#pragma once

#include <optional>
#include <string>

#include "api/model.h"
#include "base/json.h"

namespace tessera {

/// The `distribution` section for a job, or a rehearsal, of `ranks` ranks. nullopt when there were
/// problems.
std::optional<distribution::Distribution> read_config_distribution(const json::Value* section,
                                                                   const std::string& path,
                                                                   int ranks,
                                                                   const std::string& folder,
                                                                   json::Problems& problems);
/// Losses, metrics and optimizer by name and argument. Without a model, for one output of any
/// shape.
void check_compile_options(const Model* model, const CompileOptions& options,
                           const std::string& path, json::Problems& problems);
void check_callback(const json::Value& value, const std::string& path, json::Problems& problems);
/// Keys of one of data.train, data.validation, data.test. Without a model, for one input and one
/// output.
void check_data_section(const json::Value& section, const std::string& path, const Model* model,
                        json::Problems& problems);

}  // namespace tessera
