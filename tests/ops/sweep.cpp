// Runs one node in pieces and puts the pieces together again.
#include "tests/ops/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "base/error.h"
#include "layouts/mesh.h"
#include "layouts/placement.h"
#include "tests/ops/watched_call.h"
#include "tests/support/buffer.h"

namespace tessera::testing {
namespace {

using graph::LocalCall;
using graph::LocalTensor;
using graph::Rule;
using graph::ValueType;
using layouts::AxisSet;
using layouts::Mesh;
using layouts::Placement;

LocalTensor local_part(const ValueType& type, const Placement& placement, const Mesh& mesh,
                       int rank) {
  return {type.shape, layouts::box_of(type.shape, placement, mesh, rank), type.dtype};
}

std::vector<ValueType> types_of(const std::vector<NodeInput>& inputs) {
  std::vector<ValueType> types;
  for (const NodeInput& input : inputs) types.push_back(input.type);
  return types;
}

LocalCall whole_call(const std::vector<ValueType>& inputs, const std::vector<ValueType>& outputs) {
  const Mesh single;
  LocalCall call;
  for (const ValueType& type : inputs) {
    call.inputs.push_back(local_part(type, Placement::replicated(type.shape.rank()), single, 0));
  }
  for (const ValueType& type : outputs) {
    call.outputs.push_back(local_part(type, Placement::replicated(type.shape.rank()), single, 0));
  }
  return call;
}

std::vector<Buffer> whole_inputs(const std::vector<NodeInput>& inputs) {
  std::vector<Buffer> buffers;
  for (const NodeInput& input : inputs) {
    buffers.emplace_back(input.type.dtype, input.type.shape.elements());
    buffers.back().set(input.values);
  }
  return buffers;
}

std::string check_terms(const std::vector<std::string>& terms,
                        const std::vector<ValueType>& types) {
  if (terms.size() != types.size()) return "the rule has a wrong number of terms";
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (terms[i].size() != types[i].shape.rank()) return "a term of the rule has a wrong length";
    std::string letters = terms[i];
    std::erase_if(letters, [](char c) { return !graph::is_factor(c); });
    std::sort(letters.begin(), letters.end());
    if (std::adjacent_find(letters.begin(), letters.end()) != letters.end()) {
      return "a factor stands twice in one term of the rule";
    }
  }
  return "";
}

std::string check_rule(const Rule& rule, const std::vector<ValueType>& inputs,
                       const std::vector<ValueType>& outputs) {
  if (std::string problem = check_terms(rule.operands, inputs); !problem.empty()) return problem;
  if (std::string problem = check_terms(rule.results, outputs); !problem.empty()) return problem;
  for (const std::uint32_t set : rule.linear) {
    if (set == 0 || (inputs.size() < 32 && (set >> inputs.size()) != 0)) {
      return "a linear set of the rule names operands that do not exist";
    }
  }
  return "";
}

/// What one mesh axis does to a node.
struct Choice {
  char factor = 0;           // cuts this factor
  std::uint32_t linear = 0;  // these operands are pending
};

/// A choice for every axis, in the order in which axes that share a factor are nested.
struct Combination {
  std::vector<Choice> choices;  // by axis
  std::vector<int> order;       // axes, outer first
};

/// Bytes and booleans have no negative terms: nothing adds them up.
bool can_be_pending(const ValueType& type) {
  return type.dtype != DType::uint8 && type.dtype != DType::boolean;
}

std::vector<Combination> combinations_of(const Rule& rule, const std::vector<ValueType>& inputs,
                                         int axes) {
  std::vector<Choice> choices{{}};
  for (const char factor : graph::factors_of(rule)) choices.push_back({factor, 0});
  for (const std::uint32_t set : rule.linear) {
    bool summable = true;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      summable = summable && (((set >> i) & 1U) == 0 || can_be_pending(inputs[i]));
    }
    if (summable) choices.push_back({0, set});
  }
  std::vector<Combination> all;
  if (axes == 1) {
    for (const Choice& choice : choices) all.push_back({{choice}, {0}});
    return all;
  }
  for (const Choice& first : choices) {
    for (const Choice& second : choices) {
      all.push_back({{first, second}, {0, 1}});
      if (first.factor != 0 && first.factor == second.factor) {
        all.push_back({{first, second}, {1, 0}});
      }
    }
  }
  return all;
}

/// A factor may be cut where its dimensions have one size, or where all of them divide evenly.
bool is_legal(const Combination& combination, const Rule& rule, const std::vector<ValueType>& types,
              const Mesh& mesh) {
  std::vector<std::string> terms = rule.operands;
  terms.insert(terms.end(), rule.results.begin(), rule.results.end());
  for (const Choice& choice : combination.choices) {
    if (choice.factor == 0) continue;
    std::int64_t parts = 1;
    for (int axis = 0; axis < mesh.axes(); ++axis) {
      if (combination.choices[static_cast<std::size_t>(axis)].factor == choice.factor) {
        parts *= mesh.axis_size(axis);
      }
    }
    std::set<std::int64_t> sizes;
    for (std::size_t i = 0; i < terms.size(); ++i) {
      const std::size_t dim = terms[i].find(choice.factor);
      if (dim != std::string::npos) sizes.insert(types[i].shape[dim]);
    }
    const bool even = std::all_of(sizes.begin(), sizes.end(),
                                  [parts](std::int64_t size) { return size % parts == 0; });
    if (sizes.size() > 1 && !even) return false;
  }
  return true;
}

/// Placement of one operand (bit >= 0) or result (bit < 0).
Placement placement_of(const std::string& term, int bit, const Combination& combination) {
  Placement placement = Placement::replicated(term.size());
  for (const int axis : combination.order) {
    const Choice& choice = combination.choices[static_cast<std::size_t>(axis)];
    const AxisSet self = AxisSet{1} << axis;
    if (choice.linear != 0) {
      if (bit < 0 || ((choice.linear >> bit) & 1U) != 0) placement.pending |= self;
    } else if (choice.factor != 0) {
      const std::size_t dim = term.find(choice.factor);
      if (dim != std::string::npos) {
        placement.dims[dim].push_back(axis);
      } else if (bit < 0) {
        placement.pending |= self;
      }
    }
  }
  return placement;
}

/// Index of a rank among the ranks that differ along `axes`.
std::size_t index_along(const Mesh& mesh, int rank, AxisSet axes) {
  std::size_t index = 0;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    if (((axes >> axis) & 1U) == 0) continue;
    index = index * static_cast<std::size_t>(mesh.axis_size(axis)) +
            static_cast<std::size_t>(mesh.coordinate(rank, axis));
  }
  return index;
}

/// Whole numbers that add up to the values, about 60% in the first term and of both signs in the
/// others.
std::vector<std::vector<double>> split(const std::vector<double>& values, int terms,
                                       std::mt19937_64& random) {
  std::uniform_int_distribution<int> any(-5, 5);
  std::vector<std::vector<double>> parts(static_cast<std::size_t>(terms), values);
  for (std::size_t k = 0; k < values.size(); ++k) {
    double rest = values[k];
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      parts[i][k] = (i == 0 ? std::round(0.6 * values[k]) : 0.0) + any(random);
      rest -= parts[i][k];
    }
    parts.back()[k] = rest;
  }
  return parts;
}

/// A node on one mesh under one combination.
class CutRun {
 public:
  CutRun(const NodeUnderTest& test, const std::vector<ValueType>& outputs, const Rule& rule,
         const Mesh& mesh, const Combination& combination)
      : test_(test), outputs_(outputs), mesh_(mesh) {
    for (std::size_t i = 0; i < rule.operands.size(); ++i) {
      operand_placements_.push_back(
          placement_of(rule.operands[i], static_cast<int>(i), combination));
    }
    for (const std::string& term : rule.results) {
      result_placements_.push_back(placement_of(term, -1, combination));
    }
  }

  std::string run(const std::vector<std::vector<double>>& expected) {
    std::mt19937_64 random(17);
    std::vector<std::vector<std::vector<double>>> terms;  // operand, term, element
    for (std::size_t i = 0; i < test_.inputs.size(); ++i) {
      terms.push_back(
          split(test_.inputs[i].values, mesh_.group_size(operand_placements_[i].pending), random));
    }
    std::vector<std::vector<double>> whole;
    for (const ValueType& type : outputs_) {
      whole.emplace_back(static_cast<std::size_t>(type.shape.elements()), 0.0);
    }
    std::vector<std::map<std::size_t, Buffer>> seen(outputs_.size());
    for (int rank = 0; rank < mesh_.size(); ++rank) {
      LocalCall call;
      const RunResult result = run_rank(rank, terms, call);
      if (!result.problem.empty()) return describe(result.problem);
      for (std::size_t i = 0; i < outputs_.size(); ++i) {
        const Placement& placement = result_placements_[i];
        const std::size_t key = index_along(mesh_, rank, placement.cut_axes() | placement.pending);
        const auto [known, added] = seen[i].emplace(key, result.outputs[i]);
        if (!added) {
          if (!(known->second == result.outputs[i])) {
            return describe(fmt::format("copies of result {} differ on rank {}", i, rank));
          }
          continue;
        }
        add_part(whole[i], outputs_[i].shape, call.outputs[i].box, result.outputs[i].get());
      }
    }
    return compare(expected, whole);
  }

 private:
  RunResult run_rank(int rank, const std::vector<std::vector<std::vector<double>>>& terms,
                     LocalCall& call) {
    std::vector<Buffer> inputs;
    for (std::size_t i = 0; i < test_.inputs.size(); ++i) {
      const ValueType& type = test_.inputs[i].type;
      const Placement& placement = operand_placements_[i];
      call.inputs.push_back(local_part(type, placement, mesh_, rank));
      inputs.emplace_back(type.dtype, call.inputs.back().box.elements());
      inputs.back().set(cut(terms[i][index_along(mesh_, rank, placement.pending)], type.shape,
                            call.inputs.back().box));
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      call.outputs.push_back(local_part(outputs_[i], result_placements_[i], mesh_, rank));
    }
    return run_call(test_.op, call, inputs, 0xFF);
  }

  static void add_part(std::vector<double>& whole, const Shape& shape, const Box& box,
                       std::vector<double> part) {
    const std::vector<double> sofar = cut(whole, shape, box);
    for (std::size_t k = 0; k < part.size(); ++k) part[k] += sofar[k];
    paste(whole, shape, box, part);
  }

  std::string compare(const std::vector<std::vector<double>>& expected,
                      const std::vector<std::vector<double>>& found) const {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      for (std::size_t k = 0; k < expected[i].size(); ++k) {
        const double a = expected[i][k];
        const double b = found[i][k];
        const bool same = a == b || (std::isnan(a) && std::isnan(b));
        const bool near = test_.tolerance > 0.0 &&
                          std::abs(a - b) <= test_.tolerance * std::max(1.0, std::abs(a));
        if (same || near) continue;
        return describe(
            fmt::format("result {} at element {}: uncut {}, put together {}", i, k, a, b));
      }
    }
    return "";
  }

  std::string describe(const std::string& problem) const {
    std::string text = fmt::format("{}\n", problem);
    for (std::size_t i = 0; i < test_.inputs.size(); ++i) {
      text += fmt::format("operand {} {}: {}\n", i, to_string(test_.inputs[i].type.shape),
                          layouts::to_string(operand_placements_[i], mesh_));
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      text += fmt::format("result {} {}: {}\n", i, to_string(outputs_[i].shape),
                          layouts::to_string(result_placements_[i], mesh_));
    }
    return text;
  }

  const NodeUnderTest& test_;
  const std::vector<ValueType>& outputs_;
  const Mesh& mesh_;
  std::vector<Placement> operand_placements_;
  std::vector<Placement> result_placements_;
};

std::string title(const NodeUnderTest& test, const Rule& rule) {
  std::string linear;
  for (const std::uint32_t set : rule.linear) linear += fmt::format(" {:#b}", set);
  return fmt::format("{}{{{}}} rule {} linear{}: ", test.op.name(), test.op.attributes(),
                     to_string(rule), linear);
}

}  // namespace

std::string check_node(const NodeUnderTest& test) {
  const std::vector<ValueType> types = types_of(test.inputs);
  const std::vector<ValueType> outputs = test.op.infer(types);
  const Rule rule = test.op.rule(types, outputs);
  const std::string name = title(test, rule);
  if (const std::string problem = check_rule(rule, types, outputs); !problem.empty()) {
    return name + problem;
  }
  const LocalCall call = whole_call(types, outputs);
  const std::vector<Buffer> inputs = whole_inputs(test.inputs);
  const RunResult once = run_call(test.op, call, inputs, 0xFF);
  if (!once.problem.empty()) return name + once.problem;
  if (!(once.outputs == run_call(test.op, call, inputs, 0x5A).outputs)) {
    return name + "two runs differ: something is not written, or read before it is written";
  }
  if (!(test.op.flops(call) >= 0.0)) return name + "negative flops";
  if (test.op.is_view() && once.outputs[0].get() != inputs[0].get()) {
    return name + "a view holds other elements than its operand";
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t j = 0; j < types.size(); ++j) {
      const bool fits = test.op.is_view() || outputs[i].shape == types[j].shape;
      if (!(test.op.may_overwrite(i, j) || test.op.is_view()) || !fits ||
          size_of(outputs[i].dtype) != size_of(types[j].dtype)) {
        continue;
      }
      const RunResult shared =
          run_call(test.op, call, inputs, 0xFF, {static_cast<int>(i), static_cast<int>(j)});
      if (!(shared.outputs == once.outputs)) {
        return name + fmt::format("result {} in the memory of operand {} differs", i, j);
      }
    }
  }
  return "";
}

std::string sweep_node(const NodeUnderTest& test) {
  const std::vector<ValueType> types = types_of(test.inputs);
  const std::vector<ValueType> outputs = test.op.infer(types);
  const Rule rule = test.op.rule(types, outputs);
  std::vector<ValueType> all = types;
  all.insert(all.end(), outputs.begin(), outputs.end());
  const RunResult uncut =
      run_call(test.op, whole_call(types, outputs), whole_inputs(test.inputs), 0xFF);
  std::vector<std::vector<double>> expected;
  for (const Buffer& output : uncut.outputs) expected.push_back(output.get());
  const std::vector<std::vector<std::int64_t>> shapes{{2}, {3}, {4}, {2, 2}, {2, 3}};
  for (const std::vector<std::int64_t>& shape : shapes) {
    const std::vector<std::string> names{"a", "b"};
    const Mesh mesh(shape, {names.begin(), names.begin() + static_cast<long>(shape.size())});
    for (const Combination& combination : combinations_of(rule, types, mesh.axes())) {
      if (!is_legal(combination, rule, all, mesh)) continue;
      CutRun run(test, outputs, rule, mesh, combination);
      if (const std::string problem = run.run(expected); !problem.empty()) {
        return fmt::format("{}mesh [{}]: {}", title(test, rule), fmt::join(shape, ", "), problem);
      }
    }
  }
  return "";
}

}  // namespace tessera::testing
