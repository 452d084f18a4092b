// The op test driver: builds cases, checks types and gradients, and hands every node to the sweep.
#include "tests/ops/driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <optional>
#include <random>
#include <set>

#include "runtime/ops/gradients.h"
#include "tests/ops/sweep.h"
#include "tests/support/interpreter.h"

namespace tessera::testing {
namespace {

using ops::operator+;
using ops::operator*;

constexpr std::string_view kCasePath = "case";

/// A case as a graph, with what the checks need to find again.
struct Built {
  Built() : graph(table), builder(graph) {}
  Built(const Built&) = delete;
  Built& operator=(const Built&) = delete;

  graph::VariableTable table;
  graph::Graph graph;
  Builder builder;
  Tensors inputs;
  Tensors results;
  Tensors weights;    // one input per floating result
  Tensors gradients;  // per input; invalid where there is none
};

std::vector<double> domain_of(const Operand& operand) {
  if (!operand.domain.empty()) return operand.domain;
  if (is_floating(operand.type.dtype)) return {-3, -2, -1, 0, 1, 2, 3};
  if (operand.type.dtype == DType::boolean) return {0, 1};
  return {0, 1, 2, 3};
}

std::vector<double> draw(const std::vector<double>& domain, std::int64_t elements,
                         std::mt19937_64& random) {
  std::uniform_int_distribution<std::size_t> index(0, domain.size() - 1);
  std::vector<double> values(static_cast<std::size_t>(elements));
  for (double& value : values) value = domain[index(random)];
  return values;
}

std::vector<double> draw_between(const std::vector<double>& domain, std::int64_t elements,
                                 std::mt19937_64& random) {
  const auto [low, high] = std::minmax_element(domain.begin(), domain.end());
  std::uniform_real_distribution<double> real(*low, *high);
  std::vector<double> values(static_cast<std::size_t>(elements));
  for (double& value : values) value = real(random);
  return values;
}

/// sum(results * weights) over the floating results, as a scalar of `dtype`.
SymbolicTensor weighted_sum(Built& built, DType dtype) {
  SymbolicTensor loss;
  for (std::size_t i = 0; i < built.results.size(); ++i) {
    const SymbolicTensor result = built.results[i];
    if (!is_floating(result.dtype())) continue;
    built.weights.push_back(built.builder.input(fmt::format("weight{}", i), result.shape(), dtype));
    const SymbolicTensor term = ops::sum(ops::cast(result, dtype) * built.weights.back());
    loss = loss ? loss + term : term;
  }
  return loss;
}

/// Builds the formula and, where it has floating results, its gradient. `wide`: float64 instead of
/// other floating types.
void build_case(Built& built, const Operands& operands, const Build& build,
                std::optional<DType> floating, bool backward) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    DType dtype = operands[i].type.dtype;
    if (floating && is_floating(dtype)) dtype = *floating;
    built.inputs.push_back(
        built.builder.input(fmt::format("x{}", i), operands[i].type.shape, dtype));
  }
  {
    const Builder::Scope scope(built.builder, kCasePath);
    built.results = build(built.builder, built.inputs);
  }
  for (std::size_t i = 0; i < built.results.size(); ++i) {
    built.builder.output(fmt::format("y{}", i), built.results[i]);
  }
  built.gradients.resize(built.inputs.size());
  if (!backward) return;
  const SymbolicTensor loss =
      weighted_sum(built, floating == DType::float64 ? DType::float64 : DType::float32);
  if (!loss) return;
  built.builder.output("loss", loss);
  Tensors targets;
  for (const SymbolicTensor input : built.inputs) {
    if (is_floating(input.dtype())) targets.push_back(input);
  }
  const Tensors found = ops::gradients(built.builder, loss, targets);
  std::size_t next = 0;
  for (std::size_t i = 0; i < built.inputs.size(); ++i) {
    if (is_floating(built.inputs[i].dtype())) built.gradients[i] = found[next++];
  }
}

void set_weights(const Built& built, Interpreter& interpreter, std::mt19937_64& random) {
  for (const SymbolicTensor weight : built.weights) {
    interpreter.set_input(built.graph.value(weight.id).path,
                          draw_between({-1, 1}, weight.shape().elements(), random));
  }
}

/// Analytic against numeric gradients; the first difference as text, "" when there is none.
std::string gradient_problem(const Operands& operands, const Build& build, const Options& options) {
  Built built;
  build_case(built, operands, build, DType::float64, true);
  if (built.weights.empty()) return "";
  std::mt19937_64 random(7);
  Interpreter interpreter(built.graph);
  std::vector<std::vector<double>> values;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::int64_t elements = operands[i].type.shape.elements();
    values.push_back(is_floating(operands[i].type.dtype)
                         ? draw_between(domain_of(operands[i]), elements, random)
                         : draw(domain_of(operands[i]), elements, random));
    interpreter.set_input(fmt::format("x{}", i), values.back());
  }
  set_weights(built, interpreter, random);
  interpreter.run();
  std::vector<std::vector<double>> analytic;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const SymbolicTensor gradient = built.gradients[i];
    if (gradient && (!(gradient.shape() == operands[i].type.shape) ||
                     gradient.dtype() != built.inputs[i].dtype())) {
      return fmt::format("gradient of operand {} has shape {}", i, to_string(gradient.shape()));
    }
    analytic.push_back(gradient ? interpreter.value(gradient.id)
                                : std::vector<double>(values[i].size(), 0.0));
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!is_floating(operands[i].type.dtype)) continue;
    const std::string name = fmt::format("x{}", i);
    for (std::size_t k = 0; k < values[i].size(); ++k) {
      std::vector<double> moved = values[i];
      const double step = 1e-5 * std::max(1.0, std::abs(moved[k]));
      const auto loss_at = [&](double value) {
        moved[k] = value;
        interpreter.set_input(name, moved);
        interpreter.run();
        return interpreter.output("loss").front();
      };
      const double numeric =
          (loss_at(values[i][k] + step) - loss_at(values[i][k] - step)) / (2.0 * step);
      const double error = std::abs(analytic[i][k] - numeric) / std::max(1.0, std::abs(numeric));
      if (!(error <= options.gradient_tolerance)) {
        return fmt::format("gradient of operand {} at element {}: analytic {}, numeric {}\n{}", i,
                           k, analytic[i][k], numeric, to_string(built.graph));
      }
    }
    interpreter.set_input(name, values[i]);
  }
  return "";
}

/// Text that two nodes share exactly when the sweep would do the same with both.
std::string key_of(const graph::Graph& graph, const graph::Node& node,
                   const std::vector<NodeInput>& inputs, const Options& options) {
  std::string key =
      fmt::format("{}|{}|{}", node.op->name(), node.op->attributes(), options.tolerance);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const graph::ValueType& type = graph.type(node.inputs[i]);
    key += fmt::format("|{}{}:", name_of(type.dtype), to_string(type.shape));
    if (!inputs[i].domain.empty()) {
      key += fmt::format("{}", fmt::join(inputs[i].domain, ","));
    } else if (!is_floating(type.dtype)) {
      key += fmt::format("={}", fmt::join(inputs[i].values, ","));
    }
  }
  return key;
}

std::string sweep_problem(const Operands& operands, const Build& build, const Options& options) {
  static std::set<std::string> swept;  // nodes that earlier cases of this program have been through
  Built built;
  build_case(built, operands, build, std::nullopt, options.backward);
  std::mt19937_64 random(11);
  Interpreter interpreter(built.graph);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    interpreter.set_input(fmt::format("x{}", i),
                          draw(domain_of(operands[i]), operands[i].type.shape.elements(), random));
  }
  set_weights(built, interpreter, random);
  interpreter.run();
  for (const graph::Node& node : built.graph.nodes) {
    if (node.path != kCasePath) continue;
    std::vector<NodeInput> inputs;
    for (const graph::ValueId id : node.inputs) {
      NodeInput input{built.graph.type(id), {}, interpreter.value(id)};
      for (std::size_t i = 0; i < operands.size(); ++i) {
        if (built.inputs[i].id == id) input.domain = domain_of(operands[i]);
      }
      const bool computed = input.domain.empty();
      if (computed && is_floating(input.type.dtype)) {
        input.domain = {-4, -2, -1, 1, 2, 4};
        input.values = draw(input.domain, input.type.shape.elements(), random);
      }
      inputs.push_back(std::move(input));
    }
    if (!swept.insert(key_of(built.graph, node, inputs, options)).second) continue;
    const NodeUnderTest test{*node.op, inputs, options.tolerance};
    if (std::string problem = check_node(test); !problem.empty()) return problem;
    if (std::string problem = sweep_node(test); !problem.empty()) return problem;
  }
  return "";
}

}  // namespace

Operand real(Shape shape, std::vector<double> domain, DType dtype) {
  return {{shape, dtype}, std::move(domain)};
}

Operand whole(Shape shape, int low, int high, DType dtype) {
  Operand operand{{shape, dtype}, {}};
  for (int value = low; value <= high; ++value) operand.domain.push_back(value);
  return operand;
}

std::string problem_of(const std::vector<Operands>& instances, const Build& build,
                       const Options& options) {
  if (options.tolerance != 0.0 && options.reason.empty()) return "a tolerance needs a reason";
  if (instances.empty()) return "there are no instances";
  for (const Operands& operands : instances) {
    if (options.gradient) {
      if (std::string problem = gradient_problem(operands, build, options); !problem.empty()) {
        return problem;
      }
    }
    if (std::string problem = sweep_problem(operands, build, options); !problem.empty()) {
      return problem;
    }
  }
  return "";
}

void check_op(const std::vector<Operands>& instances, const Build& build, const Options& options) {
  const std::string problem = problem_of(instances, build, options);
  if (!problem.empty()) FAIL(problem);
  SUCCEED("all instances passed");
}

void check_dtypes(const Operands& operands, const Build& build) {
  const auto results_in = [&](DType dtype) {
    Built built;
    build_case(built, operands, build, dtype, true);
    std::mt19937_64 random(23);
    Interpreter interpreter(built.graph);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      interpreter.set_input(fmt::format("x{}", i), draw(domain_of(operands[i]),
                                                        operands[i].type.shape.elements(), random));
    }
    set_weights(built, interpreter, random);
    interpreter.run();
    std::vector<std::vector<double>> values;
    for (const SymbolicTensor result : built.results)
      values.push_back(interpreter.value(result.id));
    for (const SymbolicTensor gradient : built.gradients) {
      if (gradient) values.push_back(interpreter.value(gradient.id));
    }
    return values;
  };
  const std::vector<std::vector<double>> expected = results_in(DType::float64);
  const std::pair<DType, double> limits[] = {
      {DType::float32, 1e-5}, {DType::bfloat16, 3e-2}, {DType::float16, 4e-3}};
  for (const auto& [dtype, limit] : limits) {
    const std::vector<std::vector<double>> found = results_in(dtype);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      double scale = 1.0;
      double error = 0.0;
      for (std::size_t k = 0; k < found[i].size(); ++k) {
        scale = std::max(scale, std::abs(expected[i][k]));
        const double difference = std::abs(found[i][k] - expected[i][k]);
        error = std::isnan(difference) ? difference : std::max(error, difference);
      }
      INFO(name_of(dtype) << ", tensor " << i << " (results, then gradients)");
      CHECK(error <= limit * scale);
    }
  }
}

void check_threads(const Operands& operands, const Build& build) {
  Built built;
  build_case(built, operands, build, std::nullopt, true);
  const auto results_with = [&](int threads) {
    std::mt19937_64 random(5);
    Interpreter interpreter(built.graph, threads);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const std::int64_t elements = operands[i].type.shape.elements();
      interpreter.set_input(fmt::format("x{}", i),
                            is_floating(operands[i].type.dtype)
                                ? draw_between(domain_of(operands[i]), elements, random)
                                : draw(domain_of(operands[i]), elements, random));
    }
    set_weights(built, interpreter, random);
    interpreter.run();
    std::vector<Buffer> buffers;
    for (const graph::Node& node : built.graph.nodes) {
      if (node.path != kCasePath) continue;
      for (const graph::ValueId id : node.outputs) buffers.push_back(interpreter.buffer(id));
    }
    return buffers;
  };
  CHECK((results_with(1) == results_with(2)));
}

}  // namespace tessera::testing
