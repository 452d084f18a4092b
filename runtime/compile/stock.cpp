// Versions of values, their prices and conversions.
#include "runtime/compile/stock.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tessera::compile {
namespace {

using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::Value;
using graph::ValueId;
using graph::Variable;
using layouts::Placement;
using layouts::ReshardKind;
using layouts::ReshardStep;

/// How many nodes that are not placed yet are looked through for what their readers will need.
constexpr int kLookAhead = 4;

std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }

}  // namespace

Stock::Stock(const graph::Graph& graph, const layouts::Mesh& mesh,
             const std::vector<CallRule>& rules, const Uses& uses, Draft& draft)
    : graph_(graph),
      mesh_(mesh),
      rules_(rules),
      uses_(uses),
      draft_(draft),
      states_(graph.values.size()) {
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const ValueId id = graph.inputs[i];
    const Value& value = graph.value(id);
    DraftValue placed;
    placed.type = value.type;
    placed.placement = value.pin ? without_trivial_axes(*value.pin, mesh)
                                 : Placement::replicated(value.type.shape.rank());
    placed.source = Value::Source::input;
    placed.input = static_cast<int>(i);
    placed.origin = id;
    placed.path = value.path;
    states_[at(id)] = {{{kNoDraft, placed.placement}}, true};
    states_[at(id)].versions.front().id = draft.add(std::move(placed));
    draft.inputs.push_back(states_[at(id)].versions.front().id);
  }
}

bool Stock::has_free_choice(ValueId id) const {
  const Value& value = graph_.value(id);
  if (value.source != Value::Source::variable) return uses_.floating[at(id)];
  const Variable& variable = (*graph_.variables)[value.variable];
  return variable.role == graph::Role::metric && !variable.storage;
}

bool Stock::is_total(ValueId id) const {
  const Value& value = graph_.value(id);
  return value.source == Value::Source::variable &&
         (*graph_.variables)[value.variable].role == graph::Role::metric;
}

Stock::State& Stock::state_of(ValueId id, Phase phase) {
  if (graph_.value(id).source != Value::Source::variable) return states_[at(id)];
  State& state = variables_[{id, phase}];
  if (!state.known && !has_free_choice(id)) start_variable(id, phase, state);
  return state;
}

DraftId Stock::base_of_variable(ValueId id) {
  const auto known = bases_.find(id);
  if (known != bases_.end()) return known->second;
  const Value& value = graph_.value(id);
  const Variable& variable = (*graph_.variables)[value.variable];
  if (!variable.storage) {
    throw Error(Error::Kind::internal,
                fmt::format("compile: variable \"{}\" has no placement", variable.path));
  }
  DraftValue placed;
  placed.type = value.type;
  placed.placement = without_trivial_axes(*variable.storage, mesh_);
  placed.source = Value::Source::variable;
  placed.variable = value.variable;
  placed.origin = id;
  placed.path = variable.path;
  return bases_[id] = draft_.add(std::move(placed));
}

void Stock::start_variable(ValueId id, Phase phase, State& state) {
  const DraftId base = base_of_variable(id);
  const Variable& variable = (*graph_.variables)[graph_.value(id).variable];
  state.known = true;
  const bool converts = variable.compute && phase != Phase::update;
  const Placement compute = converts ? without_trivial_axes(*variable.compute, mesh_) : Placement{};
  if (converts && compute != draft_.value(base).placement) {
    state.versions.push_back({kNoDraft, compute});
  } else {
    state.versions.push_back({base, draft_.value(base).placement});
  }
}

const Placement* Stock::find(ValueId id, Phase phase) {
  if (has_free_choice(id)) return nullptr;
  return &state_of(id, phase).versions.front().placement;
}

bool Stock::is_awaited_in_parts(ValueId id, int axis, std::size_t dim) {
  if (uses_.output[at(id)]) return false;
  for (const graph::VariableId variable : uses_.assigned[at(id)]) {
    const Variable& target = (*graph_.variables)[variable];
    // Totals follow what is added to them, not the other way round.
    if (target.role == graph::Role::metric || !target.storage ||
        target.storage->dim_of(axis) != static_cast<int>(dim)) {
      return false;
    }
  }
  const std::vector<Reader>& readers = uses_.readers[at(id)];
  return std::all_of(readers.begin(), readers.end(),
                     [&](const Reader& reader) { return reader_awaits_parts(reader, axis, dim); });
}

bool Stock::reader_awaits_parts(const Reader& reader, int axis, std::size_t dim) {
  const Node& node = graph_.nodes[static_cast<std::size_t>(reader.node)];
  const graph::Rule& rule = rules_[static_cast<std::size_t>(reader.node)].rule;
  const char factor = rule.operands[reader.operand][dim];
  if (!graph::is_factor(factor)) return false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const std::size_t other = rule.operands[i].find(factor);
    if (i == reader.operand || other == std::string::npos) continue;
    if (will_be_cut(node.inputs[i], node.phase, axis, other, kLookAhead)) return true;
  }
  return false;
}

bool Stock::will_be_cut(ValueId id, Phase phase, int axis, std::size_t dim, int depth) {
  if (has_free_choice(id) || is_total(id)) return false;
  const State& state = state_of(id, phase);
  if (state.known) {
    return state.versions.front().placement.dim_of(axis) == static_cast<int>(dim);
  }
  // Not made yet: as its own operands are, where the cut carries over.
  if (depth == 0) return false;
  const NodeId producer = graph_.value(id).producer;
  const Node& node = graph_.nodes[static_cast<std::size_t>(producer)];
  const graph::Rule& rule = rules_[static_cast<std::size_t>(producer)].rule;
  const char factor = rule.results[static_cast<std::size_t>(graph_.value(id).output)][dim];
  if (!graph::is_factor(factor)) return false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const std::size_t operand = rule.operands[i].find(factor);
    if (operand == std::string::npos) continue;
    if (will_be_cut(node.inputs[i], node.phase, axis, operand, depth - 1)) return true;
  }
  return false;
}

double Stock::bytes_between(ValueId id, const Placement& from, const Placement& to) {
  if (from == to) return 0;
  const graph::ValueType& type = graph_.type(id);
  const std::string key = fmt::format("{}:{}:{}", id, key_of(from), key_of(to));
  const auto [known, is_new] = prices_.emplace(key, 0.0);
  if (is_new) {
    known->second = layouts::reshard_bytes(type.shape, size_of(type.dtype), from, to, mesh_);
  }
  return known->second;
}

double Stock::price(ValueId id, Phase phase, const Placement& target) {
  if (has_free_choice(id)) return 0;
  double least = -1;
  for (const Version& version : state_of(id, phase).versions) {
    const double bytes = bytes_between(id, version.placement, target);
    if (least < 0 || bytes < least) least = bytes;
  }
  return least;
}

bool Stock::sums_may_pass(ValueId id) const {
  return uses_.count[at(id)] <= 1 || uses_.pending_is_free[at(id)];
}

DraftId Stock::get(ValueId id, Phase phase, const Placement& target, const std::string& reader) {
  if (has_free_choice(id)) {
    return graph_.value(id).source == Value::Source::variable ? place_metric(id, target, phase)
                                                              : make_floating(id, target, reader);
  }
  State& state = state_of(id, phase);
  if (state.versions.front().id == kNoDraft) {
    Version& first = state.versions.front();
    first.id = convert(base_of_variable(id), first.placement, phase, reader);
  }
  const Version* best = nullptr;
  double least = 0;
  for (const Version& version : state.versions) {
    if (version.placement == target) return version.id;
    const double bytes = bytes_between(id, version.placement, target);
    if (best == nullptr || bytes < least) {
      best = &version;
      least = bytes;
    }
  }
  const bool sums = (best->placement.pending & ~target.pending) != 0;
  const DraftId made = convert(best->id, target, sums ? phase_of_sum(id, phase) : phase, reader);
  // What several readers need whole is reduced once: later readers start from the result.
  if (sums && !uses_.pending_is_free[at(id)]) state.versions.clear();
  state.versions.push_back({made, target});
  return made;
}

DraftId Stock::get_as_it_comes(ValueId id, Phase phase) {
  const Placement* here = find(id, phase);
  const Placement target =
      here != nullptr ? *here : Placement::replicated(graph_.type(id).shape.rank());
  return get(id, phase, target, "the caller");
}

DraftId Stock::place_metric(ValueId id, const Placement& target, Phase phase) {
  (*graph_.variables)[graph_.value(id).variable].storage = target;
  return state_of(id, phase).versions.front().id;
}

Phase Stock::phase_of_sum(ValueId id, Phase reader) const {
  const NodeId producer = graph_.value(id).producer;
  return producer < 0 ? reader : graph_.nodes[static_cast<std::size_t>(producer)].phase;
}

std::string Stock::reason_of(const ReshardStep& step, DraftId from,
                             const std::string& reader) const {
  const std::string axes = axes_text(mesh_, step.axes);
  const auto sum = sum_reasons_.find(from);
  const std::string why =
      sum == sum_reasons_.end() ? "its terms lie on different ranks" : sum->second;
  switch (step.kind) {
    case ReshardKind::all_reduce:
      return fmt::format("sum over {}: {}", axes, why);
    case ReshardKind::reduce_scatter:
      return fmt::format("sum over {}: {}; {} needs dimension {} cut", axes, why, reader, step.dim);
    case ReshardKind::all_gather:
      return fmt::format("whole over {}: {} needs dimension {} uncut", axes, reader, step.dim);
    case ReshardKind::all_to_all:
      return fmt::format("cut over {} moves from dimension {} to {}: {} needs it there", axes,
                         step.dim, step.to_dim, reader);
    case ReshardKind::slice:
      return fmt::format("part over {}: {} needs dimension {} cut", axes, reader, step.dim);
    case ReshardKind::owner:
      return fmt::format("one term of a sum over {}: {} adds pending sums", axes, reader);
  }
  return "";
}

DraftId Stock::convert(DraftId from, const Placement& target, Phase phase,
                       const std::string& reader) {
  const DraftValue start = draft_.value(from);
  const std::vector<ReshardStep> steps = layouts::plan_reshard(
      start.type.shape, size_of(start.type.dtype), start.placement, target, mesh_);
  const NodeId producer =
      start.origin == graph::kNoValue ? -1 : graph_.value(start.origin).producer;
  DraftId current = from;
  for (const ReshardStep& step : steps) {
    DraftValue value = start;
    value.source = Value::Source::node;
    value.placement = without_trivial_axes(step.to, mesh_);
    DraftNode node;
    node.kind = DraftNode::Kind::convert;
    node.step = step;
    node.phase = phase;
    node.path = producer >= 0 ? graph_.nodes[static_cast<std::size_t>(producer)].path : start.path;
    node.reason = reason_of(step, current, reader);
    node.inputs = {current};
    const auto sum = sum_reasons_.find(current);
    const DraftId next = draft_.add(std::move(value));
    if (sum != sum_reasons_.end() && step.to.pending != 0) sum_reasons_[next] = sum->second;
    node.outputs = {next};
    draft_.nodes.push_back(std::move(node));
    current = next;
  }
  return current;
}

void Stock::add_node(NodeId id, std::vector<DraftId> inputs, const Choice& choice,
                     const FactorOrders& orders) {
  const Node& source = graph_.nodes[static_cast<std::size_t>(id)];
  const CallRule& call = rules_[static_cast<std::size_t>(id)];
  DraftNode node;
  node.op = source.op;
  node.phase = source.phase;
  node.path = source.path;
  // A sum that passes keeps the reason and the name under which it started.
  std::string inherited;
  std::string carried;
  for (const DraftId input : inputs) {
    const auto sum = sum_reasons_.find(input);
    if (sum == sum_reasons_.end() || draft_.value(input).placement.pending == 0) continue;
    if (inherited.empty()) inherited = sum->second;
    if (carried.empty()) carried = draft_.value(input).path;
  }
  node.inputs = std::move(inputs);
  for (std::size_t i = 0; i < source.outputs.size(); ++i) {
    const Value& result = graph_.value(source.outputs[i]);
    DraftValue value;
    value.type = result.type;
    value.placement = result_placement(call, choice, orders, i);
    value.origin = source.outputs[i];
    value.path = result.path;
    value.gradient = is_gradient(graph_, source.outputs[i]);
    const bool sums = value.placement.pending != 0;
    const std::vector<graph::VariableId>& assigned = uses_.assigned[at(source.outputs[i])];
    if (sums && value.path.empty()) value.path = carried;
    // What gathers a new value is for its variable.
    if (value.path.empty() && !assigned.empty()) {
      value.path = (*graph_.variables)[assigned.front()].path;
    }
    const DraftId made = draft_.add(std::move(value));
    if (sums) {
      sum_reasons_[made] = inherited.empty() ? "contraction dimension is sharded" : inherited;
    }
    node.outputs.push_back(made);
  }
  const std::vector<DraftId> outputs = node.outputs;
  draft_.nodes.push_back(std::move(node));
  for (std::size_t i = 0; i < source.outputs.size(); ++i) {
    const Value& result = graph_.value(source.outputs[i]);
    DraftId made = outputs[i];
    if (result.pin) {
      made = convert(made, without_trivial_axes(*result.pin, mesh_), source.phase,
                     "the layout asked for");
    }
    State& state = states_[at(source.outputs[i])];
    state.known = true;
    state.versions.push_back({made, draft_.value(made).placement});
  }
}

DraftId Stock::make_floating(ValueId id, const Placement& target, const std::string& reader) {
  State& state = states_[at(id)];
  for (const Version& version : state.versions) {
    if (version.placement == target) return version.id;
  }
  if (target.pending != 0) {
    Placement copies = target;
    copies.pending = 0;
    const DraftId made =
        convert(make_floating(id, copies, reader), target,
                graph_.nodes[static_cast<std::size_t>(graph_.value(id).producer)].phase, reader);
    state.versions.push_back({made, target});
    return made;
  }
  const NodeId producer = graph_.value(id).producer;
  const Node& node = graph_.nodes[static_cast<std::size_t>(producer)];
  const CallRule& call = rules_[static_cast<std::size_t>(producer)];
  const auto output = static_cast<std::size_t>(graph_.value(id).output);
  for (const Version& version : state.versions) {
    if (bytes_between(id, version.placement, target) > 0) continue;
    const DraftId made = convert(version.id, target, node.phase, reader);
    state.versions.push_back({made, target});
    return made;
  }
  Choice choice(static_cast<std::size_t>(mesh_.axes()));
  FactorOrders orders;
  for (std::size_t dim = 0; dim < target.dims.size(); ++dim) {
    const char factor = call.rule.results[output][dim];
    if (!graph::is_factor(factor)) continue;
    const bool everywhere = std::all_of(
        call.rule.results.begin(), call.rule.results.end(),
        [factor](const std::string& term) { return term.find(factor) != std::string::npos; });
    if (!everywhere) continue;
    for (const int axis : target.dims[dim]) {
      Choice longer = choice;
      longer[static_cast<std::size_t>(axis)].factor = factor;
      if (!is_legal(call, longer, mesh_)) break;
      choice = std::move(longer);
      orders[factor].push_back(axis);
    }
  }
  std::vector<DraftId> inputs;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    inputs.push_back(
        make_floating(node.inputs[i], operand_placement(call, choice, orders, i), reader));
  }
  add_node(producer, std::move(inputs), choice, orders);
  const Version made = state.versions.back();
  if (made.placement == target) return made.id;
  const DraftId converted = convert(made.id, target, node.phase, reader);
  state.versions.push_back({converted, target});
  return converted;
}

}  // namespace tessera::compile
