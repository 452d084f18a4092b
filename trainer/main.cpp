// The command line of `trainer`.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "api/checks.h"
#include "base/json.h"
#include "trainer/commands.h"

namespace tessera::trainer {
namespace {

constexpr int kUsage = 2;

void add_config(CLI::App* command, ConfigSource& source) {
  command->add_option("--config", source.file, "Config of the run (JSON); - reads standard input")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--set", source.sets,
                   "Replaces a value of the config: path.to.key=value (JSON, else a string); may "
                   "be repeated")
      ->type_name("PATH=VALUE")
      ->allow_extra_args(false);
}

/// The subcommands, with what each runs.
class CommandLine {
 public:
  CommandLine() {
    app_.require_subcommand(1);
    app_.set_version_flag("--version", "trainer " TESSERA_VERSION "\n");
    add_train();
    add_plan();
    add_with_weights("evaluate", "Loss and metrics on data.test (else data.validation)", evaluate_,
                     [this] { evaluate(evaluate_); });
    CLI::App* command = add_with_weights(
        "predict", "Writes predictions for the inputs of data.test, in their order", predict_,
        [this] { predict(predict_); });
    command->add_option("--out", predict_.out, "File for the predictions")
        ->required()
        ->type_name("FILE.npy");
    command = add("summary", "Prints the table of layers and the layout of every variable",
                  [this] { summary(summary_); });
    add_config(command, summary_);
    add("devices", "Prints a line for each rank: host, local rank, device, threads",
        [] { devices(); });
    command =
        add("schema", "Prints the JSON Schema of the config", [this] { schema(schema_format_); });
    command->add_option("--format", schema_format_, "json or markdown")
        ->capture_default_str()
        ->check(CLI::IsMember({"json", "markdown"}));
    // After the subcommands, which would inherit it.
    app_.footer(
        "trainer --config FILE is short for trainer train --config FILE.\n"
        "trainer SUBCOMMAND --help lists the options of a subcommand.");
  }

  /// Runs what the arguments ask for; the exit status.
  int run(std::vector<std::string> arguments) {
    if (arguments.empty()) return usage("a subcommand is required, or --config FILE to train");
    // `trainer --config c.json` stands for `trainer train --config c.json`.
    if (arguments.front().starts_with("--") && arguments.front() != "--help" &&
        arguments.front() != "--version") {
      arguments.insert(arguments.begin(), "train");
    }
    if (!arguments.front().starts_with("-") && !names_command(arguments.front())) {
      return usage(fmt::format("unknown subcommand \"{}\"{}", arguments.front(),
                               remedy(arguments.front(), command_names())));
    }
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 takes them
    try {
      app_.parse(reversed);
    } catch (const CLI::CallForHelp&) {
      const auto chosen = app_.get_subcommands();
      print_once(stdout, chosen.empty() ? app_.help() : chosen.front()->help("trainer"));
      return 0;
    } catch (const CLI::CallForVersion& version) {
      print_once(stdout, version.what());
      return 0;
    } catch (const CLI::ParseError& error) {
      // A mistyped flag is what to say first: "--config is required" follows from it.
      const std::string unknown = unknown_flags();
      return usage(unknown.empty() ? error.what() : unknown);
    }
    action_();
    return 0;
  }

 private:
  CLI::App* add(const std::string& name, const std::string& about, std::function<void()> action) {
    CLI::App* command = app_.add_subcommand(name, about);
    command->callback([this, action = std::move(action)] { action_ = action; });
    return command;
  }

  void add_train() {
    CLI::App* command = add("train", "Trains the model of a config; the default command",
                            [this] { train(train_); });
    add_config(command, train_.config);
    command->add_option("--output", train_.output, "Folder of the run instead of output.dir")
        ->type_name("DIR");
    command->add_flag("--overwrite", train_.overwrite, "Write into a folder that is not empty");
    command
        ->add_option("--resume", train_.resume,
                     "Go on from the newest checkpoint (auto) or from one folder")
        ->type_name("auto|DIR");
  }

  void add_plan() {
    CLI::App* command =
        add("plan", "Checks a run and prints its layouts, collectives and memory before it starts",
            [this] { plan(plan_); });
    add_config(command, plan_.config);
    command->add_option("--ranks", plan_.ranks, "Number of ranks to plan for")
        ->type_name("N")
        ->capture_default_str();
    command->add_option("--rank", plan_.rank, "Rank whose part is shown")
        ->type_name("R")
        ->capture_default_str();
    command->add_option("--format", plan_.format, "text or json")
        ->capture_default_str()
        ->check(CLI::IsMember({"text", "json"}));
  }

  CLI::App* add_with_weights(const std::string& name, const std::string& about,
                             WeightsOptions& options, std::function<void()> action) {
    CLI::App* command = add(name, about, std::move(action));
    add_config(command, options.config);
    command
        ->add_option("--weights", options.weights,
                     "Weights to use instead of the config's initial_weights")
        ->type_name("FILE");
    return command;
  }

  std::vector<std::string> command_names() const {
    std::vector<std::string> names;
    for (const CLI::App* command : app_.get_subcommands({})) names.push_back(command->get_name());
    return names;
  }
  bool names_command(const std::string& word) const {
    const std::vector<std::string> names = command_names();
    return std::find(names.begin(), names.end(), word) != names.end();
  }

  /// What to write instead of a word that is not known.
  static std::string remedy(const std::string& word, const std::vector<std::string>& known) {
    if (word.ends_with(".json")) return "; a config is given as --config " + word;
    return json::did_you_mean(word, known);
  }

  std::string unknown_flags() const {
    std::vector<std::string> known;
    for (const CLI::App* command : app_.get_subcommands()) {
      for (const CLI::Option* option : command->get_options()) known.push_back(option->get_name());
    }
    std::string text;
    for (const std::string& extra : app_.remaining(true)) {
      if (!extra.starts_with("-") && !text.empty()) continue;  // the value of an unknown flag
      text += fmt::format("{}unknown argument \"{}\"{}", text.empty() ? "" : "; ", extra,
                          remedy(extra, known));
    }
    return text;
  }

  static void print_once(std::FILE* stream, const std::string& text) {
    if (launched_rank() == 0) fmt::print(stream, "{}", text);
  }
  static int usage(const std::string& message) {
    print_once(stderr,
               fmt::format("trainer: error: {}\nRun trainer --help for what there is.\n", message));
    // The launcher ends rank 0, too, as soon as one rank fails: it must have spoken before.
    if (launched_rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return kUsage;
  }

  CLI::App app_{"Trains Keras models on a mesh of devices, one MPI rank each.", "trainer"};
  std::function<void()> action_;
  TrainOptions train_;
  PlanOptions plan_;
  WeightsOptions evaluate_;
  WeightsOptions predict_;
  ConfigSource summary_;
  std::string schema_format_ = "json";
};

}  // namespace
}  // namespace tessera::trainer

int main(int argc, char** argv) {
  // A file that reaches the limit of the shell or the batch system is an error with a name, like a
  // full disk; the signal would end the process without a word.
  std::signal(SIGXFSZ, SIG_IGN);
  // Where a standard stream is closed, the next file to be opened would take its place, and what is
  // printed would be written into it.
  for (int stream = 0; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) == -1) open("/dev/null", stream == 0 ? O_RDONLY : O_WRONLY);
  }
  try {
    tessera::trainer::CommandLine line;
    return line.run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const tessera::Error& error) {
    return tessera::end_job(tessera::exit_status(error.kind), error.what());
  } catch (const std::bad_alloc&) {
    return tessera::end_job(tessera::exit_status(tessera::Error::Kind::internal),
                            "out of memory: \"trainer plan\" shows what each rank needs");
  } catch (const std::exception& error) {
    return tessera::end_job(tessera::exit_status(tessera::Error::Kind::internal),
                            std::string("internal error: ") + error.what());
  }
}
