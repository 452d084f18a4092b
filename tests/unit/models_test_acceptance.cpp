// Predictions and training steps of acceptance cases, computed without devices, ranks or files but
// the cases' own: what layers, losses and optimizers do together, against Keras's numbers.
#include <catch2/catch.hpp>

#include "runtime/train/step.h"
#include "tests/unit/models_fixture.h"

using namespace tessera;
using namespace tessera::models::test;
using models::Model;

namespace {

std::string policy_of(const Case& one) {
  const json::Value* policy = one.config.find("dtype_policy");
  return policy == nullptr ? "float32" : policy->string;
}

// The array that holds an input or target: "x", or what the config's object names.
std::string array_name(const json::Value& data, const char* key, const std::string& name) {
  const json::Value* value = data.find(key);
  if (value == nullptr) return key;
  if (value->is_string()) return value->string;
  const json::Value* named = value->find(name);
  INFO(name);
  REQUIRE(named != nullptr);
  return named->string;
}

const json::Value& section(const Case& one, const char* name) {
  const json::Value* data = one.config.find("data");
  REQUIRE(data != nullptr);
  const json::Value* value = data->find(name);
  REQUIRE(value != nullptr);
  return *value;
}

// Samples first..first+count-1 of an array of `total` samples.
std::vector<double> rows(const std::vector<double>& whole, std::int64_t total, std::int64_t first,
                         std::int64_t count) {
  const std::int64_t width = static_cast<std::int64_t>(whole.size()) / total;
  return {whole.begin() + first * width, whole.begin() + (first + count) * width};
}

}  // namespace

TEST_CASE("predictions are Keras's") {
  int run = 0;
  for (const std::string group : {"layers", "models"}) {
    for (const Case& one : cases_of(group)) {
      if (one.text("command", "") != "predict") continue;
      const json::Value& data = section(one, "test");
      const json::Value* initial = one.config.find("initial_weights");
      const std::string weights = initial == nullptr ? "weights.safetensors" : initial->string;
      if (weights.find(".safetensors") == std::string::npos) continue;
      INFO(one.folder.string());
      Loaded loaded(one.model, policy_of(one));
      const auto file =
          io::open_array_file((one.folder / data.find("path")->string).string(), Error::Kind::data);
      std::vector<std::vector<double>> inputs;
      std::int64_t batch = 0;
      for (const train::TensorSpec& spec : loaded.model->inputs()) {
        inputs.push_back(read_array(*file, array_name(data, "x", spec.name)));
        batch = static_cast<std::int64_t>(inputs.back().size()) / spec.sample_shape.elements();
      }
      Runner runner(loaded, batch);
      set_weights(runner.interpreter(), loaded, one.folder / weights);
      const auto expected = io::open_array_file(
          (one.folder / one.text("predictions", "y.npy")).string(), Error::Kind::data);
      const std::vector<double> result = runner(inputs);
      CHECK(worst_error(result, read_array(*expected, expected->arrays().front().name),
                        one.tolerance("relative"), one.tolerance("absolute")) <= 1.0);
      ++run;
    }
  }
  CHECK(run >= 34);
}

namespace {

// A training run of a case whose data is one npz file, in order, without anything that belongs to
// fit itself.
bool is_plain_training(const Case& one) {
  if (one.text("command", "train") != "train" || one.expect.find("step_loss") == nullptr) {
    return false;
  }
  const json::Value* fit = one.config.find("fit");
  for (const char* key : {"class_weight", "validation_split", "steps_per_epoch", "initial_epoch"}) {
    if (fit->find(key) != nullptr) return false;
  }
  const json::Value* shuffle = fit->find("shuffle");
  if (fit->find("batch_size") == nullptr || fit->find("epochs") == nullptr) return false;
  const json::Value& data = section(one, "train");
  return shuffle != nullptr && !shuffle->boolean && data.find("format")->string == "npz" &&
         data.find("sample_weight") == nullptr && one.config.find("callbacks") == nullptr &&
         one.config.find("initial_weights") != nullptr &&
         one.config.find("initial_weights")->string.find(".safetensors") != std::string::npos;
}

class Training {
 public:
  explicit Training(const Case& one)
      : case_(one),
        loaded_(one.model, policy_of(one)),
        data_(
            io::open_array_file((one.folder / section(one, "train").find("path")->string).string(),
                                Error::Kind::data)) {
    for (const graph::VariableId id : loaded_.model->weights()) {
      loaded_.table[id].storage = layouts::Placement::replicated(loaded_.table[id].shape.rank());
    }
    interface_ = {loaded_.model->name(), loaded_.model->inputs(), loaded_.model->outputs(),
                  [this](auto& builder, const auto& inputs, bool training) {
                    return loaded_.model->forward(builder, inputs, training);
                  }};
    read_data();
    json::Problems problems;
    const bool mixed = policy_of(one) == "mixed_float16";
    compiled_ = train::read_compile(*one.config.find("compile"), "compile", interface_, targets_,
                                    mixed, problems);
    problems.throw_if_any();
    builder_.emplace(interface_, compiled_, loaded_.table, distribution_);
  }

  // Trains and compares the loss of every step and the weights at the end.
  void run() {
    const json::Value* fit = case_.config.find("fit");
    const std::int64_t batch = fit->find("batch_size")->integer;
    const std::vector<json::Value>& expected = case_.expect.find("step_loss")->array;
    std::vector<double> losses;
    std::map<graph::VariableId, std::vector<double>> state;
    for (std::int64_t epoch = 0; epoch < fit->find("epochs")->integer; ++epoch) {
      for (std::int64_t first = 0; first < samples_; first += batch) {
        losses.push_back(step(first, std::min(batch, samples_ - first), state));
      }
    }
    REQUIRE(losses.size() == expected.size());
    std::vector<double> wanted;
    for (const json::Value& value : expected) wanted.push_back(value.number);
    CHECK(worst_error(losses, wanted, case_.tolerance("relative"), case_.tolerance("absolute")) <=
          1.0);
    if (case_.expect.find("weights") == nullptr) return;
    const auto file = io::open_array_file((case_.folder / case_.text("weights", "")).string(),
                                          Error::Kind::weights);
    for (const graph::VariableId id : loaded_.model->weights()) {
      const std::string& path = loaded_.table[id].path;
      INFO(path);
      CHECK(worst_error(state[id], read_array(*file, path), case_.tolerance("relative"),
                        case_.tolerance("absolute")) <= 1.0);
    }
  }

 private:
  void read_data() {
    const json::Value& data = section(case_, "train");
    for (const train::TensorSpec& spec : loaded_.model->inputs()) {
      arrays_[spec.name] = read_array(*data_, array_name(data, "x", spec.name));
      samples_ =
          static_cast<std::int64_t>(arrays_[spec.name].size()) / spec.sample_shape.elements();
    }
    for (const train::TensorSpec& output : loaded_.model->outputs()) {
      const std::string name = array_name(data, "y", output.name);
      const io::ArrayInfo& info = data_->arrays()[static_cast<std::size_t>(data_->find(name))];
      const DType dtype = io::is_floating(info.type) ? DType::float32 : DType::int32;
      targets_.push_back({output.name, Shape(info.shape.sizes().subspan(1)), dtype, 0});
      arrays_["target/" + output.name] = read_array(*data_, name);
    }
  }

  double step(std::int64_t first, std::int64_t count,
              std::map<graph::VariableId, std::vector<double>>& state) {
    train::StepOptions options;
    options.batch = count;
    options.targets = targets_;
    options.loss_output = true;
    if (graphs_.find(count) == graphs_.end()) {
      graphs_.emplace(count, builder_->training_step(options));
    }
    const graph::Graph& graph = graphs_.at(count);
    auto& interpreter = interpreters_[count];
    if (interpreter == nullptr) {
      interpreter = std::make_unique<testing::Interpreter>(graph);
      if (state.empty()) {
        set_weights(*interpreter, loaded_,
                    case_.folder / case_.config.find("initial_weights")->string);
      }
    }
    for (const auto& [id, values] : state) interpreter->set_variable(id, values);
    for (const graph::ValueId input : graph.inputs) {
      const std::string& name = graph.value(input).path;
      INFO(name);
      REQUIRE(arrays_.count(name) == 1);
      interpreter->set_input(name, rows(arrays_.at(name), samples_, first, count));
    }
    interpreter->run(steps_++);
    for (std::size_t id = 0; id < loaded_.table.size(); ++id) {
      const auto variable = static_cast<graph::VariableId>(id);
      state[variable] = interpreter->variable(variable);
    }
    return interpreter->output("loss").front();
  }

  const Case& case_;
  Loaded loaded_;
  std::unique_ptr<io::ArrayFile> data_;
  layouts::Distribution distribution_;
  train::ModelInterface interface_;
  train::CompiledTraining compiled_;
  std::optional<train::StepBuilder> builder_;
  std::vector<train::TensorSpec> targets_;
  std::map<std::string, std::vector<double>> arrays_;  // by the name of the step's input
  std::map<std::int64_t, graph::Graph> graphs_;        // by batch size
  std::map<std::int64_t, std::unique_ptr<testing::Interpreter>> interpreters_;
  std::int64_t samples_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace

TEST_CASE("training steps are Keras's") {
  int run = 0;
  for (const std::string group :
       {"layers", "core", "models", "mixed", "regularizers_constraints", "parallel"}) {
    for (const Case& one : cases_of(group)) {
      if (!is_plain_training(one)) continue;
      INFO(one.folder.string());
      Training(one).run();
      ++run;
    }
  }
  CHECK(run >= 70);
}
