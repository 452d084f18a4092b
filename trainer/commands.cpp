#include "trainer/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "api/checks.h"
#include "trainer/config_reference.h"
#include "trainer/config_table.h"

namespace tessera::trainer {
namespace {

namespace fs = std::filesystem;

bool is_first_rank() { return rank_of_job() == 0; }

/// Results go to standard output, from one rank.
void print(const std::string& text) {
  if (!is_first_rank()) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return;
  throw Error(Error::Kind::internal,
              fmt::format("standard output: cannot be written: {}", std::strerror(errno)));
}

void use_runtime(const Run& run) {
  const json::Value* runtime = run.config.find("runtime");
  set_runtime(static_cast<int>(runtime->find("threads")->integer),
              runtime->find("watchdog_seconds")->number);
}

/// All ranks must do the same work. What may differ from node to node (paths, threads) is left out;
/// the model and its layouts are compared with the program that comes of them.
void require_same_work(const Run& run, const std::string& command) {
  std::vector<std::pair<std::string, json::Value>> shared = {{"command", json::make(command)}};
  for (const json::Member& section : run.config.object) {
    if (section.key != "data" && section.key != "model" && section.key != "initial_weights" &&
        section.key != "output" && section.key != "runtime") {
      shared.emplace_back(section.key, section.value);
    }
  }
  require_same_on_all_ranks(json::dump(json::make_object(std::move(shared)), -1));
}

/// The folder of a run must be absent or empty, unless the user said otherwise.
void check_output_dir(const fs::path& folder, bool overwrite, bool resume) {
  if (overwrite || resume || !fs::exists(folder)) return;
  if (fs::is_directory(folder) && fs::is_empty(folder)) return;
  throw Error(
      Error::Kind::config,
      fmt::format(
          "{}: exists and is not empty; give --overwrite, --resume auto, or another --output",
          folder.string()));
}

/// mpirun lends its ranks terminals of their own, so only a process that was started alone can tell
/// that a person is watching.
bool on_terminal() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr && isatty(STDOUT_FILENO) != 0;
}

void load_initial_weights(Run& run, const std::string& given) {
  const fs::path file = given.empty() ? run.initial_weights : fs::path(given);
  if (file.empty()) return;
  const bool partial = given.empty() && run.partial_weights;
  for (const std::string& line : run.model->load_weights(file, partial)) {
    if (is_first_rank()) fmt::print(stderr, "warning: {}: {}\n", file.string(), line);
  }
}

void require_weights(const Run& run, const WeightsOptions& options) {
  if (!options.weights.empty() || !run.initial_weights.empty()) return;
  throw Error(Error::Kind::config, "--weights FILE is needed: the config has no initial_weights");
}

/// Before the work is done, not after it.
void check_predictions_file(const fs::path& file) {
  if (file.extension() != ".npy") {
    throw Error(Error::Kind::config, fmt::format("--out {}: predictions are written as .npy; let "
                                                 "the path end so",
                                                 file.string()));
  }
  const fs::path folder = file.parent_path();
  if (is_first_rank() && !folder.empty() && !fs::is_directory(folder)) {
    throw Error(Error::Kind::config,
                fmt::format("--out {}: there is no folder {}", file.string(), folder.string()));
  }
}

std::int64_t batch_size_of(const Run& run) {
  if (run.fit.batch_size > 0) return run.fit.batch_size;
  return run.fit.steps_per_epoch ? (run.train->rows(*run.model) + *run.fit.steps_per_epoch - 1) /
                                       *run.fit.steps_per_epoch
                                 : 32;
}

}  // namespace

void train(const TrainOptions& options) {
  Run run = load_run(options.config, {.training_data = true});
  if (!options.output.empty()) run.output_dir = options.output;
  use_runtime(run);
  require_same_work(run, "train --resume=" + options.resume);
  check_output_dir(run.output_dir, options.overwrite, !options.resume.empty());
  load_initial_weights(run, "");
  run.fit.output_dir = run.output_dir;
  run.fit.resume = options.resume;
  run.fit.terminal = on_terminal();
  run.fit.config_text = json::dump(run.config) + "\n";
  run.model->fit(*run.train, run.fit);
}

void plan(const PlanOptions& options) {
  if (options.ranks < 1)
    throw Error(Error::Kind::config,
                fmt::format("--ranks is {}: expected at least 1", options.ranks));
  if (options.rank < 0 || options.rank >= options.ranks) {
    throw Error(Error::Kind::config, fmt::format("--rank is {}: expected 0 to {}, below --ranks {}",
                                                 options.rank, options.ranks - 1, options.ranks));
  }
  const Run run = load_run(options.config, {.training_data = true, .ranks = options.ranks});
  if (!run.initial_weights.empty())
    check_weights_file(*run.model, run.initial_weights, run.partial_weights);
  const Plan plan = run.model->plan(*run.train, batch_size_of(run), options.rank);
  print(options.format == "json" ? plan.json() + "\n" : plan.text());
}

void evaluate(const WeightsOptions& options) {
  Run run = load_run(options.config, {.test_data = true});
  use_runtime(run);
  require_same_work(run, "evaluate");
  require_weights(run, options);
  load_initial_weights(run, options.weights);
  const auto results = run.model->evaluate(
      *run.test, {.batch_size = run.fit.batch_size > 0 ? run.fit.batch_size : 32});
  std::string line;
  for (const auto& [name, value] : results)
    line += fmt::format("{}{}: {:.6g}", line.empty() ? "" : " - ", name, value);
  print(line + "\n");
}

void predict(const WeightsOptions& options) {
  check_predictions_file(options.out);
  Run run = load_run(options.config, {.test_data = true, .compiled = false});
  use_runtime(run);
  require_same_work(run, "predict");
  require_weights(run, options);
  load_initial_weights(run, options.weights);
  const std::vector<Tensor> outputs =
      run.model->predict(*run.test, run.fit.batch_size > 0 ? run.fit.batch_size : 32);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    fs::path file = options.out;
    if (outputs.size() > 1)
      file.replace_filename(
          fmt::format("{}_{}{}", file.stem().string(), i, file.extension().string()));
    const std::vector<float> values = outputs[i].to_host();
    if (is_first_rank()) save_npy(file, values, outputs[i].shape());
  }
}

void summary(const ConfigSource& config) {
  const Run run = load_run(config, {.compiled = false});
  print(run.model->summary());
}

void devices() {
  const std::string table = device_table();
  print(table);
}

void schema(const std::string& format) {
  print(format == "markdown" ? config_reference() : json::dump(config_schema()) + "\n");
}

}  // namespace tessera::trainer
