#include "api/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "api/checks.h"
#include "api/job.h"
#include "api/model_data.h"
#include "api/summary.h"
#include "api/tensor_data.h"
#include "base/philox.h"
#include "runtime/compile/plan.h"
#include "runtime/io/write_file.h"
#include "runtime/train/checkpoint.h"
#include "runtime/train/run_files.h"
#include "runtime/train/weights_file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::vector<layouts::Bindable> weights_to_bind(const models::Model& model,
                                               const graph::VariableTable& table) {
  std::vector<layouts::Bindable> weights;
  for (const graph::VariableId id : model.weights())
    weights.push_back({table[id].path, table[id].shape});
  return weights;
}

std::vector<layouts::Bindable> outputs_to_bind(const models::Model& model) {
  std::vector<layouts::Bindable> outputs;
  for (auto& [path, shape] : model.output_paths(1)) outputs.push_back({path, shape});
  return outputs;
}

/// Layouts of the weights, and the model as training sees it.
void bind_model(Model::Data& data, json::Problems& problems) {
  const layouts::Distribution& distribution = data.distribution.data().value;
  data.binding = layouts::bind(distribution, weights_to_bind(*data.model, data.table),
                               outputs_to_bind(*data.model), problems);
  for (std::size_t i = 0; i < data.binding.variables.size(); ++i) {
    graph::Variable& variable = data.table[data.model->weights()[i]];
    variable.storage = data.binding.variables[i].storage;
    if (!(data.binding.variables[i].storage == data.binding.variables[i].compute))
      variable.compute = data.binding.variables[i].compute;
  }
  data.model->seed = data.seed;
  data.model->place = [&distribution](const std::string& path, const Shape& shape) {
    return distribution.output_placement(path, shape);
  };
  data.interface.name = data.model->name();
  data.interface.inputs = data.model->inputs();
  data.interface.outputs = data.model->outputs();
  data.interface.forward = [model = data.model.get()](
                               graph::Builder& builder,
                               const std::vector<graph::SymbolicTensor>& inputs,
                               bool training) { return model->forward(builder, inputs, training); };
}

bool is_mixed_float16(const Model::Data& data) { return data.policy == "mixed_float16"; }

train::CompiledTraining read_training(const Model::Data& data,
                                      const std::vector<train::TensorSpec>& targets,
                                      json::Problems& problems) {
  if (!data.options)
    throw Error(Error::Kind::config, "You must call `compile()` before using the model");
  return train::read_compile(compile_section(*data.options), "compile", data.interface, targets,
                             is_mixed_float16(data), problems);
}

train::CompiledTraining read_training(const Model::Data& data,
                                      const std::vector<train::TensorSpec>& targets) {
  json::Problems problems;
  train::CompiledTraining training = read_training(data, targets, problems);
  problems.throw_if_any();
  return training;
}

/// A model made anew from its JSON, with the weights of `old` where that has any: what a second
/// compile starts from.
void renew(Model::Data& data) {
  json::Problems problems;
  std::unique_ptr<models::Model> model =
      models::Model::read(data.model->json(), "", data.policy, problems);
  problems.throw_if_any();
  Model::Data fresh(data.distribution);
  fresh.model = std::move(model);
  fresh.seed = data.seed;
  fresh.policy = data.policy;
  fresh.options = data.options;
  fresh.model->declare(fresh.table, problems);
  bind_model(fresh, problems);
  problems.throw_if_any();
  const std::unique_ptr<train::Session> old = std::move(data.session);
  const graph::VariableTable old_table = data.table;
  data.model = std::move(fresh.model);
  data.table = std::move(fresh.table);
  bind_model(data, problems);
  train::Session& session = data.open_session();
  for (const graph::VariableId id : data.model->weights()) {
    const graph::VariableId was = *old_table.find(data.table[id].path);
    const auto bytes = static_cast<std::size_t>(session.storage().box(id).elements()) *
                       size_of(data.table[id].dtype);
    if (bytes > 0) std::memcpy(session.storage().data(id), old->storage().data(was), bytes);
  }
}

data::Shuffle shuffle_of(const std::string& text) {
  if (text == "true") return data::Shuffle::samples;
  if (text == "false") return data::Shuffle::none;
  if (text == "batch") return data::Shuffle::within_batches;
  throw Error(Error::Kind::config,
              fmt::format("shuffle is \"{}\": expected \"true\", \"false\" or \"batch\"", text));
}

/// The last `n - floor(n * (1 - f))` rows become validation data.
std::optional<data::Dataset> split_off(data::Dataset& train, double fraction) {
  if (fraction == 0.0) return std::nullopt;
  const auto kept =
      static_cast<std::int64_t>(std::floor(static_cast<double>(train.rows) * (1.0 - fraction)));
  if (!(fraction > 0.0 && fraction < 1.0) || kept == 0 || kept == train.rows) {
    throw Error(
        Error::Kind::config,
        fmt::format(
            "fit.validation_split {} leaves {} of {} samples for training: both parts need samples",
            fraction, kept, train.rows));
  }
  data::Dataset validation = data::rows_of(train, kept, train.rows - kept);
  train = data::rows_of(train, 0, kept);
  return validation;
}

void apply_class_weight(data::Dataset& dataset,
                        const std::map<std::int64_t, double>& class_weight) {
  if (class_weight.empty()) return;
  if (dataset.y.size() != 1)
    throw Error(Error::Kind::config,
                "`class_weight` is only supported for models with a single output");
  const std::vector<std::pair<std::int64_t, double>> weights(class_weight.begin(),
                                                             class_weight.end());
  const std::shared_ptr<const data::Source> given =
      dataset.weights.empty() ? nullptr : dataset.weights.front().source;
  dataset.weights = {
      {dataset.y.front().name, data::class_weights(dataset.y.front().source, weights, given)}};
}

train::FitOptions train_options(const FitOptions& options) {
  train::FitOptions result;
  result.epochs = options.epochs;
  result.initial_epoch = options.initial_epoch;
  result.batch_size = options.batch_size;
  result.shuffle = shuffle_of(options.shuffle);
  result.verbose = options.verbose;
  result.terminal = options.terminal;
  result.steps_per_epoch = options.steps_per_epoch;
  result.validation_steps = options.validation_steps;
  result.validation_batch_size = options.validation_batch_size;
  if (options.validation_freq.size() == 1) {
    result.validation_freq = options.validation_freq.front();
  } else {
    result.validation_epochs = options.validation_freq;
  }
  return result;
}

History to_history(const train::History& history) { return {history.epochs, history.values}; }

std::string read_file(const fs::path& file) {
  return json::read_text_file(file.string(), Error::Kind::config);
}

Plan plan_of(const Model::Data& model, const data::Dataset& dataset, std::int64_t batch_size,
             int rank) {
  // A copy of the variables: the plan of a job of another size must not touch this job's.
  graph::VariableTable table = model.table;
  const layouts::Distribution& distribution = model.distribution.data().value;
  const train::DataTypes types = train::types_of(dataset);
  train::CompiledTraining training = read_training(model, types.targets);
  const train::StepBuilder builder(model.interface, training, table, distribution);
  const graph::Graph graph =
      builder.training_step({.batch = std::min(batch_size, dataset.rows),
                             .targets = types.targets,
                             .sample_weights = types.sample_weights,
                             .sample_weight_shapes = types.sample_weight_shapes});
  const compile::Program program = compile::compile(graph, distribution.mesh(), rank);
  compile::PlanContext context;
  context.rules.resize(table.size());
  for (std::size_t i = 0; i < model.binding.variables.size(); ++i) {
    const std::optional<std::size_t>& rule = model.binding.variables[i].rule;
    if (!rule) continue;
    context.rules[static_cast<std::size_t>(model.model->weights()[i])] =
        distribution.map().rules()[*rule].key;
  }
  context.warnings = model.binding.warnings;
  return {json::dump(compile::plan_json(program, table, context)),
          compile::plan_text(program, table, context, false)};
}

/// What the library adds to the user's callbacks: the run's files.
void open_run(train::Session& session, const FitOptions& options, const std::string& plan,
              std::vector<std::unique_ptr<train::Callback>>& callbacks) {
  const fs::path& folder = options.output_dir;
  const bool goes_on = options.append || !options.resume.empty();
  std::string failure;
  if (session.is_first_rank()) {
    try {
      fs::create_directories(folder);
      if (!goes_on) train::remove_checkpoints((folder / "checkpoints").string());
      if (!options.config_text.empty())
        io::write_text_file((folder / "config.json").string(), options.config_text);
      io::write_text_file((folder / "plan.json").string(), plan + "\n");
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }
  for (const std::string& text : comm::gather_texts(session.world().all(), failure)) {
    if (!text.empty()) throw Error(Error::Kind::internal, text);
  }
  callbacks.push_back(std::make_unique<train::MetricsFile>(
      (folder / "metrics.jsonl").string(), options.log_steps, session.is_first_rank(), goes_on));
  const CheckpointOptions& checkpoint = options.checkpoint;
  if (checkpoint.every_epochs > 0 || checkpoint.every_steps > 0 || !options.resume.empty()) {
    callbacks.push_back(std::make_unique<train::Checkpoints>(
        (folder / "checkpoints").string(),
        train::Checkpoints::Options{checkpoint.every_epochs, checkpoint.every_steps,
                                    checkpoint.keep, options.resume}));
  }
}

void close_run(train::Session& session, const FitOptions& options, const train::History& history) {
  if (session.is_first_rank()) {
    io::write_text_file((options.output_dir / "history.json").string(),
                        json::dump(train::history_json(history)) + "\n");
  }
  train::save_weights(session.storage(), session.world(),
                      (options.output_dir / "weights.safetensors").string());
}

}  // namespace

void check_data(const data::Dataset& dataset, const train::ModelInterface& model,
                const train::CompiledTraining* training);

json::Value compile_section(const CompileOptions& options) {
  std::vector<std::pair<std::string, json::Value>> members;
  const auto add = [&members](const char* key, const Object& object) {
    if (object.value() != nullptr) members.emplace_back(key, *object.value());
  };
  add("optimizer", options.optimizer);
  add("loss", options.loss);
  add("loss_weights", options.loss_weights);
  add("metrics", options.metrics);
  add("weighted_metrics", options.weighted_metrics);
  return json::make_object(std::move(members));
}

train::Session& Model::Data::open_session() {
  if (session == nullptr) {
    const layouts::Distribution& where = distribution.data().value;
    if (where.mesh().size() != job().size()) {
      throw Error(Error::Kind::config, fmt::format("the mesh has {} devices, the job {} ranks",
                                                   where.mesh().size(), job().size()));
    }
    session = std::make_unique<train::Session>(job(), where, interface, table, seed, job_device());
  }
  return *session;
}

train::Session& Model::Data::compiled_session(const data::Dataset& dataset) {
  train::Session& opened = open_session();
  if (!opened.compiled()) opened.compile(read_training(*this, train::types_of(dataset).targets));
  return opened;
}

std::optional<Model> Model::read(const json::Value& value, const std::string& path,
                                 json::Problems& problems) {
  const std::size_t before = problems.list().size();
  auto data = std::make_shared<Data>(distribution::current());
  data->seed = random_seed();
  data->policy = dtype_policy();
  data->model = models::Model::read(value, path, data->policy, problems);
  if (data->model == nullptr || problems.list().size() != before) return std::nullopt;
  data->model->declare(data->table, problems);
  if (problems.list().size() != before) return std::nullopt;
  bind_model(*data, problems);
  if (problems.list().size() != before) return std::nullopt;
  return Model(std::move(data));
}

Model Model::from_json(std::string_view json) {
  json::Problems problems;
  const json::Value value = json::parse(json, "model", problems);
  problems.throw_if_any();
  std::optional<Model> model = read(value, "", problems);
  problems.throw_if_any();
  check(model.has_value(), "a model that was refused without a reason");
  return *model;
}

Model Model::load(const fs::path& file) {
  json::Problems problems;
  const json::Value value = json::parse(read_file(file), file.string(), problems);
  problems.throw_if_any();
  std::optional<Model> model = read(value, "", problems);
  problems.throw_if_any();
  check(model.has_value(), "a model that was refused without a reason");
  return *model;
}

const std::string& Model::name() const { return data_->interface.name; }

void Model::compile(CompileOptions options) {
  json::Problems problems;
  check_compile_options(this, options, "compile", problems);
  problems.throw_if_any();
  data_->options = std::move(options);
  if (data_->session != nullptr && data_->session->compiled()) renew(*data_);
}

History Model::fit(const Dataset& data, FitOptions options) {
  data::Dataset train = data.data().open(data_->interface, true);
  std::optional<data::Dataset> validation;
  if (options.validation_data) {
    validation = options.validation_data->data().open(data_->interface, true);
  } else {
    validation = split_off(train, options.validation_split);
  }
  apply_class_weight(train, options.class_weight);
  train::Session& session = data_->compiled_session(train);
  check_data(train, data_->interface, &session.training());
  if (validation) check_data(*validation, data_->interface, &session.training());

  json::Problems problems;
  std::vector<std::unique_ptr<train::Callback>> owned;
  for (std::size_t i = 0; i < options.callbacks.size(); ++i) {
    owned.push_back(train::make_callback(*options.callbacks[i].value(),
                                         fmt::format("callbacks[{}]", i), problems));
  }
  problems.throw_if_any();
  if (!options.output_dir.empty()) {
    const std::int64_t batch = train::batch_size_of(train_options(options), train.rows);
    open_run(session, options, plan_of(*data_, train, batch, job().rank()).json(), owned);
  }
  std::stable_partition(owned.begin(), owned.end(),
                        [](const auto& callback) { return !callback->saves_state(); });
  std::vector<train::Callback*> callbacks;
  for (const auto& callback : owned) {
    callbacks.push_back(callback.get());
    if (auto* monitor = dynamic_cast<train::MonitorCallback*>(callback.get()))
      monitor->set_directions(session.directions());
  }
  const train::History history = train::fit(session, train, validation ? &*validation : nullptr,
                                            train_options(options), callbacks);
  if (!options.output_dir.empty()) close_run(session, options, history);
  return to_history(history);
}

std::map<std::string, double> Model::evaluate(const Dataset& data, EvaluateOptions options) {
  const data::Dataset dataset = data.data().open(data_->interface, true);
  train::Session& session = data_->compiled_session(dataset);
  check_data(dataset, data_->interface, &session.training());
  std::map<std::string, double> results;
  for (const auto& [name, value] : session.evaluate(dataset, options.batch_size, options.steps))
    results.emplace(name, value);
  return results;
}

std::vector<Tensor> Model::predict(const Dataset& data, std::int64_t batch_size) {
  const data::Dataset dataset = data.data().open(data_->interface, false);
  check_data(dataset, data_->interface, nullptr);
  train::Session& session = data_->open_session();
  std::vector<std::vector<float>> values(data_->interface.outputs.size());
  session.predict(
      dataset, batch_size,
      [&](std::size_t output, std::int64_t /*first*/, std::int64_t rows, const float* batch) {
        const std::int64_t elements =
            rows * data_->interface.outputs[output].sample_shape.elements();
        values[output].insert(values[output].end(), batch, batch + elements);
      });
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::vector<std::int64_t> shape{dataset.rows};
    for (const std::int64_t size : data_->interface.outputs[i].sample_shape.sizes())
      shape.push_back(size);
    outputs.push_back(Tensor::from(std::span<const float>(values[i]), std::move(shape)));
  }
  return outputs;
}

Tensor Model::predict(const Tensor& x, std::int64_t batch_size) {
  return predict(Dataset::from(x), batch_size).front();
}

std::vector<std::string> Model::load_weights(const fs::path& file, bool partial) {
  return train::load_weights(data_->open_session().storage(), file.string(), partial);
}

void Model::save_weights(const fs::path& file) const {
  train::save_weights(data_->open_session().storage(), job(), file.string());
}

std::vector<Variable> Model::variables() const {
  train::Session& session = data_->open_session();
  std::vector<Variable> list;
  for (const graph::VariableId id : data_->model->weights()) {
    const graph::Variable& variable = data_->table[id];
    const auto bytes =
        static_cast<std::size_t>(session.storage().box(id).elements()) * size_of(variable.dtype);
    const auto* begin = static_cast<const std::byte*>(session.storage().data(id));
    std::vector<std::int64_t> shape(variable.shape.begin(), variable.shape.end());
    distribution::TensorLayout layout =
        distribution::layout_of(*variable.storage, data_->distribution.device_mesh());
    Tensor value =
        make_tensor(shape, variable.dtype, layout, std::vector<std::byte>(begin, begin + bytes));
    list.push_back({variable.path, std::move(shape), variable.dtype, variable.trainable,
                    std::move(layout), std::move(value)});
  }
  return list;
}

Plan Model::plan(const Dataset& data, std::int64_t batch_size, int rank) const {
  return plan_of(*data_, data.data().open(data_->interface, true), batch_size, rank);
}

std::string Model::summary() const {
  return summary_text(data_->interface.name, data_->model->rows(), data_->table,
                      data_->distribution);
}
std::string Model::to_json() const { return json::dump(data_->model->json(), -1, 17); }

const std::vector<double>& History::operator[](std::string_view name) const {
  for (const auto& [known, values] : history) {
    if (known == name) return values;
  }
  throw Error(Error::Kind::config, fmt::format("the history has no \"{}\"", name));
}

Object::Object(std::string name_or_json) {
  const std::size_t start = name_or_json.find_first_not_of(" \t\n\r");
  if (start != std::string::npos && (name_or_json[start] == '{' || name_or_json[start] == '[')) {
    json::Problems problems;
    value_ = std::make_shared<const json::Value>(json::parse(name_or_json, "option", problems));
    problems.throw_if_any();
  } else {
    value_ = std::make_shared<const json::Value>(json::make(std::move(name_or_json)));
  }
}

Object::Object(std::initializer_list<const char*> names) {
  std::vector<json::Value> items;
  for (const char* name : names) items.push_back(json::make(name));
  value_ = std::make_shared<const json::Value>(json::make_array(std::move(items)));
}

}  // namespace tessera
