// Small programs written by hand: the walk over instructions, collectives in flight, inputs,
// outputs, checks.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "comm/communicator.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/memory.h"

namespace tessera::exec {
namespace {

using compile::Collective;
using compile::CollectiveKind;
using compile::Instruction;
using compile::Program;
using compile::ProgramTensor;
using compile::TensorId;
using layouts::Mesh;
using layouts::Placement;

/// out = sum of the inputs + constant + step; inputs and output are float32 of one size.
class SumOp final : public graph::Op {
 public:
  explicit SumOp(float constant, std::int64_t workspace = 0)
      : constant_(constant), workspace_(workspace) {}
  std::string_view name() const override { return "test_sum"; }
  std::vector<graph::ValueType> infer(std::span<const graph::ValueType> inputs) const override {
    return {inputs[0]};
  }
  graph::Rule rule(std::span<const graph::ValueType>,
                   std::span<const graph::ValueType>) const override {
    throw Error(Error::Kind::internal, "test_sum: rules are not asked for here");
  }
  std::vector<graph::ValueId> gradient(const graph::GradientCall& call) const override {
    return std::vector<graph::ValueId>(call.inputs.size(), graph::kNoValue);
  }
  std::int64_t workspace_bytes(const graph::LocalCall&) const override { return workspace_; }
  graph::Kernel prepare(const graph::LocalCall& call, const kernels::Device&) const override {
    const std::size_t inputs = call.inputs.size();
    const std::int64_t count = call.outputs[0].box.elements();
    const float constant = constant_;
    const std::int64_t workspace = workspace_;
    return
        [=](const void* const* from, void* const* to, void* scratch, const graph::StepState& step) {
          if (workspace > 0) std::memset(scratch, 1, static_cast<std::size_t>(workspace));
          auto* out = static_cast<float*>(to[0]);
          for (std::int64_t i = 0; i < count; ++i) {
            float sum = constant + static_cast<float>(step.step);
            for (std::size_t input = 0; input < inputs; ++input) {
              sum += static_cast<const float*>(from[input])[i];
            }
            out[i] = sum;
          }
        };
  }

 private:
  float constant_;
  std::int64_t workspace_;
};

/// Writes programs line by line. All tensors are float32 vectors.
struct Writer {
  Program program;

  explicit Writer(const comm::World& world) {
    program.mesh = Mesh({world.size()}, {"batch"});
    program.rank = world.rank();
  }

  TensorId tensor(ProgramTensor::Space space, std::int64_t elements) {
    ProgramTensor made;
    made.space = space;
    made.local = {Shape{elements}, {Shape{0}, Shape{elements}}, DType::float32};
    program.tensors.push_back(made);
    return static_cast<TensorId>(program.tensors.size()) - 1;
  }
  TensorId arena(std::int64_t elements) {
    const TensorId id = tensor(ProgramTensor::Space::arena, elements);
    program.tensors.back().offset = program.arena_bytes;
    program.arena_bytes += (program.tensors.back().bytes() + 63) / 64 * 64;
    return id;
  }
  TensorId input(std::int64_t elements) {
    const TensorId id = tensor(ProgramTensor::Space::input, elements);
    program.tensors.back().input = static_cast<int>(program.inputs.size());
    program.inputs.push_back(id);
    return id;
  }
  TensorId variable(graph::VariableId variable, std::int64_t elements) {
    const TensorId id = tensor(ProgramTensor::Space::variable, elements);
    program.tensors.back().variable = variable;
    return id;
  }
  void sum(std::vector<TensorId> inputs, TensorId output, float constant = 0.0F,
           std::int64_t workspace = 0) {
    Instruction made;
    made.op = std::make_shared<SumOp>(constant, workspace);
    made.inputs = std::move(inputs);
    made.outputs = {output};
    made.workspace_offset = program.arena_bytes;
    made.workspace_bytes = workspace;
    program.arena_bytes += workspace;
    program.instructions.push_back(std::move(made));
  }
  int collective(CollectiveKind kind, TensorId send, TensorId receive, std::int64_t elements) {
    Collective made;
    made.kind = kind;
    made.ranks.resize(static_cast<std::size_t>(program.mesh.size()));
    std::iota(made.ranks.begin(), made.ranks.end(), 0);
    made.elements = elements;
    made.bytes = elements * 4;
    made.send = send;
    made.receive = receive;
    made.for_paths = {"dense/kernel", "dense/bias"};
    made.label = "collective of dense/kernel";
    program.collectives.push_back(std::move(made));
    return static_cast<int>(program.collectives.size()) - 1;
  }
  void start(int collective) { event(Instruction::Kind::start, collective); }
  void wait(int collective) { event(Instruction::Kind::wait, collective); }
  void output(std::string name, TensorId id) { program.outputs.push_back({std::move(name), id}); }

 private:
  void event(Instruction::Kind kind, int collective) {
    Instruction made;
    made.kind = kind;
    made.collective = collective;
    program.instructions.push_back(std::move(made));
  }
};

graph::Variable vector_variable(std::string path, std::int64_t elements) {
  graph::Variable variable;
  variable.path = std::move(path);
  variable.shape = Shape{elements};
  variable.storage = Placement::replicated(1);
  return variable;
}

const float* floats(const void* data) { return static_cast<const float*>(data); }

/// Sets TESSERA_CHECK while it lives.
struct CheckMode {
  explicit CheckMode(const char* value) { setenv("TESSERA_CHECK", value, 1); }
  ~CheckMode() { unsetenv("TESSERA_CHECK"); }
};

/// y = x + w (in the arena), s = all_reduce(y) while other work goes on, w = w + s in place.
void run_training_step(comm::World& world) {
  graph::VariableTable table;
  const graph::VariableId w = table.declare(vector_variable("w", 3000));
  Writer writer(world);
  Storage storage(table, writer.program.mesh, world.rank());
  const TensorId x = writer.input(3000);
  const TensorId weights = writer.variable(w, 3000);
  const TensorId y = writer.arena(3000);
  const TensorId other = writer.arena(3000);
  writer.sum({x, weights}, y);
  const int reduce = writer.collective(CollectiveKind::all_reduce, y, y, 3000);
  writer.start(reduce);
  writer.sum({x, x}, other, 0.5F, 128);
  writer.wait(reduce);
  writer.sum({weights, y}, weights);
  writer.output("sum", y);
  writer.output("other", other);
  writer.output("x", x);
  Arena arena;
  Executor executor(writer.program, storage, arena, world, kernels::CpuDevice{1});
  check(arena.bytes() == writer.program.arena_bytes, "the arena is as large as the program says");
  const std::vector<float> data(3000, static_cast<float>(world.rank() + 1));
  const void* inputs[1] = {data.data()};
  const auto ranks = static_cast<float>(world.size());
  const float sum_of_data = ranks * (ranks + 1.0F) / 2.0F;
  executor.run(inputs, {0});
  check(floats(executor.output("sum"))[2999] == sum_of_data, "sum of the first step");
  check(floats(executor.output("other"))[0] == 2.0F * data[0] + 0.5F, "work meanwhile");
  check(executor.output("x") == data.data(), "an input as output");
  check(floats(storage.data(w))[17] == sum_of_data, "variable after the first step");
  // Other inputs at another address, a larger arena at another place: addresses follow.
  const std::vector<float> more(3000, 10.0F);
  inputs[0] = more.data();
  arena.reserve(64 << 20);
  executor.run(inputs, {0});
  const float second = ranks * (10.0F + sum_of_data);
  check(floats(executor.output("sum"))[1] == second, "sum of the second step");
  check(floats(storage.data(w))[0] == sum_of_data + second, "variable after the second step");
}

TEST_CASE("a program with a collective in flight gives the same on 1, 2, 3 and 5 ranks") {
  for (const int ranks : {1, 2, 3, 5}) {
    INFO("ranks: " << ranks);
    REQUIRE_NOTHROW(comm::run_as_threads(ranks, run_training_step));
  }
  const CheckMode on("1");
  REQUIRE_NOTHROW(comm::run_as_threads(2, run_training_step));
}

TEST_CASE("kernels get the step") {
  comm::run_as_threads(1, [](comm::World& world) {
    graph::VariableTable table;
    Writer writer(world);
    Storage storage(table, writer.program.mesh, 0);
    const TensorId y = writer.arena(2);
    writer.sum({}, y);
    writer.output("y", y);
    Arena arena;
    Executor executor(writer.program, storage, arena, world, kernels::CpuDevice{1});
    CHECK_THROWS_WITH(executor.output("y"), Catch::Contains("has not run"));
    executor.run({}, {7});
    CHECK(floats(executor.output("y"))[1] == 7.0F);
    CHECK(&executor.program() == &writer.program);
    CHECK_THROWS_WITH(executor.output("z"), Catch::Contains("no output \"z\""));
    const void* one_too_many[1] = {nullptr};
    CHECK_THROWS_AS(executor.run(one_too_many, {0}), Error);
  });
}

TEST_CASE("every kind of collective reaches the communicator with its counts") {
  comm::run_as_threads(3, [](comm::World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    graph::VariableTable table;
    Writer writer(world);
    Storage storage(table, writer.program.mesh, world.rank());
    const std::vector<std::int64_t> uneven{2, 0, 3};
    const TensorId mine = writer.input(uneven[rank]);
    const TensorId all = writer.arena(5);
    const TensorId scattered = writer.arena(uneven[rank]);
    const TensorId sent = writer.input(3);
    const TensorId exchanged = writer.arena(3);
    const TensorId value = writer.arena(4);
    const int gather = writer.collective(CollectiveKind::all_gather, mine, all, 5);
    writer.program.collectives.back().receive_counts = uneven;
    const int scatter = writer.collective(CollectiveKind::reduce_scatter, all, scattered, 5);
    writer.program.collectives.back().receive_counts = uneven;
    const int exchange = writer.collective(CollectiveKind::all_to_all, sent, exchanged, 9);
    writer.program.collectives.back().send_counts = {1, 1, 1};
    writer.program.collectives.back().receive_counts = {1, 1, 1};
    const int broadcast = writer.collective(CollectiveKind::broadcast, value, value, 4);
    writer.start(gather);
    writer.wait(gather);
    writer.start(scatter);
    writer.start(exchange);
    writer.sum({}, value, static_cast<float>(world.rank()) + 5.0F);
    writer.start(broadcast);
    writer.wait(broadcast);
    writer.wait(exchange);
    writer.wait(scatter);
    for (const auto& [name, id] : {std::pair("all", all), std::pair("scattered", scattered),
                                   std::pair("exchanged", exchanged), std::pair("value", value)}) {
      writer.output(name, id);
    }
    Arena arena;
    Executor executor(writer.program, storage, arena, world, kernels::CpuDevice{1});
    const std::vector<float> part(3, static_cast<float>(world.rank()));
    const std::vector<float> parts{static_cast<float>(10 * world.rank()),
                                   static_cast<float>(10 * world.rank() + 1),
                                   static_cast<float>(10 * world.rank() + 2)};
    const void* inputs[2] = {part.data(), parts.data()};
    executor.run(inputs, {0});
    const float* gathered = floats(executor.output("all"));
    check(std::vector<float>(gathered, gathered + 5) == std::vector<float>{0, 0, 2, 2, 2},
          "gather");
    const float* scattered_to = floats(executor.output("scattered"));
    for (std::int64_t i = 0; i < uneven[rank]; ++i) {
      check(scattered_to[i] == (world.rank() == 0 ? 0.0F : 6.0F), "reduce-scatter");
    }
    const float* from = floats(executor.output("exchanged"));
    for (int i = 0; i < 3; ++i) {
      check(from[i] == static_cast<float>(10 * i + world.rank()), "all-to-all");
    }
    check(floats(executor.output("value"))[3] == 5.0F, "broadcast from the first member");
  });
}

std::string failure_of(const std::function<void(comm::World&)>& body, int ranks, Error::Kind kind) {
  try {
    comm::run_as_threads(ranks, body);
  } catch (const Error& error) {
    CHECK(error.kind == kind);
    return error.what();
  }
  return "no error";
}

TEST_CASE("ranks with different plans refuse to start and are named") {
  const std::string message = failure_of(
      [](comm::World& world) {
        graph::VariableTable table;
        Writer writer(world);
        Storage storage(table, writer.program.mesh, world.rank());
        const TensorId y = writer.arena(2);
        const int reduce = writer.collective(CollectiveKind::all_reduce, y, y, 2);
        writer.start(reduce);
        writer.wait(reduce);
        writer.program.hash = world.rank() == 2 ? 0xABCDU : 0xFFFFFFFFFFFFFFF1U;
        Arena arena;
        const Executor executor(writer.program, storage, arena, world, kernels::CpuDevice{1});
      },
      4, Error::Kind::rank_lost);
  CHECK_THAT(message, Catch::Contains("rank(s) 2 differ"));
}

/// A program of one rank that is damaged by `damage` before it is prepared and run.
std::string failure_of_damaged(const std::function<void(Writer&, Storage&)>& damage) {
  return failure_of(
      [&](comm::World& world) {
        graph::VariableTable table;
        table.declare(vector_variable("w", 4));
        Writer writer(world);
        Storage storage(table, writer.program.mesh, 0);
        const TensorId x = writer.input(4);
        const TensorId y = writer.arena(4);
        writer.sum({x, writer.variable(0, 4)}, y, 0.0F, 64);
        const int reduce = writer.collective(CollectiveKind::all_reduce, y, y, 4);
        writer.start(reduce);
        writer.wait(reduce);
        damage(writer, storage);
        Arena arena;
        Executor executor(writer.program, storage, arena, world, kernels::CpuDevice{1});
        const std::vector<float> data(4);
        const void* inputs[1] = {data.data()};
        executor.run(inputs, {0});
      },
      1, Error::Kind::internal);
}

TEST_CASE("damaged programs are refused") {
  CHECK(failure_of_damaged([](Writer&, Storage&) {}) == "no error");
  CHECK_THAT(failure_of_damaged([](Writer& w, Storage&) { w.program.tensors[1].offset = 1 << 20; }),
             Catch::Contains("beyond the arena"));
  CHECK_THAT(failure_of_damaged(
                 [](Writer& w, Storage&) { w.program.tensors[2].local.box.size = Shape{3}; }),
             Catch::Contains("variable w: the program expects [3], memory holds [4]"));
  CHECK_THAT(
      failure_of_damaged([](Writer& w, Storage&) { w.program.instructions[0].outputs = {0}; }),
      Catch::Contains("writes to an input"));
  CHECK_THAT(
      failure_of_damaged([](Writer& w, Storage&) { w.program.instructions[0].outputs = {77}; }),
      Catch::Contains("no such tensor"));
  CHECK_THAT(failure_of_damaged([](Writer& w, Storage&) { w.program.collectives[0].bytes = 15; }),
             Catch::Contains("collective of dense/kernel: bytes are not elements times size"));
  CHECK_THAT(failure_of_damaged([](Writer& w, Storage&) { w.program.collectives[0].send = 0; }),
             Catch::Contains("two buffers"));
  CHECK_THAT(failure_of_damaged([](Writer& w, Storage&) {
               w.program.collectives[0].kind = CollectiveKind::all_gather;
               w.program.collectives[0].receive_counts = {3};
             }),
             Catch::Contains("counts do not add up"));
  CHECK_THAT(failure_of_damaged(
                 [](Writer& w, Storage&) { w.program.instructions[0].workspace_bytes = 32; }),
             Catch::Contains("less workspace"));
  CHECK_THAT(failure_of_damaged([](Writer& w, Storage&) { w.program.rank = 1; }),
             Catch::Contains("another rank"));
}

TEST_CASE(
    "check mode sees a plan that is not what runs, and memory that is read before it is written") {
  const CheckMode on("1");
  const auto swap_starts = [](Writer& writer, Storage&) {
    const int second = writer.collective(CollectiveKind::all_reduce, 1, 1, 4);
    writer.start(second);
    writer.wait(second);
    std::swap(writer.program.instructions[1], writer.program.instructions[3]);
    std::swap(writer.program.instructions[2], writer.program.instructions[4]);
  };
  CHECK_THAT(failure_of_damaged(swap_starts), Catch::Contains("starts collective 1"));
  const auto leave_out = [](Writer& writer, Storage&) { writer.program.instructions.resize(1); };
  CHECK_THAT(failure_of_damaged(leave_out), Catch::Contains("did not run"));

  comm::run_as_threads(1, [](comm::World& world) {
    graph::VariableTable table;
    Writer writer(world);
    Storage storage(table, writer.program.mesh, 0);
    const TensorId never_written = writer.arena(1);
    const TensorId y = writer.arena(1);
    writer.sum({never_written}, y);
    writer.output("y", y);
    Arena arena;
    Executor executor(writer.program, storage, arena, world, kernels::CpuDevice{1});
    executor.run({}, {0});
    CHECK(std::isnan(floats(executor.output("y"))[0]));
  });
}

TEST_CASE("large memory is zero, aligned, and refused with its size when there is not enough") {
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{100}, std::int64_t{9} << 20U}) {
    std::byte* memory = allocate_zeroed(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(memory) % 64 == 0);
    CHECK((memory[0] == std::byte{0} && memory[bytes - 1] == std::byte{0}));
    memory[bytes - 1] = std::byte{1};
    release(memory, bytes);
  }
  CHECK(allocate_zeroed(0) == nullptr);
  CHECK_THROWS_WITH(allocate_zeroed(std::int64_t{1} << 60U),
                    Catch::Contains("1152921504606846976 bytes"));
}

}  // namespace
}  // namespace tessera::exec
