#include "api/checks.h"

#include "api/model_data.h"
#include "models/model.h"
#include "runtime/train/callbacks.h"
#include "runtime/train/weights_file.h"

namespace tessera {
namespace {

/// Stands for a model that could not be read: its options are still checked.
const train::ModelInterface& any_model() {
  static const train::ModelInterface kModel{
      "model", {{"input", {}, DType::float32, 0}}, {{"output", {1}, DType::float32, 0}}, {}};
  return kModel;
}

}  // namespace

std::optional<distribution::Distribution> read_config_distribution(const json::Value* section,
                                                                   const std::string& path,
                                                                   int ranks,
                                                                   const std::string& folder,
                                                                   json::Problems& problems) {
  return distribution::read_distribution(section, path, ranks, folder, problems);
}

void check_compile_options(const Model* model, const CompileOptions& options,
                           const std::string& path, json::Problems& problems) {
  const train::ModelInterface& interface = model != nullptr ? model->data().interface : any_model();
  const bool mixed_float16 = dtype_policy() == "mixed_float16";
  train::check_compile(compile_section(options), path, interface, mixed_float16, problems);
}

void check_callback(const json::Value& value, const std::string& path, json::Problems& problems) {
  train::make_callback(value, path, problems);
}

void check_weights_file(const Model& model, const std::filesystem::path& file, bool partial) {
  train::check_weights(model.data().table, file.string(), partial);
}

void check_data_section(const json::Value& section, const std::string& path, const Model* model,
                        json::Problems& problems) {
  const train::ModelInterface& interface = model != nullptr ? model->data().interface : any_model();
  data::check_section(section, path, expected_of(interface, true), problems);
}

std::vector<std::pair<std::string, std::vector<std::string>>> known_classes() {
  return {{"optimizers", train::optimizer_classes()},
          {"learning-rate schedules", train::schedule_classes()},
          {"losses", train::loss_classes()},
          {"metrics", train::metric_classes()},
          {"callbacks", train::callback_classes()},
          {"layers", models::layer_classes()}};
}

}  // namespace tessera
