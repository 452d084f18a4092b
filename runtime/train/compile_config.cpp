// Reads what Model.compile takes: one entry per output out of Keras's many forms.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/arguments.h"
#include "runtime/train/step.h"

namespace tessera::train {
namespace {

using json::Value;

/// Where problems about an argument go, and the outputs that it may name.
struct Place {
  std::string path;
  std::string_view argument;
  const std::vector<TensorSpec>& outputs;
  json::Problems& problems;

  void report(const Value& at, const std::string& where, std::string message) const {
    problems.add({at.file ? *at.file : "", at.position, where, std::move(message)});
  }
};

std::vector<std::string> names_of(const std::vector<TensorSpec>& outputs) {
  std::vector<std::string> names;
  for (const TensorSpec& output : outputs) names.push_back(output.name);
  return names;
}

/// What the user gave for one output.
struct Given {
  const Value* value = nullptr;  // nullptr: nothing
  std::string path;
};

bool is_keras_object(const Value& value) {
  return value.is_object() && value.find("class_name") != nullptr;
}

/// An object whose keys are output names. `complete`: every output must be named.
std::vector<Given> by_name(const Value& object, const Place& place, bool complete) {
  std::vector<Given> result(place.outputs.size());
  const std::vector<std::string> names = names_of(place.outputs);
  for (const json::Member& member : object.object) {
    const auto found = std::find(names.begin(), names.end(), member.key);
    const std::string where = json::child_path(place.path, member.key);
    if (found == names.end()) {
      json::Problem problem{member.value.file ? *member.value.file : "", member.key_position, where,
                            fmt::format("In the dict argument `{}`, key \"{}\" does not correspond "
                                        "to any model output{}",
                                        place.argument, json::printable(member.key),
                                        json::did_you_mean(member.key, names))};
      if (problem.at.line == 0) problem.at = member.value.position;
      place.problems.add(std::move(problem));
      continue;
    }
    result[static_cast<std::size_t>(found - names.begin())] = {&member.value, where};
  }
  for (std::size_t i = 0; complete && i < names.size(); ++i) {
    if (result[i].value == nullptr) {
      place.report(object, place.path,
                   fmt::format("Expected keys [\"{}\"] in {} dict, but \"{}\" is missing",
                               fmt::join(names, "\", \""), place.argument, names[i]));
    }
  }
  return result;
}

/// An array with one entry per output.
std::vector<Given> by_position(const Value& array, const Place& place) {
  std::vector<Given> result(place.outputs.size());
  if (array.array.size() != result.size()) {
    place.report(array, place.path,
                 fmt::format("when `{}` is a list, it should have as many entries as the model has "
                             "outputs: expected {}, got {}",
                             place.argument, result.size(), array.array.size()));
    return result;
  }
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = {&array.array[i], json::child_path(place.path, i)};
  }
  return result;
}

/// `loss`: one for all outputs, or one each.
std::vector<Given> losses_of(const Value& value, const Place& place) {
  if (value.is_array()) return by_position(value, place);
  if (value.is_object() && !is_keras_object(value)) return by_name(value, place, true);
  return std::vector<Given>(place.outputs.size(), Given{&value, place.path});
}

/// Names the two tensors of an output with a batch dimension; its size only must not look like a
/// single class.
OutputTypes types_of(const TensorSpec& output, const TensorSpec& target) {
  constexpr std::int64_t kBatch = 2;
  const auto batched = [](const TensorSpec& spec) {
    Shape shape{kBatch};
    for (const std::int64_t size : spec.sample_shape) shape.push_back(size);
    return graph::ValueType{shape, spec.dtype};
  };
  return {batched(target), batched(output)};
}

/// The data's entry for an output; nullptr where it has none.
const TensorSpec* target_of(const std::vector<TensorSpec>& targets,
                            const std::vector<TensorSpec>& outputs, std::size_t output) {
  for (const TensorSpec& target : targets) {
    if (target.name == outputs[output].name) return &target;
  }
  const bool unnamed = std::all_of(targets.begin(), targets.end(),
                                   [](const TensorSpec& target) { return target.name.empty(); });
  return unnamed && output < targets.size() ? &targets[output] : nullptr;
}

std::vector<double> read_weights(const Value* value, const Place& place) {
  std::vector<double> weights(place.outputs.size(), 1.0);
  if (value == nullptr || value->is_null()) return weights;
  std::vector<Given> given;
  if (value->is_object()) {
    given = by_name(*value, place, true);
  } else if (value->is_array()) {
    given = by_position(*value, place);
  } else if (place.outputs.size() == 1) {
    given = {{value, place.path}};
  } else {
    place.report(*value, place.path,
                 "expected a list or an object with one number for each output");
    return weights;
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i].value == nullptr || given[i].value->is_null()) continue;
    if (given[i].value->is_number()) {
      weights[i] = given[i].value->number;
    } else {
      place.report(*given[i].value, given[i].path, "expected a number");
    }
  }
  return weights;
}

/// One metric and the output that it is for, before names are settled.
struct Wanted {
  Given given;
  std::size_t output = 0;
};

/// What stands for one output: a metric, a list of them, or null.
void add_wanted(const Given& given, std::size_t output, std::vector<Wanted>& wanted) {
  if (given.value == nullptr || given.value->is_null()) return;
  if (!given.value->is_array()) {
    wanted.push_back({given, output});
    return;
  }
  for (std::size_t i = 0; i < given.value->array.size(); ++i) {
    add_wanted({&given.value->array[i], json::child_path(given.path, i)}, output, wanted);
  }
}

std::vector<Wanted> wanted_metrics(const Value* value, const Place& place) {
  std::vector<Wanted> wanted;
  if (value == nullptr || value->is_null()) return wanted;
  std::vector<Given> given;
  if (value->is_object() && !is_keras_object(*value)) {
    given = by_name(*value, place, false);
  } else if (place.outputs.size() == 1) {
    given = {{value, place.path}};
  } else if (value->is_array() && value->array.empty()) {
    return wanted;
  } else if (value->is_array()) {
    given = by_position(*value, place);
  } else {
    place.report(*value, place.path,
                 "for a model with several outputs, expected a list with one entry per output or "
                 "an object with output names as keys");
    return wanted;
  }
  for (std::size_t i = 0; i < given.size(); ++i) add_wanted(given[i], i, wanted);
  return wanted;
}

/// Makes shown names unique as Keras does: the output's prefix where there are several, then a
/// number, or "weighted_".
class ShownNames {
 public:
  std::string add(const std::string& prefix, const std::string& name, bool weighted) {
    std::string shown = prefix + name;
    if (used_.insert(shown).second) return shown;
    if (weighted) {
      shown = prefix + "weighted_" + name;
      if (used_.insert(shown).second) return shown;
    }
    for (int count = 1;; ++count) {
      const std::string numbered = fmt::format("{}_{}", shown, count);
      if (used_.insert(numbered).second) return numbered;
    }
  }

 private:
  std::set<std::string> used_;
};

/// What is read from: the section, the model's outputs and the data's targets.
struct Context {
  const ModelInterface& model;
  const std::vector<TensorSpec> targets;
  json::Problems& problems;
  bool targets_known = true;  // false: names and arguments alone are checked

  /// Types of an output and its target; those of an unknown target are left empty.
  OutputTypes types(std::size_t output, const TensorSpec& target) const {
    OutputTypes types = types_of(model.outputs[output], target);
    if (!targets_known) types.y_true.shape = {};
    return types;
  }

  /// nullptr after a problem, where a loss or metric has nothing to compare with.
  const TensorSpec* required_target(std::size_t output, const Given& given,
                                    std::string_view noun) const {
    if (!targets_known) return &model.outputs[output];
    const TensorSpec* target = target_of(targets, model.outputs, output);
    if (target == nullptr) {
      problems.add({given.value->file ? *given.value->file : "", given.value->position, given.path,
                    fmt::format("output \"{}\" has a {}, but the data holds no target for it",
                                model.outputs[output].name, noun)});
    }
    return target;
  }
};

void read_losses(json::Arguments& arguments, const Context& context, CompiledLosses& losses) {
  losses.losses.resize(context.model.outputs.size());
  const Value* value = arguments.value("loss");
  if (value != nullptr && !value->is_null()) {
    const Place place{arguments.path_of("loss"), "loss", context.model.outputs, context.problems};
    const std::vector<Given> given = losses_of(*value, place);
    bool shared = true;  // one value for all outputs: its problems are reported once
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (given[i].value == nullptr || given[i].value->is_null()) continue;
      if (i > 0 && given[i].value == given[0].value && !shared) continue;
      const TensorSpec* target = context.required_target(i, given[i], "loss");
      if (target == nullptr) continue;
      losses.losses[i] =
          make_loss(*given[i].value, given[i].path, context.types(i, *target), context.problems);
      shared = losses.losses[i] != nullptr;
    }
  }
  losses.weights = read_weights(
      arguments.value("loss_weights"),
      {arguments.path_of("loss_weights"), "loss_weights", context.model.outputs, context.problems});
}

void read_metrics(json::Arguments& arguments, std::string_view key, bool weighted,
                  const Context& context, ShownNames& names, std::vector<CompiledMetric>& metrics) {
  const Place place{arguments.path_of(key), key, context.model.outputs, context.problems};
  for (const Wanted& wanted : wanted_metrics(arguments.value(key), place)) {
    const TensorSpec* target = context.required_target(wanted.output, wanted.given, "metric");
    if (target == nullptr) continue;
    const TensorSpec& output = context.model.outputs[wanted.output];
    CompiledMetric compiled;
    compiled.metric = make_metric(*wanted.given.value, wanted.given.path,
                                  context.types(wanted.output, *target), context.problems);
    if (!compiled.metric) continue;
    compiled.output = wanted.output;
    compiled.weighted = weighted;
    const std::string prefix = context.model.outputs.size() > 1 ? output.name + "_" : "";
    compiled.shown_name = names.add(prefix, compiled.metric->name(), weighted);
    metrics.push_back(std::move(compiled));
  }
}

CompiledTraining read(const Value& compile, const std::string& path, const Context& context,
                      bool mixed_float16) {
  json::Problems& problems = context.problems;
  CompiledTraining training;
  json::Arguments arguments(compile, path, problems);
  const bool auto_scale_loss = arguments.boolean("auto_scale_loss", true);
  const Value fallback = json::make("rmsprop");
  const Value* optimizer = arguments.value("optimizer");
  const bool given = optimizer != nullptr && !optimizer->is_null();
  if (compile.is_object() || compile.is_null()) {
    training.optimizer =
        make_optimizer(given ? *optimizer : fallback, arguments.path_of("optimizer"),
                       mixed_float16 && auto_scale_loss, problems);
  }
  read_losses(arguments, context, training.losses);
  ShownNames names;
  read_metrics(arguments, "metrics", false, context, names, training.metrics);
  read_metrics(arguments, "weighted_metrics", true, context, names, training.metrics);
  // How Keras runs a step is not ours to choose: read for their types.
  arguments.boolean("run_eagerly", false);
  arguments.integer("steps_per_execution", 1, 1);
  const Value* jit = arguments.value("jit_compile");
  if (jit != nullptr && !jit->is_null() && jit->kind != json::Kind::boolean &&
      jit->string != "auto") {
    arguments.problem(*jit, "jit_compile", "expected true, false or \"auto\"");
  }
  arguments.finish();
  return training;
}

}  // namespace

CompiledTraining read_compile(const Value& compile, const std::string& path,
                              const ModelInterface& model, const std::vector<TensorSpec>& targets,
                              bool mixed_float16, json::Problems& problems) {
  return read(compile, path, {model, targets, problems}, mixed_float16);
}

void check_compile(const Value& compile, const std::string& path, const ModelInterface& model,
                   bool mixed_float16, json::Problems& problems) {
  read(compile, path, {model, {}, problems, false}, mixed_float16);
}

}  // namespace tessera::train
