// Small training steps for tests of the compiler: what the step builder makes, by hand.
#pragma once

#include <string>
#include <vector>

#include "layouts/mesh.h"
#include "layouts/placement.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/gradients.h"
#include "runtime/ops/ops.h"

namespace tessera::testing {

using graph::SymbolicTensor;
using graph::VariableId;
using layouts::Placement;
using ops::operator+;
using ops::operator-;
using ops::operator*;
using ops::operator/;

/// A table, a graph and a builder that live together.
struct Step {
  graph::VariableTable table;
  graph::Graph graph{table};
  graph::Builder builder{graph};

  VariableId declare(const std::string& path, Shape shape, Placement storage,
                     graph::Role role = graph::Role::weight) {
    graph::Variable variable;
    variable.path = path;
    variable.shape = shape;
    variable.storage = std::move(storage);
    variable.role = role;
    return table.declare(std::move(variable));
  }
  /// A total that takes whatever placement is added to it.
  VariableId declare_metric(const std::string& path, Shape shape = {}) {
    graph::Variable variable;
    variable.path = path;
    variable.shape = shape;
    variable.role = graph::Role::metric;
    return table.declare(std::move(variable));
  }
  SymbolicTensor input(const std::string& name, Shape shape, Placement pin,
                       DType dtype = DType::float32) {
    const SymbolicTensor value = builder.input(name, shape, dtype);
    builder.pin(value, std::move(pin));
    return value;
  }
  SymbolicTensor read(VariableId id) { return builder.variable(id); }

  void add_to_metric(VariableId id, SymbolicTensor value) {
    const graph::Builder::Scope phase(builder, graph::Phase::metrics);
    builder.assign(id, read(id) + value);
  }

  /// Gradients of `loss`, named, pinned where `placements` (by variable) or the variable's storage
  /// say.
  std::vector<SymbolicTensor> differentiate(SymbolicTensor loss,
                                            const std::vector<VariableId>& targets) {
    std::vector<SymbolicTensor> values;
    for (const VariableId id : targets) values.push_back(read(id));
    const std::vector<SymbolicTensor> gradients = ops::gradients(builder, loss, values);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      builder.name(gradients[i], "gradient of " + table[targets[i]].path);
      builder.pin(gradients[i], *table[targets[i]].storage);
    }
    return gradients;
  }

  /// variable := variable - rate * gradient
  void descend(VariableId id, SymbolicTensor gradient, double rate) {
    const graph::Builder::Scope phase(builder, graph::Phase::update);
    builder.assign(id, read(id) - gradient * rate);
  }

  /// Adam with both moments placed at `slots`.
  void adapt(VariableId id, SymbolicTensor gradient, double rate, const Placement& slots) {
    const std::string path = table[id].path;
    const Shape shape = table[id].shape;
    const VariableId m = declare(path + "/m", shape, slots, graph::Role::optimizer);
    const VariableId v = declare(path + "/v", shape, slots, graph::Role::optimizer);
    const graph::Builder::Scope phase(builder, graph::Phase::update);
    const SymbolicTensor m_new = read(m) * 0.9 + gradient * 0.1;
    const SymbolicTensor v_new = read(v) * 0.99 + ops::square(gradient) * 0.01;
    builder.assign(m, m_new);
    builder.assign(v, v_new);
    builder.assign(id, read(id) - rate * m_new / (ops::sqrt(v_new) + 1e-3));
  }
};

/// "b,m" style: one entry per dimension, axes by index; "-" whole. E.g. cuts({{0}, {}}) for [batch,
/// null].
inline Placement cuts(std::vector<layouts::AxisList> dims) { return {std::move(dims), 0}; }

}  // namespace tessera::testing
