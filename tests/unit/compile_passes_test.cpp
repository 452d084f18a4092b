// The passes one by one: choices from rules, simplification, fusion, order.
#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/compile/choices.h"
#include "runtime/compile/compile.h"
#include "runtime/compile/fuse.h"
#include "runtime/compile/propagate.h"
#include "runtime/compile/simplify.h"
#include "runtime/ops/map.h"
#include "tests/support/interpreter.h"
#include "tests/support/simulator.h"
#include "tests/unit/compile_models.h"

namespace tessera::testing {
namespace {

using compile::AxisChoice;
using compile::CallRule;
using compile::Choice;
using compile::Instruction;
using compile::Program;
using graph::Phase;
using layouts::Mesh;

const Mesh kMesh({2, 3}, {"a", "b"});
const Mesh kAlone({1}, {"batch"});
const Mesh kFour({4}, {"batch"});

std::vector<std::string> names(const Program& program) {
  std::vector<std::string> result;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.kind == Instruction::Kind::compute) {
      result.emplace_back(instruction.op->name());
    } else {
      result.push_back(
          (instruction.kind == Instruction::Kind::start ? "start " : "wait ") +
          std::string(compile::name_of(
              program.collectives[static_cast<std::size_t>(instruction.collective)].kind)));
    }
  }
  return result;
}

TEST_CASE("placements follow from the rule and the choice") {
  const CallRule matmul{graph::parse_rule("mk,kn->mn", {0b01, 0b10}),
                        {{{6, 12}, DType::float32}, {{12, 4}, DType::float32}},
                        {{{6, 4}, DType::float32}}};
  const Choice choice{{'k', 0}, {'m', 0}};
  CHECK(compile::operand_placement(matmul, choice, {}, 0) == cuts({{1}, {0}}));
  CHECK(compile::operand_placement(matmul, choice, {}, 1) == cuts({{0}, {}}));
  CHECK(compile::result_placement(matmul, choice, {}, 0) == Placement{{{1}, {}}, 1U});
  const Choice passes{{0, 0b01}, {'n', 0}};
  CHECK(compile::operand_placement(matmul, passes, {}, 0) == Placement{{{}, {}}, 1U});
  CHECK(compile::operand_placement(matmul, passes, {}, 1) == cuts({{}, {1}}));
  CHECK(compile::result_placement(matmul, passes, {}, 0) == Placement{{{}, {1}}, 1U});
  const Choice both{{'m', 0}, {'m', 0}};
  CHECK(compile::operand_placement(matmul, both, {}, 0) == cuts({{0, 1}, {}}));
  CHECK(compile::operand_placement(matmul, both, {{'m', {1, 0}}}, 0) == cuts({{1, 0}, {}}));
}

TEST_CASE("a factor of unequal sizes is cut only where all divide evenly") {
  const auto legal = [](std::int64_t a, std::int64_t b, Choice choice) {
    const CallRule call{
        graph::parse_rule("xY->x"), {{{a, b / a}, DType::float32}}, {{{b}, DType::float32}}};
    return compile::is_legal(call, choice, kMesh);
  };
  CHECK(legal(4, 12, {{'x', 0}, {}}));
  CHECK(!legal(3, 12, {{'x', 0}, {}}));
  CHECK(!legal(4, 12, {{'x', 0}, {'x', 0}}));
  CHECK(legal(6, 12, {{'x', 0}, {'x', 0}}));
  CHECK(legal(5, 5, {{'x', 0}, {'x', 0}}));  // equal sizes: any parts
}

TEST_CASE("nodes that nobody needs go, equal ones merge, constants fold") {
  Step step;
  const SymbolicTensor x = step.input("x", {4, 4}, cuts({{}, {}}));
  ops::exp(x);
  SymbolicTensor first, second;
  {
    const graph::Builder::Scope scope(step.builder, "one");
    first = ops::tanh(x);
  }
  {
    const graph::Builder::Scope scope(step.builder, "two");
    second = ops::tanh(x);
  }
  const SymbolicTensor constant =
      ops::broadcast_to(ops::full(step.builder, {}, 3.0) * 2.0 + 1.0, {4, 4});
  step.builder.output("y", first + second * constant);
  const graph::Graph simple = compile::simplify(step.graph);
  std::vector<std::string_view> kinds;
  for (const graph::Node& node : simple.nodes) kinds.push_back(node.op->name());
  std::sort(kinds.begin(), kinds.end());
  CHECK(kinds == std::vector<std::string_view>{"add", "full", "multiply", "tanh"});
  Interpreter machine(simple);
  std::vector<double> values(16, 0.0);
  machine.set_input("x", values);
  machine.run();
  CHECK(machine.output("y") == values);
}

TEST_CASE("values with two names or pins stay apart") {
  Step step;
  const SymbolicTensor x = step.input("x", {4, 4}, cuts({{}, {}}));
  std::vector<SymbolicTensor> made;
  for (const char* path : {"one", "two"}) {
    const graph::Builder::Scope scope(step.builder, path);
    made.push_back(ops::tanh(x));
    step.builder.name(made.back(), std::string(path) + "/output");
  }
  step.builder.pin(made[1], cuts({{0}, {}}));
  step.builder.output("y", ops::concat(made, 0));
  CHECK(compile::simplify(step.graph).nodes.size() == 3);
}

TEST_CASE("element-wise nodes fuse within a phase and a dtype") {
  Step step;
  const SymbolicTensor x = step.input("x", {8, 4}, cuts({{}, {}}));
  const SymbolicTensor b = step.input("b", {4}, cuts({{}}));
  SECTION("a chain with broadcasts and two results is one node") {
    const SymbolicTensor y = ops::tanh(x + b);
    step.builder.output("y", y);
    step.builder.output("z", ops::exp(y) * 2.0 - b);
    CHECK(names(compile::compile(step.graph, kAlone, 0)) == std::vector<std::string>{"map"});
  }
  SECTION("what a reduction needs is made before it, what needs it after") {
    const SymbolicTensor y = ops::exp(x);
    step.builder.output("y", ops::tanh(y / ops::sum(y, {1}, true) + 1.0));
    CHECK(names(compile::compile(step.graph, kAlone, 0)) ==
          std::vector<std::string>{"exp", "sum", "map"});
  }
  SECTION("a cast to integers rounds, so it ends a node") {
    const SymbolicTensor whole = ops::cast(ops::cast(x * 1.5, DType::int32), DType::float32);
    step.builder.output("y", whole + 0.5);
    const Program program = compile::compile(step.graph, kAlone, 0);
    CHECK(program.instructions.size() >= 3);
    Simulator machine(step.graph, kAlone);
    machine.set_input("x", std::vector<double>(32, 1.9));
    machine.set_input("b", std::vector<double>(4, 0.0));
    machine.run();
    CHECK(machine.output("y") == std::vector<double>(32, 2.5));
  }
  SECTION("scalars side by side are one node") {
    const VariableId p = step.declare("p", {}, {});
    const VariableId q = step.declare("q", {}, {});
    const graph::Builder::Scope phase(step.builder, Phase::update);
    step.builder.assign(p, step.read(p) * 0.9);
    step.builder.assign(q, step.read(q) + 1.0);
    CHECK(names(compile::compile(step.graph, kAlone, 0)) == std::vector<std::string>{"map"});
  }
  SECTION("without fusion every node stays") {
    step.builder.output("y", ops::tanh(ops::exp(x) + b));
    compile::Options options;
    options.fuse = false;
    CHECK(names(compile::compile(step.graph, kAlone, 0, options)) ==
          std::vector<std::string>{"exp", "add", "tanh"});
  }
}

TEST_CASE("of several assignments to a variable the last one counts") {
  Step step;
  const VariableId a = step.declare("a", {2}, cuts({{}}));
  const VariableId b = step.declare("b", {2}, cuts({{}}));
  step.builder.assign(a, step.read(a) + 1.0);
  step.builder.assign(b, step.read(b) + 1.0);
  step.builder.assign(a, step.read(a) + 2.0);
  graph::Builder(step.graph).assign(b, step.read(b) + 3.0);
  REQUIRE(step.graph.assignments.size() == 2);
  Simulator machine(step.graph, kAlone);
  machine.set_variable(a, {0.0, 0.0});
  machine.set_variable(b, {0.0, 0.0});
  machine.run();
  CHECK(machine.variable(a) == std::vector<double>{2.0, 2.0});
  CHECK(machine.variable(b) == std::vector<double>{3.0, 3.0});
}

TEST_CASE("products take over bias and activation") {
  Step step;
  const SymbolicTensor x = step.input("x", {8, 4}, cuts({{}, {}}));
  const VariableId w = step.declare("w", {4, 6}, cuts({{}, {}}));
  const VariableId b = step.declare("b", {6}, cuts({{}}));
  SECTION("both") {
    step.builder.output("y", ops::relu(ops::matmul(x, step.read(w)) + step.read(b)));
    CHECK(names(compile::compile(step.graph, kAlone, 0)) == std::vector<std::string>{"einsum"});
  }
  SECTION("the bias on the left") {
    step.builder.output("y", step.read(b) + ops::matmul(x, step.read(w)));
    CHECK(names(compile::compile(step.graph, kAlone, 0)) == std::vector<std::string>{"einsum"});
  }
  SECTION("not where the sum is read elsewhere") {
    const SymbolicTensor y = ops::matmul(x, step.read(w)) + step.read(b);
    step.builder.output("y", ops::relu(y));
    step.builder.output("z", y);
    CHECK(names(compile::compile(step.graph, kAlone, 0)) ==
          std::vector<std::string>{"einsum", "relu"});
  }
  SECTION("not of itself") {
    const SymbolicTensor v = step.input("v", {4}, cuts({{}}));
    const SymbolicTensor y = ops::einsum("k,kn->n", v, step.read(w));
    step.builder.output("y", y + y);
    CHECK(names(compile::compile(step.graph, kAlone, 0)) ==
          std::vector<std::string>{"einsum", "add"});
  }
  SECTION("in 16 bits") {
    const DType half = DType::bfloat16;
    const SymbolicTensor y = ops::matmul(ops::cast(x, half), ops::cast(step.read(w), half));
    step.builder.output("y", ops::relu(y + ops::cast(step.read(b), half)));
    const Program program = compile::compile(step.graph, kAlone, 0);
    CHECK(names(program) == std::vector<std::string>{"copy", "copy", "copy", "einsum"});
    CHECK(program.tensors[static_cast<std::size_t>(program.outputs[0].tensor)].local.dtype == half);
  }
  SECTION("not across the reduction of a pending sum") {
    step.table[w].storage = cuts({{0}, {}});
    step.builder.output("y", ops::relu(ops::matmul(x, step.read(w)) + step.read(b)));
    CHECK(names(compile::compile(step.graph, kFour, 0)) ==
          std::vector<std::string>{"slice", "owner", "einsum", "start all_reduce",
                                   "wait all_reduce", "relu"});
  }
}

TEST_CASE("pending sums of 16 bits are kept in 32") {
  const Mesh two({2}, {"batch"});
  const DType half = DType::bfloat16;
  Step step;
  SECTION("of a product") {
    const SymbolicTensor x = step.input("x", {1, 4}, cuts({{}, {0}}), half);
    const SymbolicTensor w = step.input("w", {4, 1}, cuts({{0}, {}}), half);
    step.builder.output("y", ops::cast(ops::matmul(x, w), DType::float32) + 1.0);
  }
  SECTION("of a reduction") {
    const SymbolicTensor x = step.input("x", {1, 4}, cuts({{}, {0}}), half);
    const SymbolicTensor w = step.input("w", {4, 1}, cuts({{0}, {}}), half);
    step.builder.output("y", ops::sum(x * ops::reshape(w, {1, 4})) + 1.0);
  }
  Simulator machine(step.graph, two);
  REQUIRE(machine.program().collectives.size() == 1);
  CHECK(machine.program().collectives[0].dtype == DType::float32);
  // 257 is no number of bfloat16: rounded on its rank, the sum would be 256.
  machine.set_input("x", {256.0, 1.0, 1.0, 0.0});
  machine.set_input("w", {1.0, 1.0, 1.0, 1.0});
  machine.run();
  const std::vector<double> y = machine.output("y");
  CHECK((y[0] == 259.0 || y[0] == 260.0));  // 258 + 1, and that as bfloat16
}

TEST_CASE("gradients of float32 variables are not rounded to 16 bits on their way") {
  const DType half = DType::bfloat16;
  Step step;
  const SymbolicTensor x = step.input("x", {8, 4}, cuts({{0}, {}}));
  const VariableId w = step.declare("w", {4, 6}, cuts({{}, {}}));
  const SymbolicTensor y = ops::matmul(ops::cast(x, half), ops::cast(step.read(w), half));
  const SymbolicTensor loss = ops::sum(ops::cast(ops::square(y), DType::float32));
  step.descend(w, step.differentiate(loss, {w})[0], 0.1);
  const Program program = compile::compile(step.graph, kFour, 0);
  REQUIRE(program.collectives.size() == 1);
  const compile::ProgramTensor& sent =
      program.tensors[static_cast<std::size_t>(program.collectives[0].send)];
  CHECK(sent.local.dtype == DType::float32);
  // Made by the product itself.
  const auto maker = std::find_if(
      program.instructions.begin(), program.instructions.end(), [&](const Instruction& each) {
        return !each.outputs.empty() && each.outputs.front() == program.collectives[0].send;
      });
  REQUIRE(maker != program.instructions.end());
  CHECK(maker->op->name() == "einsum");
}

/// A step on a kernel of 50 rows whose update scales the gradient's rows and columns.
struct WideUpdate {
  Step step;
  VariableId kernel, rows, columns;
  SymbolicTensor gradient;

  WideUpdate(const Placement& x, const Placement& placed) {
    const SymbolicTensor input = step.input("x", {2, 50}, x);
    kernel = step.declare("kernel", {50, 6}, placed);
    rows = step.declare("rows", {50, 1}, cuts({{}, {}}));
    columns = step.declare("columns", {6}, cuts({{}}));
    const SymbolicTensor y = ops::matmul(input, step.read(kernel));
    gradient = step.differentiate(ops::sum(ops::square(y)), {kernel})[0];
    const graph::Builder::Scope phase(step.builder, Phase::update);
    step.builder.assign(
        kernel, step.read(kernel) - gradient * (step.read(rows) + step.read(columns)) * 0.5);
  }

  template <typename Machine>
  std::vector<double> run(Machine& machine) const {
    const auto numbers = [](int count, int period) {
      std::vector<double> values;
      for (int i = 0; i < count; ++i) values.push_back(i % period - period / 2);
      return values;
    };
    machine.set_input("x", numbers(100, 5));
    machine.set_variable(kernel, numbers(300, 7));
    machine.set_variable(rows, numbers(50, 3));
    machine.set_variable(columns, numbers(6, 4));
    machine.run();
    return machine.variable(kernel);
  }
};

TEST_CASE("a large gradient is made in panels where its update reads it") {
  compile::Options options;
  options.panel_bytes = 300;  // 16, 16, 16 and 2 rows of 24 bytes
  const auto joined = [&](const WideUpdate& update, const Mesh& mesh) {
    const std::vector<std::string> order =
        names(compile::compile(update.step.graph, mesh, 0, options));
    return std::count(order.begin(), order.end(), "product_map");
  };
  const Placement whole = cuts({{}, {}});
  for (const auto& [mesh, placed] :
       std::vector<std::pair<Mesh, Placement>>{{kAlone, whole},
                                               {Mesh({2}, {"model"}), cuts({{}, {0}})},
                                               {kFour, cuts({{0}, {}})},
                                               {Mesh({3}, {"model"}), cuts({{0}, {}})}}) {
    options.panel_bytes = 300 / mesh.size();
    const WideUpdate update(whole, placed);
    CHECK(joined(update, mesh) == 1);
    Interpreter expected(update.step.graph);
    Simulator machine(update.step.graph, mesh, options);
    CHECK(update.run(machine) == update.run(expected));
  }
  SECTION("not where ranks add it up") {
    CHECK(joined(WideUpdate(cuts({{0}, {}}), whole), Mesh({2}, {"batch"})) == 0);
  }
  SECTION("not where somebody else reads it too") {
    WideUpdate update(whole, whole);
    update.step.builder.output("norm", ops::sum(ops::square(update.gradient)));
    CHECK(joined(update, kAlone) == 0);
  }
  SECTION("not where it is small") {
    options.panel_bytes = 601;
    CHECK(joined(WideUpdate(whole, whole), kAlone) == 0);
  }
  SECTION("its arithmetic counts as the backward pass's") {
    const WideUpdate update(whole, whole);
    const Program panels = compile::compile(update.step.graph, kAlone, 0, options);
    options.panel_bytes = 1 << 20;
    const Program stored = compile::compile(update.step.graph, kAlone, 0, options);
    CHECK(panels.flops_backward >= stored.flops_backward);
    CHECK(panels.memory.gradients == 0);
    CHECK(stored.memory.gradients == 1200);
  }
}

TEST_CASE("gradients of 16-bit variables are reduced together, in 32 bits") {
  const DType half = DType::bfloat16;
  Step step;
  SymbolicTensor x = step.input("x", {8, 4}, cuts({{0}, {}}), half);
  std::vector<VariableId> kernels;
  for (const char* path : {"first", "second"}) {
    kernels.push_back(step.declare(path, {4, 4}, cuts({{}, {}})));
    step.table[kernels.back()].dtype = half;
    x = ops::tanh(ops::matmul(x, step.read(kernels.back())));
  }
  const SymbolicTensor loss = ops::sum(ops::cast(ops::square(x), DType::float32));
  const std::vector<SymbolicTensor> gradients = step.differentiate(loss, kernels);
  for (std::size_t i = 0; i < kernels.size(); ++i) step.descend(kernels[i], gradients[i], 0.1);
  const Program program = compile::compile(step.graph, kFour, 0);
  REQUIRE(program.collectives.size() == 1);
  CHECK(program.collectives[0].dtype == DType::float32);
  CHECK(program.collectives[0].phase == Phase::backward);
  CHECK(program.collectives[0].for_paths == std::vector<std::string>{"second", "first"});
}

TEST_CASE(
    "gradient buckets start when their last member is ready and are waited for by the update") {
  Step step;
  const SymbolicTensor x = step.input("x", {16, 8}, cuts({{0}, {}}));
  std::vector<VariableId> kernels;
  SymbolicTensor y = x;
  for (const char* path : {"first", "second", "third"}) {
    kernels.push_back(step.declare(path, {8, 8}, cuts({{}, {}})));
    y = ops::tanh(ops::matmul(y, step.read(kernels.back())));
  }
  const std::vector<SymbolicTensor> gradients =
      step.differentiate(ops::mean(ops::square(y)), kernels);
  for (std::size_t i = 0; i < kernels.size(); ++i) step.descend(kernels[i], gradients[i], 0.1);
  compile::Options options;
  options.bucket_bytes = 8 * 8 * 4;
  const Program program = compile::compile(step.graph, kFour, 0, options);
  REQUIRE(program.collectives.size() == 3);
  CHECK(program.collectives[0].for_paths == std::vector<std::string>{"third"});
  CHECK(program.collectives[2].for_paths == std::vector<std::string>{"first"});
  const std::vector<std::string> order = names(program);
  const auto first_start = std::find(order.begin(), order.end(), "start all_reduce");
  const auto first_wait = std::find(order.begin(), order.end(), "wait all_reduce");
  // Products of the lower layers lie between.
  CHECK(std::count(first_start, first_wait, "einsum") >= 3);
}

TEST_CASE("compute moves into the time of a reduction that is waited for at once") {
  Step step;
  const SymbolicTensor x = step.input("x", {8, 8}, cuts({{}, {}}));
  const VariableId w0 = step.declare("w0", {8, 8}, cuts({{}, {}}));
  const VariableId w1 = step.declare("w1", {8, 8}, cuts({{}, {0}}));
  const SymbolicTensor hidden = ops::tanh(ops::matmul(x, step.read(w0)));
  const SymbolicTensor y = ops::matmul(hidden, step.read(w1));
  const std::vector<SymbolicTensor> gradients =
      step.differentiate(ops::sum(ops::square(y)), {w0, w1});
  step.descend(w0, gradients[0], 0.1);
  step.descend(w1, gradients[1], 0.1);
  const std::vector<std::string> order = names(compile::compile(step.graph, kFour, 0));
  const auto start = std::find(order.begin(), order.end(), "start all_reduce");
  const auto wait = std::find(order.begin(), order.end(), "wait all_reduce");
  CHECK(std::count(start, wait, "einsum") == 1);
}

TEST_CASE("metric totals keep the placement of the first program") {
  Step train;
  const SymbolicTensor x = train.input("x", {8, 4}, cuts({{0}, {}}));
  const VariableId total = train.declare_metric("total");
  const VariableId count = train.declare_metric("count");
  train.add_to_metric(total, ops::sum(x));
  train.add_to_metric(count, ops::full(train.builder, {}, 8.0));
  CHECK(compile::compile(train.graph, kFour, 0).collectives.empty());
  CHECK(train.table[total].storage == Placement{{}, 1U});
  CHECK(train.table[count].storage == Placement{{}, 0U});
  // A later program whose value is whole on all ranks adds it once.
  graph::Graph later(train.table);
  graph::Builder builder(later);
  const SymbolicTensor y = builder.input("y", {8}, DType::float32);
  {
    const graph::Builder::Scope phase(builder, Phase::metrics);
    builder.assign(total, builder.variable(total) + ops::sum(y));
  }
  Simulator machine(later, kFour);
  CHECK(machine.program().collectives.empty());
  machine.set_variable(total, {5.0});
  machine.set_input("y", std::vector<double>(8, 2.0));
  machine.run();
  CHECK(machine.variable(total) == std::vector<double>{21.0});
}

TEST_CASE("random draws are the same on every mesh") {
  Step step;
  step.builder.output("u", ops::random_uniform(step.builder, {7, 5}, 11));
  step.builder.output("n", ops::random_normal(step.builder, {7, 5}, 12) * 2.0);
  const SymbolicTensor x = step.input("x", {7, 5}, cuts({{0}, {1}}));
  step.builder.output(
      "dropped", ops::where(ops::less(ops::random_uniform(step.builder, {7, 5}, 13), 0.4), 0.0, x));
  Interpreter whole(step.graph);
  Simulator parts(step.graph, kMesh);
  std::vector<double> values(35, 1.0);
  whole.set_input("x", values);
  parts.set_input("x", values);
  whole.run(3);
  parts.run(3);
  for (const char* name : {"u", "n", "dropped"}) CHECK(parts.output(name) == whole.output(name));
}

TEST_CASE("a variable without placement is named") {
  Step step;
  graph::Variable variable;
  variable.path = "lost/kernel";
  variable.shape = {3};
  const VariableId id = step.table.declare(variable);
  step.builder.output("y", ops::exp(step.read(id)));
  CHECK_THROWS_WITH(compile::compile(step.graph, kFour, 0), Catch::Contains("lost/kernel"));
}

}  // namespace
}  // namespace tessera::testing
