// Where values lie: arenas, views, results in place, new values of variables.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <random>
#include <string>

#include "base/error.h"
#include "runtime/compile/arena.h"
#include "runtime/compile/compile.h"
#include "runtime/compile/intervals.h"
#include "runtime/compile/local_ops.h"
#include "runtime/compile/verify.h"
#include "tests/support/interpreter.h"
#include "tests/support/simulator.h"
#include "tests/unit/compile_models.h"

namespace tessera::testing {
namespace {

using compile::Block;
using compile::Instruction;
using compile::Program;
using compile::ProgramTensor;
using graph::Phase;
using layouts::Mesh;
using Space = ProgramTensor::Space;

const Mesh kAlone({1}, {"batch"});
const Mesh kTwo({2}, {"batch"});

std::vector<const Instruction*> named(const Program& program, std::string_view name) {
  std::vector<const Instruction*> found;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.op && instruction.op->name() == name) found.push_back(&instruction);
  }
  return found;
}

const ProgramTensor& tensor(const Program& program, compile::TensorId id) {
  return program.tensors[static_cast<std::size_t>(id)];
}

TEST_CASE("blocks that live together never overlap, and dead memory is used again") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<Block> blocks;
    for (int i = 0; i < 60; ++i) {
      const auto first = static_cast<std::int32_t>(random() % 50);
      blocks.push_back({static_cast<std::int64_t>(random() % 1000), first,
                        first + static_cast<std::int32_t>(random() % 10), 0});
    }
    const std::int64_t total = compile::place_blocks(blocks);
    std::int64_t most = 0;
    for (std::int32_t event = 0; event < 60; ++event) {
      std::int64_t live = 0;
      for (const Block& block : blocks) {
        if (block.first <= event && event <= block.last) live += block.bytes;
      }
      most = std::max(most, live);
    }
    CHECK(total >= most);
    CHECK(total <= 2 * most + 64 * 60);
    for (const Block& a : blocks) {
      if (a.bytes == 0) continue;
      CHECK(a.offset % compile::kArenaAlignment == 0);
      CHECK(a.offset + a.bytes <= total);
      for (const Block& b : blocks) {
        if (&a == &b || b.bytes == 0 || a.last < b.first || b.last < a.first) continue;
        CHECK((a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset));
      }
    }
  }
  std::vector<Block> chain{{64, 0, 1, 0}, {64, 2, 3, 0}, {64, 4, 5, 0}};
  CHECK(compile::place_blocks(chain) == 64);
  std::vector<Block> none;
  CHECK(compile::place_blocks(none) == 0);
}

TEST_CASE("intervals find the pieces that a range meets") {
  using Bytes = compile::Range<int>;
  compile::Intervals<int, int> pieces;
  std::vector<Bytes> known;
  const auto meeting = [&](const Bytes& range) {
    std::vector<int> found;
    const auto [first, last] = pieces.meeting(range);
    for (auto piece = first; piece != last; ++piece) found.push_back(piece->second.content);
    std::sort(found.begin(), found.end());
    return found;
  };
  std::mt19937_64 random(11);
  for (int round = 0; round < 2000; ++round) {
    const int buffer = static_cast<int>(random() % 3) - 1;
    const auto begin = static_cast<std::int64_t>(random() % 40);
    const Bytes range{buffer, begin, begin + static_cast<std::int64_t>(random() % 6)};
    std::vector<int> expected;
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (known[i].meets(range)) expected.push_back(static_cast<int>(i));
    }
    REQUIRE(meeting(range) == expected);
    if (expected.empty() && !range.empty()) {
      pieces.add(range, static_cast<int>(known.size()));
      known.push_back(range);
    } else if (random() % 2 == 0) {
      const auto [first, last] = pieces.meeting(range);
      pieces.erase(first, last);
      for (const int piece : expected) known[static_cast<std::size_t>(piece)] = {};
    }
  }
}

TEST_CASE("the time to compile grows with the number of layers, not with its square") {
  const Placement whole = cuts({{}, {}});
  const auto seconds = [&](int layers) {
    Step step;
    SymbolicTensor x = step.input("x", {4, 4}, cuts({{0}, {}}));
    std::vector<VariableId> weights;
    for (int i = 0; i < layers; ++i) {
      weights.push_back(step.declare("w" + std::to_string(i), {4, 4}, whole));
      x = ops::tanh(ops::matmul(x, step.read(weights.back())));
    }
    const std::vector<SymbolicTensor> gradients = step.differentiate(ops::mean(x), weights);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      step.adapt(weights[i], gradients[i], 0.1, whole);
    }
    const auto begin = std::chrono::steady_clock::now();
    compile::compile(step.graph, kTwo, 0);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const double few = seconds(100);
  const double many = seconds(1600);  // a square would take 256 times as long
  INFO(few << " s, " << many << " s");
  CHECK(many < 64 * few + 0.5);
}

TEST_CASE("an update writes straight into its variables") {
  Step step;
  const Placement whole = cuts({{}, {}});
  const SymbolicTensor x = step.input("x", {16, 8}, cuts({{}, {}}));
  const VariableId w = step.declare("w", {8, 4}, whole);
  const SymbolicTensor loss = ops::mean(ops::square(ops::matmul(x, step.read(w))));
  step.adapt(w, step.differentiate(loss, {w})[0], 0.1, whole);
  const Program program = compile::compile(step.graph, kAlone, 0);
  CHECK(named(program, "copy").empty());
  const std::vector<const Instruction*> updates = named(program, "map");
  REQUIRE(!updates.empty());
  const Instruction& update = *updates.back();
  CHECK(update.outputs.size() == 3);
  for (const compile::TensorId output : update.outputs) {
    CHECK(tensor(program, output).space == Space::variable);
  }
  CHECK(program.assigned.size() == 3);
}

TEST_CASE("old values that are still needed are kept") {
  Step step;
  const VariableId a = step.declare("a", {4}, cuts({{}}));
  const VariableId b = step.declare("b", {4}, cuts({{}}));
  const VariableId c = step.declare("c", {4}, cuts({{}}));
  SECTION("two variables change places, and the old values are outputs") {
    step.builder.assign(a, step.read(b));
    step.builder.assign(b, step.read(a));
    step.builder.output("old a", step.read(a));
  }
  SECTION("one value for two variables") {
    const SymbolicTensor sum = step.read(a) + step.read(b);
    step.builder.assign(a, sum);
    step.builder.assign(c, sum);
  }
  SECTION("a new value is made before the last reader of the old one") {
    const SymbolicTensor doubled = step.read(a) * 2.0;
    step.builder.assign(a, doubled);
    step.builder.output("late", ops::concat({doubled, step.read(b), step.read(a)}, 0));
  }
  SECTION("a view of another variable") {
    step.builder.assign(a, ops::reshape(ops::reshape(step.read(b), {2, 2}), {4}));
    step.builder.assign(b, step.read(b) + 1.0);
    step.builder.assign(c, step.read(c));
  }
  Interpreter whole(step.graph);
  Simulator parts(step.graph, kTwo);
  const std::vector<VariableId> all{a, b, c};
  for (const VariableId id : all) {
    const double base = 10.0 * id;
    whole.set_variable(id, {base, base + 1, base + 2, base + 3});
    parts.set_variable(id, {base, base + 1, base + 2, base + 3});
  }
  for (int run = 0; run < 2; ++run) {
    whole.run();
    parts.run();
    for (const graph::Assignment& assignment : step.graph.assignments) {
      if (step.graph.type(assignment.value).shape.empty()) continue;
      const graph::Value& value = step.graph.value(assignment.value);
      if (value.variable == assignment.variable) continue;  // keeps its value: nothing to run
      CHECK(parts.variable(assignment.variable) == whole.variable(assignment.variable));
    }
    for (const graph::Output& output : step.graph.outputs) {
      CHECK(parts.output(output.name) == whole.output(output.name));
    }
  }
}

TEST_CASE("reshapes share memory and never run") {
  Step step;
  const SymbolicTensor x = step.input("x", {4, 6}, cuts({{0}, {}}));
  const SymbolicTensor y = ops::reshape(ops::exp(x), {4, 2, 3});
  step.builder.output("y", ops::sum(ops::reshape(y, {24}) * 2.0));
  const Program program = compile::compile(step.graph, kTwo, 1);
  CHECK(named(program, "reshape").empty());
  const auto view = std::find_if(program.tensors.begin(), program.tensors.end(),
                                 [](const ProgramTensor& t) { return t.content_of >= 0; });
  REQUIRE(view != program.tensors.end());
  CHECK(view->offset == tensor(program, view->content_of).offset);
}

TEST_CASE("element-wise chains without fusion run in one buffer") {
  Step step;
  const SymbolicTensor x = step.input("x", {64, 64}, cuts({{}, {}}));
  SymbolicTensor y = ops::exp(x);
  for (int i = 0; i < 5; ++i) y = ops::tanh(y);
  step.builder.output("y", y);
  compile::Options options;
  options.fuse = false;
  const Program program = compile::compile(step.graph, kAlone, 0, options);
  CHECK(program.instructions.size() == 6);
  CHECK(program.arena_bytes == 64 * 64 * 4);
  CHECK(compile::compile(step.graph, kAlone, 0).instructions.size() == 1);
}

TEST_CASE("memory reports add up") {
  Step step;
  const Placement whole = cuts({{}, {}});
  const SymbolicTensor x = step.input("x", {32, 16}, cuts({{0}, {}}));
  const VariableId w = step.declare("w", {16, 8}, whole);
  const SymbolicTensor loss = ops::mean(ops::square(ops::matmul(x, step.read(w))));
  step.builder.output("loss", loss);
  step.adapt(w, step.differentiate(loss, {w})[0], 0.1, whole);
  const Program program = compile::compile(step.graph, kTwo, 0);
  const compile::MemoryReport& memory = program.memory;
  CHECK(memory.parameters == 16 * 8 * 4);
  CHECK(memory.optimizer == 2 * 16 * 8 * 4);
  CHECK(memory.gradients == 16 * 8 * 4);
  CHECK(memory.activations >= 16 * 8 * 4);
  CHECK(memory.gradients + memory.activations + memory.workspace >= program.arena_bytes);
  CHECK(memory.peak == program.arena_bytes + memory.parameters + memory.optimizer + 16 * 16 * 4);
  CHECK(program.flops_forward > 2.0 * 16 * 16 * 8);
}

TEST_CASE("the verifier finds broken programs") {
  Step step;
  const SymbolicTensor x = step.input("x", {16, 8}, cuts({{0}, {}}));
  const VariableId w = step.declare("w", {8, 4}, cuts({{}, {}}));
  const SymbolicTensor y = ops::softmax(ops::matmul(x, step.read(w)));
  const SymbolicTensor loss = ops::mean(ops::square(y));
  step.builder.output("y", y);
  step.descend(w, step.differentiate(loss, {w})[0], 0.1);
  const Program good = compile::compile(step.graph, kTwo, 0);
  REQUIRE_NOTHROW(compile::verify(good));
  const auto refused = [&good](const auto& damage) {
    Program bad = good;
    damage(bad);
    CHECK_THROWS_AS(compile::verify(bad), Error);
  };
  refused([](Program& bad) { bad.instructions.erase(bad.instructions.begin()); });
  refused([](Program& bad) { bad.arena_bytes = 0; });
  refused([](Program& bad) {
    std::erase_if(bad.instructions,
                  [](const Instruction& i) { return i.kind == Instruction::Kind::wait; });
  });
  refused([](Program& bad) {
    std::erase_if(bad.instructions,
                  [](const Instruction& i) { return i.kind == Instruction::Kind::start; });
  });
  refused([](Program& bad) {
    const auto wait =
        std::find_if(bad.instructions.begin(), bad.instructions.end(),
                     [](const Instruction& i) { return i.kind == Instruction::Kind::wait; });
    std::rotate(wait, wait + 1, bad.instructions.end());  // the update no longer waits
  });
  refused([](Program& bad) {  // everything in one place
    for (ProgramTensor& each : bad.tensors) {
      if (each.space == Space::arena) each.offset = 0;
    }
  });
  refused([](Program& bad) { std::swap(bad.instructions[0], bad.instructions[1]); });
  CHECK(good.hash == compile::compile(step.graph, kTwo, 1).hash);
}

TEST_CASE("hashes differ where programs do") {
  const auto hash = [](Shape shape, const Placement& placement, const Mesh& mesh) {
    Step step;
    const SymbolicTensor x = step.input("x", shape, placement);
    step.builder.output("y", ops::exp(x));
    return compile::compile(step.graph, mesh, 0).hash;
  };
  const std::uint64_t base = hash({4, 6}, cuts({{0}, {}}), kTwo);
  CHECK(base == hash({4, 6}, cuts({{0}, {}}), kTwo));
  CHECK(base != hash({4, 8}, cuts({{0}, {}}), kTwo));
  CHECK(base != hash({4, 6}, cuts({{}, {0}}), kTwo));
  CHECK(base != hash({4, 6}, cuts({{0}, {}}), Mesh({4}, {"batch"})));
  CHECK(base != hash({4, 6}, cuts({{0}, {}}), Mesh({2}, {"model"})));
}

TEST_CASE("box copies move what they name") {
  const Box source{{2, 1}, {3, 4}};
  const Box target{{0, 0}, {8, 6}};
  const Box part = compile::intersection(source, {{3, 0}, {4, 3}});
  CHECK(part == Box{{3, 1}, {2, 2}});
  CHECK(compile::intersection(source, {{9, 9}, {1, 1}}).elements() == 0);
  const auto op = compile::make_move("slice", {compile::copy_between(source, target, part)});
  const graph::LocalCall call{{{{8, 6}, source, DType::int32}}, {{{8, 6}, target, DType::int32}}};
  std::vector<std::int32_t> in(12);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::int32_t>(i);
  std::vector<std::int32_t> out(48, -1);
  const void* inputs[] = {in.data()};
  void* outputs[] = {out.data()};
  op->prepare(call, kernels::CpuDevice{1})(inputs, outputs, nullptr, {});
  std::vector<std::int32_t> expected(48, -1);
  expected[3 * 6 + 1] = 4;
  expected[3 * 6 + 2] = 5;
  expected[4 * 6 + 1] = 8;
  expected[4 * 6 + 2] = 9;
  CHECK(out == expected);
}

}  // namespace
}  // namespace tessera::testing
