#include "trainer/run.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/checks.h"
#include "base/arguments.h"
#include "trainer/config_table.h"

namespace tessera::trainer {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const json::Value> shared(const json::Value& value) {
  return std::make_shared<const json::Value>(value);
}

std::string read_config_text(const std::string& file) {
  if (file == "-") return standard_input_of_job();
  if (fs::is_directory(file))
    throw Error(Error::Kind::config,
                fmt::format("{}: is a directory, a config file was expected", file));
  return json::read_text_file(file, Error::Kind::config);
}

/// Section of the parsed (not defaulted) config, so that positions are those of the file.
const json::Value* find_path(const json::Value& config, std::initializer_list<const char*> path) {
  const json::Value* at = &config;
  for (const char* key : path) {
    at = at->find(key);
    if (at == nullptr || at->is_null()) return nullptr;
  }
  return at;
}

class Loader {
 public:
  Loader(const ConfigSource& source, const Needs& needs) : source_(source), needs_(needs) {}

  Run load() {
    const std::string text = read_config_text(source_.file);
    const std::string shown = source_.file == "-" ? "standard input" : source_.file;
    config_ = json::parse(text, shown, problems_);
    problems_.throw_if_any();
    for (const std::string& set : source_.sets) apply_set(config_, set, problems_);
    check_config(config_, problems_);
    if (!config_.is_object()) problems_.throw_if_any();
    spell_integers(config_);
    run_.folder = source_.file == "-" ? fs::path(".") : fs::path(source_.file).parent_path();
    if (run_.folder.empty()) run_.folder = ".";
    read_settings();
    read_distribution();
    read_model();
    read_compile();
    read_callbacks();
    read_data();
    problems_.throw_if_any();
    read_fit();
    run_.config = with_defaults(config_);
    return std::move(run_);
  }

 private:
  json::Problem at_root(std::string path, std::string message) const {
    return {config_.file ? *config_.file : "", config_.position, std::move(path),
            std::move(message)};
  }

  void read_settings() {
    if (const json::Value* seed = find_path(config_, {"seed"});
        seed != nullptr && seed->kind == json::Kind::integer && seed->integer >= 0) {
      set_random_seed(static_cast<std::uint64_t>(seed->integer));
    }
    if (const json::Value* seconds = find_path(config_, {"runtime", "watchdog_seconds"});
        seconds != nullptr && seconds->is_number() && seconds->number >= 0) {
      set_join_seconds(seconds->number);
    }
    const json::Value* policy = find_path(config_, {"dtype_policy"});
    try {
      set_dtype_policy(policy != nullptr && policy->is_string() ? policy->string : "float32");
    } catch (const Error&) {
      // The table has reported it.
      set_dtype_policy("float32");
    }
    const json::Value* weights = find_path(config_, {"initial_weights"});
    if (weights != nullptr && weights->is_string())
      run_.initial_weights = run_.folder / weights->string;
    if (weights != nullptr && weights->is_object()) {
      json::Arguments arguments(*weights, "initial_weights", problems_);
      arguments.required("path");
      run_.initial_weights = run_.folder / arguments.text("path", "");
      run_.partial_weights = arguments.boolean("partial", false);
      arguments.finish();
    }
    const json::Value* dir = find_path(config_, {"output", "dir"});
    const std::string stem = source_.file == "-" ? "stdin" : fs::path(source_.file).stem().string();
    run_.output_dir =
        dir != nullptr && dir->is_string() ? fs::path(dir->string) : fs::path("runs") / stem;
  }

  void read_distribution() {
    const int ranks =
        needs_.ranks > 0 ? needs_.ranks : static_cast<int>(distribution::get_device_count());
    distribution::set_distribution(read_config_distribution(find_path(config_, {"distribution"}),
                                                            "distribution", ranks,
                                                            run_.folder.string(), problems_));
    if (!distribution::distribution()) good_distribution_ = false;
  }

  void read_model() {
    const json::Value* model = find_path(config_, {"model"});
    if (model == nullptr) {
      problems_.add(at_root(
          "model", "missing key \"model\": the path of a model's JSON, or the object itself"));
      return;
    }
    if (model->is_string()) {
      const std::string file = (run_.folder / model->string).string();
      if (file.ends_with(".keras") || file.ends_with(".h5")) {
        problems_.add({model->file ? *model->file : "", model->position, "model",
                       fmt::format("{}: models are read as JSON; in Python: "
                                   "open(\"model.json\", \"w\").write(model.to_json())",
                                   file)});
        return;
      }
      try {
        model_file_ = json::parse(json::read_text_file(file, Error::Kind::config), file, problems_);
      } catch (const Error& error) {
        problems_.add({model->file ? *model->file : "", model->position, "model", error.what()});
        return;
      }
      model = &model_file_;
    }
    if (!model->is_object() && !model->is_array()) return;
    // Without a sound distribution the model is still checked: all problems at once.
    if (!good_distribution_) distribution::set_distribution(std::nullopt);
    run_.model = Model::read(*model, "model", problems_);
  }

  void read_compile() {
    const auto object = [this](const char* key) {
      const json::Value* value = find_path(config_, {"compile", key});
      return value == nullptr ? Object() : Object(shared(*value));
    };
    if (const json::Value* optimizer = find_path(config_, {"compile", "optimizer"}))
      run_.compile.optimizer = Object(shared(*optimizer));
    run_.compile.loss = object("loss");
    run_.compile.loss_weights = object("loss_weights");
    run_.compile.metrics = object("metrics");
    run_.compile.weighted_metrics = object("weighted_metrics");
    if (!needs_.compiled) return;
    check_compile_options(run_.model ? &*run_.model : nullptr, run_.compile, "compile", problems_);
    if (problems_.empty() && run_.model) run_.model->compile(run_.compile);
  }

  void read_callbacks() {
    const json::Value* callbacks = find_path(config_, {"callbacks"});
    if (callbacks == nullptr) return;
    for (std::size_t i = 0; i < callbacks->array.size(); ++i) {
      check_callback(callbacks->array[i], fmt::format("callbacks[{}]", i), problems_);
      run_.fit.callbacks.emplace_back(shared(callbacks->array[i]));
    }
  }

  std::optional<Dataset> data_set(const char* name) {
    const json::Value* section = find_path(config_, {"data", name});
    if (section == nullptr || !section->is_object()) return std::nullopt;
    check_data_section(*section, fmt::format("data.{}", name), run_.model ? &*run_.model : nullptr,
                       problems_);
    return Dataset::from(Object(shared(*section)), run_.folder);
  }

  void read_data() {
    run_.train = data_set("train");
    run_.fit.validation_data = data_set("validation");
    run_.test = data_set("test");
    if (!run_.test) run_.test = run_.fit.validation_data;
    if (needs_.training_data && !run_.train)
      problems_.add(at_root("data.train", "missing: training needs data.train"));
    if (needs_.test_data && !run_.test)
      problems_.add(
          at_root("data.test", "missing: this command reads data.test (or data.validation)"));
  }

  void read_fit() {
    const json::Value fit =
        config_.find("fit") != nullptr ? *config_.find("fit") : json::make_object();
    json::Arguments arguments(fit, "fit", problems_);
    FitOptions& options = run_.fit;
    options.epochs = arguments.integer("epochs", 1);
    options.batch_size = arguments.integer("batch_size", 0);
    options.validation_split = arguments.number("validation_split", 0.0);
    options.initial_epoch = arguments.integer("initial_epoch", 0);
    options.steps_per_epoch = arguments.optional_integer("steps_per_epoch");
    options.validation_steps = arguments.optional_integer("validation_steps");
    options.validation_batch_size = arguments.integer("validation_batch_size", 0);
    if (const auto freq = arguments.integers("validation_freq")) options.validation_freq = *freq;
    if (const json::Value* verbose = arguments.value("verbose");
        verbose != nullptr && verbose->is_number()) {
      options.verbose = static_cast<int>(verbose->number);
    }
    if (const json::Value* shuffle = arguments.value("shuffle"); shuffle != nullptr) {
      options.shuffle = shuffle->is_string() ? shuffle->string
                        : shuffle->boolean   ? "true"
                                             : "false";
    }
    if (const json::Value* weights = arguments.value("class_weight"); weights != nullptr)
      read_class_weight(*weights);
    if (const json::Value* log = find_path(config_, {"output", "log_steps"}))
      options.log_steps = log->integer;
    if (const json::Value* every = find_path(config_, {"checkpoint", "every_epochs"}))
      options.checkpoint.every_epochs = every->integer;
    if (const json::Value* every = find_path(config_, {"checkpoint", "every_steps"}))
      options.checkpoint.every_steps = every->integer;
    if (const json::Value* keep = find_path(config_, {"checkpoint", "keep"}))
      options.checkpoint.keep = keep->integer;
    options.output_dir = run_.output_dir;
    problems_.throw_if_any();
  }

  void read_class_weight(const json::Value& weights) {
    for (const json::Member& member : weights.object) {
      const bool digits = !member.key.empty() && member.key.size() < 10 &&
                          std::all_of(member.key.begin(), member.key.end(),
                                      [](char c) { return c >= '0' && c <= '9'; });
      if (!digits || !member.value.is_number()) {
        problems_.add({member.value.file ? *member.value.file : "", member.key_position,
                       "fit.class_weight." + member.key,
                       "expected a class (a whole number) and its weight (a number)"});
        continue;
      }
      run_.fit.class_weight.emplace(std::stoll(member.key), member.value.number);
    }
  }

  const ConfigSource& source_;
  const Needs& needs_;
  json::Problems problems_;
  json::Value config_;
  json::Value model_file_;
  bool good_distribution_ = true;
  Run run_;
};

}  // namespace

Run load_run(const ConfigSource& source, const Needs& needs) {
  return Loader(source, needs).load();
}

}  // namespace tessera::trainer
