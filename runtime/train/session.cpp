#include "runtime/train/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace tessera::train {
namespace {

DType target_dtype(const data::Source& source) {
  return source.integral() ? DType::int32 : DType::float32;
}

const data::Column* column_of(const std::vector<data::Column>& columns, const std::string& name) {
  for (const data::Column& column : columns) {
    if (column.name == name) return &column;
  }
  return nullptr;
}

}  // namespace

const double* find_log(const Logs& logs, std::string_view name) {
  for (const auto& [known, value] : logs) {
    if (known == name) return &value;
  }
  return nullptr;
}

DataTypes types_of(const data::Dataset& dataset) {
  DataTypes types;
  for (const data::Column& column : dataset.y) {
    types.targets.push_back(
        {column.name, column.source->sample_shape(), target_dtype(*column.source)});
  }
  types.sample_weights = !dataset.weights.empty();
  for (const data::Column& column : dataset.weights)
    types.sample_weight_shapes.push_back(column.source->sample_shape());
  return types;
}

Feeds::Feeds(const data::Dataset& dataset, bool with_targets, const ModelInterface& model) {
  for (std::size_t i = 0; i < model.inputs.size(); ++i) {
    const data::Column* column = column_of(dataset.x, model.inputs[i].name);
    if (column == nullptr && i < dataset.x.size()) column = &dataset.x[i];
    if (column == nullptr) {
      throw Error(Error::Kind::data, fmt::format("{}: holds nothing for the model's input \"{}\"",
                                                 dataset.shown, model.inputs[i].name));
    }
    feeds_.emplace_back(column->source, model.inputs[i].dtype);
  }
  if (with_targets) {
    for (const data::Column& column : dataset.y)
      feeds_.emplace_back(column.source, target_dtype(*column.source));
    for (const data::Column& column : dataset.weights)
      feeds_.emplace_back(column.source, DType::float32);
  }
  pointers_.resize(feeds_.size());
}

const std::vector<const void*>& Feeds::load(const compile::Program& program,
                                            const data::Order& order, std::int64_t first) {
  check(program.inputs.size() == feeds_.size(), "a step takes other inputs than the data set has");
  for (std::size_t i = 0; i < feeds_.size(); ++i) {
    const Box& box = program.tensors[static_cast<std::size_t>(program.inputs[i])].local.box;
    pointers_[i] = feeds_[i].load(order, first + box.begin[0], box.size[0]);
  }
  return pointers_;
}

Session::Session(comm::World& world, const layouts::Distribution& distribution,
                 const ModelInterface& model, graph::VariableTable& table, std::uint64_t seed,
                 kernels::Device device)
    : world_(world),
      distribution_(distribution),
      model_(model),
      table_(table),
      seed_(seed),
      device_(device),
      storage_(std::make_unique<exec::Storage>(table, distribution.mesh(), world.rank())) {
  for (std::size_t i = 0; i < table_.size(); ++i)
    exec::initialize(*storage_, static_cast<graph::VariableId>(i), seed_);
}

Session::~Session() = default;

void Session::compile(CompiledTraining training) {
  check(builder_ == nullptr, "a session is compiled once");
  const auto before = table_.size();
  training_ = std::move(training);
  builder_ = std::make_unique<StepBuilder>(model_, training_, table_, distribution_);
  // Totals get their placement when the first program is compiled; slots have theirs.
  for (std::size_t i = before; i < table_.size(); ++i) {
    const auto id = static_cast<graph::VariableId>(i);
    if (!table_[id].storage) continue;
    storage_->extend();
    exec::initialize(*storage_, id, seed_);
  }
}

std::vector<std::pair<std::string, int>> Session::directions() const {
  std::vector<std::pair<std::string, int>> list;
  for (const StepBuilder::Reported& reported : builder_->reported()) {
    list.emplace_back(reported.name, reported.metric->direction());
  }
  return list;
}

int Session::types_id(const DataTypes& types) {
  const auto same_spec = [](const TensorSpec& a, const TensorSpec& b) {
    return a.name == b.name && a.sample_shape == b.sample_shape && a.dtype == b.dtype;
  };
  for (std::size_t i = 0; i < types_.size(); ++i) {
    const DataTypes& known = types_[i];
    if (known.sample_weights == types.sample_weights &&
        known.sample_weight_shapes == types.sample_weight_shapes &&
        std::equal(known.targets.begin(), known.targets.end(), types.targets.begin(), types.targets.end(), same_spec)) {
      return static_cast<int>(i);
    }
  }
  types_.push_back(types);
  return static_cast<int>(types_.size()) - 1;
}

std::unique_ptr<graph::Graph> Session::build(StepKind kind, std::int64_t batch, int types, bool loss_output) const {
  check(kind == StepKind::predict || builder_ != nullptr, "a step is built before compile");
  StepOptions options;
  options.batch = batch;
  if (types >= 0) {
    const DataTypes& known = types_[static_cast<std::size_t>(types)];
    options.targets = known.targets;
    options.sample_weights = known.sample_weights;
    options.sample_weight_shapes = known.sample_weight_shapes;
  }
  options.loss_output = loss_output;
  switch (kind) {
    case StepKind::train:
      return std::make_unique<graph::Graph>(builder_->training_step(options));
    case StepKind::evaluate:
      return std::make_unique<graph::Graph>(builder_->evaluation_step(options));
    case StepKind::predict:
      return std::make_unique<graph::Graph>(
          train::prediction_step(model_, table_, distribution_, batch));
    case StepKind::finish: {
      std::optional<graph::Graph> graph = builder_->finishing_step();
      return graph ? std::make_unique<graph::Graph>(std::move(*graph)) : nullptr;
    }
  }
  return nullptr;
}

Session::Prepared& Session::prepare(StepKind kind, std::int64_t batch, int types, bool loss_output) {
  const auto key = std::tuple(kind, batch, types, loss_output);
  if (const auto found = prepared_.find(key); found != prepared_.end()) return found->second;
  const std::unique_ptr<graph::Graph> graph = build(kind, batch, types, loss_output);
  Prepared prepared;
  if (graph != nullptr) {
    prepared.program = compile::compile(*graph, distribution_.mesh(), world_.rank());
    storage_->extend();
  }
  Prepared& kept = prepared_.emplace(key, std::move(prepared)).first->second;
  if (graph != nullptr) {
    kept.executor =
        std::make_unique<exec::Executor>(kept.program, *storage_, arena_, world_, device_);
  }
  return kept;
}

void Session::reset_metrics() {
  for (const StepBuilder::Reported& reported : builder_->reported()) {
    for (const graph::VariableId id : reported.metric->variables()) {
      const graph::Variable& variable = table_[id];
      if (!variable.storage) continue;  // no program has met it yet: its memory starts as zero
      std::memset(storage_->data(id), 0,
                  static_cast<std::size_t>(storage_->box(id).elements()) * size_of(variable.dtype));
    }
  }
}

Logs Session::read_metrics() {
  Logs logs;
  for (const StepBuilder::Reported& reported : builder_->reported()) {
    std::vector<std::vector<double>> totals;
    for (const graph::VariableId id : reported.metric->variables()) {
      totals.push_back(exec::read_whole(*storage_, id, world_));
    }
    logs.emplace_back(reported.name, reported.metric->result(totals));
  }
  return logs;
}

Logs Session::evaluate(const data::Dataset& dataset, std::int64_t batch_size,
                       std::optional<std::int64_t> steps) {
  reset_metrics();
  Feeds feeds(dataset, true, model_);
  const int types = types_id(types_of(dataset));
  const data::Order order(dataset.rows, data::Shuffle::none, batch_size, 0, 0);
  std::int64_t done = 0;
  for (std::int64_t first = 0; first < dataset.rows; first += batch_size) {
    if (steps && done == *steps) break;
    Prepared& prepared = prepare(StepKind::evaluate, std::min(batch_size, dataset.rows - first), types);
    prepared.executor->run(feeds.load(prepared.program, order, first), {step});
    ++done;
  }
  return read_metrics();
}

void Session::predict(const data::Dataset& dataset, std::int64_t batch_size,
                      const PredictionSink& sink) {
  Feeds feeds(dataset, false, model_);
  const data::Order order(dataset.rows, data::Shuffle::none, batch_size, 0, 0);
  for (std::int64_t first = 0; first < dataset.rows; first += batch_size) {
    const std::int64_t rows = std::min(batch_size, dataset.rows - first);
    Prepared& prepared = prepare(StepKind::predict, rows, -1);
    prepared.executor->run(feeds.load(prepared.program, order, first), {step});
    for (std::size_t i = 0; i < model_.outputs.size(); ++i) {
      sink(i, first, rows,
           static_cast<const float*>(prepared.executor->output(fmt::format("predictions/{}", i))));
    }
  }
}

void Session::finish() {
  Prepared& prepared = prepare(StepKind::finish, 0, -1);
  if (prepared.executor != nullptr) prepared.executor->run({}, {step});
}

double Session::learning_rate() {
  const Optimizer& optimizer = *training_.optimizer;
  if (const auto id = optimizer.learning_rate()) return exec::read_whole(*storage_, *id, world_)[0];
  return optimizer.schedule()->at(exec::read_whole(*storage_, optimizer.iteration(), world_)[0]);
}

void Session::set_learning_rate(double value) {
  const auto id = training_.optimizer->learning_rate();
  if (!id) {
    throw Error(Error::Kind::config,
                "the optimizer's learning rate is a schedule: a callback cannot set it");
  }
  exec::write_whole(*storage_, *id, std::span(&value, 1));
}

}  // namespace tessera::train
