// Checks that the trainer makes before anything starts, with problems placed in the config; and
// what a config says beyond the public options.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
/// Names, shapes and types of a file of weights, without reading values. Throws weights.
void check_weights_file(const Model& model, const std::filesystem::path& file, bool partial);
/// Keys of one of data.train, data.validation, data.test. Without a model, for one input and one
/// output.
void check_data_section(const json::Value& section, const std::string& path, const Model* model,
                        json::Problems& problems);

/// Classes that a config may name: what they are ("optimizers"), and their names.
std::vector<std::pair<std::string, std::vector<std::string>>> known_classes();

// ---- the job ----

/// Rank as the launcher's environment gives it, without joining the job; 0 when there is none.
int launched_rank();
/// Rank in the job (joins it).
int rank_of_job();
/// How long this process may wait for the others to join the job (0: for ever); before it joins.
void set_join_seconds(double seconds);
/// All of standard input. Launchers give it to rank 0 alone, so that rank reads it and tells the
/// others (joins the job).
std::string standard_input_of_job();
/// Threads of each rank (0: the node's cores divided by its ranks) and the watchdog's time (0:
/// none).
void set_runtime(int threads, double watchdog_seconds);
/// Throws rank_lost naming the ranks that were started with another command or config than rank 0.
/// `text` is what has to be the same. Collective.
void require_same_on_all_ranks(const std::string& text);
/// A line for each rank: host, local rank, device, PCI bus id, threads. Collective.
std::string device_table();
/// Reports an error and ends all ranks of the job with this status; returns it where this process
/// is alone.
int end_job(int status, const std::string& message);

/// Writes float32 values as .npy, atomically.
void save_npy(const std::filesystem::path& file, const std::vector<float>& values,
              const std::vector<std::int64_t>& shape);

}  // namespace tessera
