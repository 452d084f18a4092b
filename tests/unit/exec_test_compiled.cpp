// Training steps from graph to results on ranks that are threads: every mesh gives what one rank
// gives.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "comm/communicator.h"
#include "runtime/compile/compile.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/whole_tensor.h"
#include "tests/support/buffer.h"
#include "tests/support/interpreter.h"
#include "tests/unit/compile_models.h"

namespace tessera::exec {
namespace {

using layouts::Mesh;
using layouts::Placement;
using testing::Buffer;
using ops::operator-;
using testing::Step;

constexpr int kSteps = 3;
constexpr std::int64_t kBatch = 7;

/// How variables and data lie on the mesh.
struct Layout {
  std::string name;
  Mesh mesh;
  Placement data;    // [batch, features]
  Placement first;   // kernel [5, 8]
  Placement second;  // kernel [8, 3]
  Placement moments_first, moments_second;
};

std::vector<Layout> layouts_to_try() {
  const Placement copy = Placement::replicated(2);
  const Placement rows{{{0}, {}}, 0};
  const Placement columns{{{}, {0}}, 0};
  const Mesh three({3}, {"batch"});
  const Mesh grid({2, 2}, {"batch", "model"});
  const Placement model_columns{{{}, {1}}, 0};
  const Placement model_rows{{{1}, {}}, 0};
  return {{"one rank", Mesh(), copy, copy, copy, copy, copy},
          {"data parallel", three, rows, copy, copy, copy, copy},
          {"optimizer state sharded", three, rows, copy, copy, rows, rows},
          {"parameters sharded", three, rows, rows, rows, rows, rows},
          {"column then row", Mesh({2}, {"model"}), copy, columns, rows, columns, rows},
          {"both", grid, rows, model_columns, model_rows, model_columns, model_rows},
          {"empty parts", Mesh({8}, {"batch"}), rows, rows, columns, rows, columns}};
}

struct Model {
  Step step;
  graph::VariableId first, second, total;

  explicit Model(const Layout& layout) {
    const graph::SymbolicTensor x = step.input("x", {kBatch, 5}, layout.data);
    const graph::SymbolicTensor y = step.input("y", {kBatch, 3}, layout.data);
    first = step.declare("dense/kernel", {5, 8}, layout.first);
    second = step.declare("dense_1/kernel", {8, 3}, layout.second);
    total = step.declare_metric("loss/total");
    const graph::SymbolicTensor hidden = ops::relu(ops::matmul(x, step.read(first)));
    const graph::SymbolicTensor error = ops::matmul(hidden, step.read(second)) - y;
    const graph::SymbolicTensor loss = ops::mean(ops::square(error));
    const auto gradients = step.differentiate(loss, {first, second});
    step.adapt(first, gradients[0], 0.05, layout.moments_first);
    step.adapt(second, gradients[1], 0.05, layout.moments_second);
    step.add_to_metric(total, loss);
    step.builder.output("loss", loss);
  }
};

double value_at(std::size_t i, double scale) {
  return scale * (static_cast<double>((i * 2654435761U) % 1000U) / 500.0 - 1.0);
}

std::vector<double> values(std::size_t count, double scale) {
  std::vector<double> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = static_cast<double>(static_cast<float>(value_at(i + 7, scale)));
  }
  return result;
}

const std::vector<double>& input_named(std::string_view name) {
  static const std::vector<double> x = values(kBatch * 5, 1.0);
  static const std::vector<double> y = values(kBatch * 3, 0.5);
  return name == "x" ? x : y;
}

/// Weights after the steps and the metric's total, by name.
using Results = std::map<std::string, std::vector<double>>;

Results expected_results() {
  Model model(layouts_to_try().front());
  testing::Interpreter interpreter(model.step.graph);
  interpreter.set_input("x", input_named("x"));
  interpreter.set_input("y", input_named("y"));
  interpreter.set_variable(model.first, values(40, 0.6));
  interpreter.set_variable(model.second, values(24, 0.6));
  for (int step = 0; step < kSteps; ++step) interpreter.run();
  return {{"first", interpreter.variable(model.first)},
          {"second", interpreter.variable(model.second)},
          {"total", interpreter.variable(model.total)}};
}

Results results_of(const Layout& layout) {
  Results results;
  comm::run_as_threads(layout.mesh.size(), [&](comm::World& world) {
    Model model(layout);
    Storage storage(model.step.table, layout.mesh, world.rank());
    const compile::Program program = compile::compile(model.step.graph, layout.mesh, world.rank());
    storage.extend();
    write_whole(storage, model.first, values(40, 0.6));
    write_whole(storage, model.second, values(24, 0.6));
    Arena arena;
    Executor executor(program, storage, arena, world, kernels::CpuDevice{1});
    std::vector<Buffer> parts;
    std::vector<const void*> inputs;
    for (std::size_t i = 0; i < program.inputs.size(); ++i) {
      const graph::LocalTensor& local =
          program.tensors[static_cast<std::size_t>(program.inputs[i])].local;
      parts.emplace_back(local.dtype, local.box.elements());
      parts.back().set(testing::cut(input_named(program.input_names[i]), local.global, local.box));
    }
    for (const Buffer& part : parts) inputs.push_back(part.data());
    for (int step = 0; step < kSteps; ++step) {
      executor.run(inputs, {static_cast<std::uint64_t>(step)});
    }
    const Results mine{{"first", read_whole(storage, model.first, world)},
                       {"second", read_whole(storage, model.second, world)},
                       {"total", read_whole(storage, model.total, world)}};
    if (world.rank() == 0) results = mine;
  });
  return results;
}

TEST_CASE("three steps of Adam give on every mesh what one rank gives, and twice the same bits") {
  const Results expected = expected_results();
  setenv("TESSERA_CHECK", "1", 1);
  for (const Layout& layout : layouts_to_try()) {
    INFO(layout.name);
    const Results results = results_of(layout);
    for (const auto& [name, wanted] : expected) {
      INFO(name);
      REQUIRE(results.at(name).size() == wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        CHECK(results.at(name)[i] == Approx(wanted[i]).epsilon(1e-4).margin(1e-5));
      }
    }
    CHECK(results_of(layout) == results);
  }
  unsetenv("TESSERA_CHECK");
}

}  // namespace
}  // namespace tessera::exec
