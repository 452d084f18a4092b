// Which collectives the compiler makes for the layouts that people use.
#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/compile/compile.h"
#include "runtime/compile/plan.h"
#include "tests/support/simulator.h"
#include "tests/unit/compile_models.h"

namespace tessera::testing {
namespace {

using compile::Collective;
using compile::CollectiveKind;
using compile::Program;
using graph::Phase;
using layouts::Mesh;

const Mesh kTensorParallel({1, 4}, {"batch", "model"});
const Mesh kBoth({2, 2}, {"batch", "model"});
const Mesh kData({4}, {"batch"});

std::vector<Collective> found(const Program& program, Phase phase, int axis = -1) {
  std::vector<Collective> result;
  for (const Collective& collective : program.collectives) {
    const bool over = axis < 0 || collective.axes == layouts::AxisList{axis};
    if (collective.phase == phase && over) result.push_back(collective);
  }
  return result;
}

std::int64_t count(const Program& program, CollectiveKind kind) {
  return std::count_if(program.collectives.begin(), program.collectives.end(),
                       [kind](const Collective& c) { return c.kind == kind; });
}

/// y = relu(x W1 + b1) W2 + b2, mean squared error, gradient descent, a loss total.
struct Pair {
  Step step;
  VariableId w1, b1, w2, b2, total;

  Pair(Placement on_w1, Placement on_b1, Placement on_w2, Placement on_b2) {
    const SymbolicTensor x = step.input("x", {16, 8}, cuts({{0}, {}}));
    const SymbolicTensor target = step.input("y", {16, 6}, cuts({{0}, {}}));
    w1 = step.declare("up/kernel", {8, 12}, std::move(on_w1));
    b1 = step.declare("up/bias", {12}, std::move(on_b1));
    w2 = step.declare("down/kernel", {12, 6}, std::move(on_w2));
    b2 = step.declare("down/bias", {6}, std::move(on_b2));
    total = step.declare_metric("loss/total");
    const SymbolicTensor hidden = ops::relu(ops::matmul(x, step.read(w1)) + step.read(b1));
    const SymbolicTensor y = ops::matmul(hidden, step.read(w2)) + step.read(b2);
    step.builder.name(y, "down/output");
    const SymbolicTensor loss = ops::mean(ops::square(y - target));
    step.builder.output("loss", loss);
    step.add_to_metric(total, loss);
    const std::vector<VariableId> all{w1, b1, w2, b2};
    const std::vector<SymbolicTensor> gradients = step.differentiate(loss, all);
    for (std::size_t i = 0; i < all.size(); ++i) step.descend(all[i], gradients[i], 0.25);
  }
};

TEST_CASE("column then row costs one forward all-reduce") {
  Pair pair(cuts({{}, {1}}), cuts({{1}}), cuts({{1}, {}}), cuts({{}}));
  const Program program = compile::compile(pair.step.graph, kTensorParallel, 1);
  REQUIRE(program.collectives.size() == 1);
  const Collective& only = program.collectives[0];
  CHECK(only.kind == CollectiveKind::all_reduce);
  CHECK(only.phase == Phase::forward);
  CHECK(only.axes == layouts::AxisList{1});
  CHECK(only.ranks == std::vector<int>{0, 1, 2, 3});
  CHECK(only.elements == 16 * 6);
  CHECK(only.bytes == 16 * 6 * 4);
}

TEST_CASE("column then row with a cut batch adds the gradient reductions only") {
  Pair pair(cuts({{}, {1}}), cuts({{1}}), cuts({{1}, {}}), cuts({{}}));
  const Program program = compile::compile(pair.step.graph, kBoth, 3);
  CHECK(found(program, Phase::forward).size() == 1);
  REQUIRE(found(program, Phase::backward).size() == 1);
  const Collective bucket = found(program, Phase::backward)[0];
  CHECK(bucket.axes == layouts::AxisList{0});
  CHECK(bucket.elements == 8 * 6 + 6 + 6 * 6 + 6);
  CHECK(bucket.for_paths.size() == 4);
  CHECK(found(program, Phase::metrics).empty());
  CHECK(found(program, Phase::update).empty());
}

TEST_CASE("replicated weights cost nothing over the other axis") {
  Pair pair(cuts({{}, {}}), cuts({{}}), cuts({{}, {}}), cuts({{}}));
  const Program program = compile::compile(pair.step.graph, kBoth, 0);
  REQUIRE(program.collectives.size() == 1);
  CHECK(program.collectives[0].phase == Phase::backward);
  CHECK(program.collectives[0].axes == layouts::AxisList{0});
  CHECK(program.collectives[0].elements == 8 * 12 + 12 + 12 * 6 + 6);
  // The total stays a pending sum over the batch axis.
  CHECK(pair.step.table[pair.total].storage->pending == 1U);
}

TEST_CASE("axes of size 1 are free, and one rank communicates nothing") {
  Pair pair(cuts({{}, {1}}), cuts({{1}}), cuts({{1}, {}}), cuts({{}}));
  const Mesh flat({4, 1}, {"batch", "model"});
  const Program program = compile::compile(pair.step.graph, flat, 2);
  CHECK(found(program, Phase::forward).empty());
  CHECK(program.collectives.size() == 1);
  Pair alone(cuts({{}, {1}}), cuts({{1}}), cuts({{1}, {}}), cuts({{}}));
  CHECK(
      compile::compile(alone.step.graph, Mesh({1, 1}, {"batch", "model"}), 0).collectives.empty());
}

TEST_CASE("buckets respect their limit and keep the order of readiness") {
  Pair pair(cuts({{}, {}}), cuts({{}}), cuts({{}, {}}), cuts({{}}));
  compile::Options options;
  options.bucket_bytes = 12 * 6 * 4 + 6 * 4;
  const Program program = compile::compile(pair.step.graph, kData, 0, options);
  const std::vector<Collective> buckets = found(program, Phase::backward);
  REQUIRE(buckets.size() == 3);
  std::vector<std::string> first = buckets[0].for_paths;
  std::sort(first.begin(), first.end());
  CHECK(first == std::vector<std::string>{"down/bias", "down/kernel"});
  CHECK(buckets[0].elements == 12 * 6 + 6);
  options.bucket_bytes = 1;
  CHECK(found(compile::compile(pair.step.graph, kData, 0, options), Phase::backward).size() == 4);
}

TEST_CASE("a kernel cut by rows takes its slice of the input, then one all-reduce") {
  Step step;
  const SymbolicTensor x = step.input("x", {16, 8}, cuts({{0}, {}}));
  const SymbolicTensor target = step.input("y", {16, 6}, cuts({{0}, {}}));
  const VariableId w = step.declare("dense/kernel", {8, 6}, cuts({{1}, {}}));
  const SymbolicTensor loss = ops::mean(ops::square(ops::matmul(x, step.read(w)) - target));
  step.builder.output("loss", loss);
  step.descend(w, step.differentiate(loss, {w})[0], 0.1);
  const Program program = compile::compile(step.graph, kTensorParallel, 0);
  CHECK(found(program, Phase::forward).size() == 1);
  CHECK(count(program, CollectiveKind::all_reduce) == 1);
  CHECK(program.collectives.size() == 1);
}

TEST_CASE("an embedding cut by rows costs one forward all-reduce") {
  Step step;
  const SymbolicTensor ids = step.input("ids", {16, 5}, cuts({{0}, {}}), DType::int32);
  const SymbolicTensor target = step.input("y", {16, 5, 3}, cuts({{0}, {}, {}}));
  const VariableId table = step.declare("embedding/embeddings", {20, 4}, cuts({{1}, {}}));
  const VariableId head = step.declare("head/kernel", {4, 3}, cuts({{}, {}}));
  const SymbolicTensor y = ops::matmul(ops::embedding(ids, step.read(table)), step.read(head));
  const SymbolicTensor loss = ops::mean(ops::square(y - target));
  step.builder.output("loss", loss);
  const std::vector<SymbolicTensor> gradients = step.differentiate(loss, {table, head});
  step.descend(table, gradients[0], 0.1);
  step.descend(head, gradients[1], 0.1);
  const Program program = compile::compile(step.graph, Mesh({1, 2}, {"batch", "model"}), 1);
  CHECK(found(program, Phase::forward).size() == 1);
  CHECK(count(program, CollectiveKind::all_reduce) == 1);
  CHECK(program.collectives.size() == 1);
}

TEST_CASE("a frozen layer has no gradient to reduce") {
  Step step;
  const SymbolicTensor x = step.input("x", {16, 8}, cuts({{0}, {}}));
  const SymbolicTensor target = step.input("y", {16, 4}, cuts({{0}, {}}));
  const VariableId frozen = step.declare("frozen/kernel", {8, 32}, cuts({{}, {}}));
  const VariableId head = step.declare("head/kernel", {32, 4}, cuts({{}, {}}));
  const SymbolicTensor y =
      ops::matmul(ops::relu(ops::matmul(x, step.read(frozen))), step.read(head));
  const SymbolicTensor loss = ops::mean(ops::square(y - target));
  step.builder.output("loss", loss);
  step.descend(head, step.differentiate(loss, {head})[0], 0.1);
  const Program program = compile::compile(step.graph, kData, 0);
  REQUIRE(program.collectives.size() == 1);
  CHECK(program.collectives[0].elements == 128);
  CHECK(program.collectives[0].bytes == 512);
}

/// One dense layer with Adam under a ZeRO stage over axis 0.
Program zero(int stage, Step& step) {
  const Placement whole = cuts({{}, {}});
  const Placement part = cuts({{0}, {}});
  const SymbolicTensor x = step.input("x", {16, 8}, cuts({{0}, {}}));
  const SymbolicTensor target = step.input("y", {16, 8}, cuts({{0}, {}}));
  const VariableId w = step.declare("dense/kernel", {8, 8}, stage == 3 ? part : whole);
  if (stage == 3) step.table[w].compute = whole;
  const SymbolicTensor loss = ops::mean(ops::square(ops::matmul(x, step.read(w)) - target));
  step.builder.output("loss", loss);
  SymbolicTensor gradient = step.differentiate(loss, {w})[0];
  step.builder.pin(gradient, part);
  step.adapt(w, gradient, 0.1, part);
  return compile::compile(step.graph, kData, 1);
}

TEST_CASE("ZeRO 1 and 2 scatter the gradient and gather the parameter after the update") {
  Step step;
  const Program program = zero(2, step);
  REQUIRE(program.collectives.size() == 2);
  CHECK(program.collectives[0].kind == CollectiveKind::reduce_scatter);
  CHECK(program.collectives[0].phase == Phase::backward);
  CHECK(program.collectives[1].kind == CollectiveKind::all_gather);
  CHECK(program.collectives[1].phase == Phase::update);
  CHECK(program.collectives.back().for_paths == std::vector<std::string>{"dense/kernel"});
}

TEST_CASE("ZeRO 3 gathers for the forward pass and scatters the gradient") {
  Step step;
  const Program program = zero(3, step);
  REQUIRE(program.collectives.size() == 2);
  CHECK(program.collectives[0].kind == CollectiveKind::all_gather);
  CHECK(program.collectives[0].phase == Phase::forward);
  CHECK(program.collectives[1].kind == CollectiveKind::reduce_scatter);
  CHECK(program.collectives[1].phase == Phase::backward);
}

TEST_CASE("ZeRO 3 gathers again for the backward pass where the weight is needed there") {
  Step step;
  const Placement whole = cuts({{}, {}});
  const Placement part = cuts({{0}, {}});
  const SymbolicTensor x = step.input("x", {16, 8}, cuts({{0}, {}}));
  std::vector<VariableId> kernels;
  SymbolicTensor y = x;
  for (const char* path : {"first/kernel", "second/kernel"}) {
    kernels.push_back(step.declare(path, {8, 8}, part));
    step.table[kernels.back()].compute = whole;
    y = ops::tanh(ops::matmul(y, step.read(kernels.back())));
  }
  const SymbolicTensor loss = ops::mean(ops::square(y));
  step.builder.output("loss", loss);
  const std::vector<SymbolicTensor> gradients = step.differentiate(loss, kernels);
  for (std::size_t i = 0; i < kernels.size(); ++i) step.descend(kernels[i], gradients[i], 0.1);
  const Program program = compile::compile(step.graph, kData, 2);
  const std::vector<Collective> forward = found(program, Phase::forward);
  REQUIRE(forward.size() == 2);
  CHECK(forward[0].for_paths == std::vector<std::string>{"first/kernel"});
  std::vector<std::string> backward;
  for (const Collective& collective : found(program, Phase::backward)) {
    backward.push_back(std::string(compile::name_of(collective.kind)) + " " +
                       collective.for_paths[0]);
  }
  std::sort(backward.begin(), backward.end());
  CHECK(backward == std::vector<std::string>{"all_gather second/kernel",
                                             "reduce_scatter first/kernel",
                                             "reduce_scatter second/kernel"});
}

TEST_CASE("a pending sum with two readers is reduced once") {
  Step step;
  const SymbolicTensor x = step.input("x", {6, 8}, cuts({{}, {}}));
  const VariableId w = step.declare("w", {8, 6}, cuts({{0}, {}}));
  const SymbolicTensor y = ops::matmul(x, step.read(w));
  step.builder.output("a", ops::relu(y));
  step.builder.output("b", ops::tanh(y) + y);
  const Program program = compile::compile(step.graph, kData, 0);
  CHECK(program.collectives.size() == 1);
}

TEST_CASE("a pending sum passes linear ops and is reduced before it grows or narrows") {
  Step step;
  const SymbolicTensor x = step.input("x", {6, 8}, cuts({{}, {}}));
  const VariableId w = step.declare("w", {8, 6}, cuts({{0}, {}}));
  const VariableId b = step.declare("b", {6}, cuts({{}}));
  SECTION("scale and bias, then a non-linear op: one reduction, at the end") {
    const SymbolicTensor y = ops::matmul(x, step.read(w)) * 2.0 + step.read(b);
    step.builder.output("y", ops::exp(y));
    const Program program = compile::compile(step.graph, kData, 0);
    REQUIRE(program.collectives.size() == 1);
    CHECK(program.collectives[0].elements == 36);
  }
  SECTION("a sum of all of it is smaller") {
    step.builder.output("y", ops::exp(ops::sum(ops::matmul(x, step.read(w)))));
    const Program program = compile::compile(step.graph, kData, 0);
    REQUIRE(program.collectives.size() == 1);
    CHECK(program.collectives[0].elements == 1);
  }
  SECTION("a broadcast is larger") {
    const SymbolicTensor total = ops::sum(ops::matmul(x, step.read(w)), {1}, true);
    step.builder.output("y", ops::exp(x + ops::broadcast_to(total, {6, 8})));
    const Program program = compile::compile(step.graph, kData, 0);
    REQUIRE(program.collectives.size() == 1);
    CHECK(program.collectives[0].elements == 6);
  }
  SECTION("half precision is narrower") {
    const SymbolicTensor y = ops::cast(ops::matmul(x, step.read(w)), DType::bfloat16);
    step.builder.output("y", ops::exp(y));
    const Program program = compile::compile(step.graph, kData, 0);
    REQUIRE(program.collectives.size() == 1);
    CHECK(program.collectives[0].dtype == DType::float32);
  }
}

TEST_CASE("a pinned output is reached by one reduce-scatter, never by reducing and slicing") {
  Step step;
  const SymbolicTensor x = step.input("x", {8, 8}, cuts({{}, {}}));
  const VariableId w = step.declare("w", {8, 6}, cuts({{0}, {}}));
  const SymbolicTensor y = ops::matmul(x, step.read(w));
  step.builder.pin(y, cuts({{0}, {}}));
  step.builder.output("y", ops::relu(y));
  const Program program = compile::compile(step.graph, kData, 0);
  REQUIRE(program.collectives.size() == 1);
  CHECK(program.collectives[0].kind == CollectiveKind::reduce_scatter);
}

TEST_CASE("constants and random draws are made in the placement of their reader") {
  Step step;
  const SymbolicTensor x = step.input("x", {16, 8}, cuts({{0}, {}}));
  const SymbolicTensor keep = ops::less(ops::random_uniform(step.builder, {16, 8}, 7), 0.5);
  step.builder.output(
      "y", ops::where(keep, x, 0.0) + ops::iota(step.builder, {16, 8}, 1, DType::float32));
  const Program program = compile::compile(step.graph, kData, 1);
  CHECK(program.collectives.empty());
  for (const compile::ProgramTensor& tensor : program.tensors) {
    CHECK(tensor.local.box.elements() <= 4 * 8);
  }
}

std::int64_t largest(const Program& program) {
  std::int64_t most = 0;
  for (const compile::ProgramTensor& tensor : program.tensors) {
    if (tensor.space == compile::ProgramTensor::Space::arena) {
      most = std::max(most, tensor.local.box.elements());
    }
  }
  return most;
}

TEST_CASE("what grows to the size of the batch grows to the rank's part only") {
  Step step;
  const SymbolicTensor x = step.input("x", {16, 8}, cuts({{0}, {}}));
  const VariableId w = step.declare("w", {8}, cuts({{}}));
  const SymbolicTensor wide = ops::broadcast_to(step.read(w), {16, 8});
  SECTION("read by an element-wise op") { step.builder.output("y", ops::exp(wide * x)); }
  SECTION("read by an op that cannot broadcast") {
    step.builder.output("y", ops::concat({wide, x}, 1));
  }
  const Program program = compile::compile(step.graph, kData, 1);
  CHECK(program.collectives.empty());
  CHECK(largest(program) <= 4 * 16);
}

TEST_CASE("the gradient of a part is computed in parts where its factors are whole") {
  Step step;
  const SymbolicTensor x = step.input("x", {16, 8}, cuts({{}, {}}));
  const VariableId up = step.declare("up", {8, 12}, cuts({{}, {1}}));
  const VariableId down = step.declare("down", {12, 4}, cuts({{}, {}}));
  const SymbolicTensor hidden = ops::tanh(ops::matmul(x, step.read(up)));
  const SymbolicTensor y = ops::tanh(ops::matmul(hidden, step.read(down)));
  const SymbolicTensor loss = ops::sum(ops::square(y));
  const std::vector<SymbolicTensor> gradients = step.differentiate(loss, {up, down});
  step.descend(up, gradients[0], 0.1);
  step.descend(down, gradients[1], 0.1);
  const Program program = compile::compile(step.graph, kTensorParallel, 0);
  for (const compile::ProgramTensor& tensor : program.tensors) {
    const bool whole_hidden = tensor.local.shape() == Shape{16, 12};
    CHECK(!whole_hidden);
  }
}

TEST_CASE("gradients named after their variables are no outputs") {
  Step step;
  const SymbolicTensor x = step.input("x", {16, 8}, cuts({{0}, {}}));
  const VariableId w = step.declare("dense/kernel", {8, 4}, cuts({{}, {}}));
  const SymbolicTensor y = ops::matmul(x, step.read(w));
  step.builder.name(y, "dense/output");
  const SymbolicTensor gradient = step.differentiate(ops::sum(ops::square(y)), {w})[0];
  step.builder.name(gradient, "dense/kernel");
  step.descend(w, gradient, 0.1);
  const Program program = compile::compile(step.graph, kData, 0);
  REQUIRE(program.values.size() == 1);
  CHECK(program.values[0].path == "dense/output");
  CHECK(program.memory.gradients == 8 * 4 * 4);
  CHECK(program.collectives[0].for_paths == std::vector<std::string>{"dense/kernel"});
}

TEST_CASE("plans say what runs") {
  Pair pair(cuts({{}, {1}}), cuts({{1}}), cuts({{1}, {}}), cuts({{}}));
  const Mesh mesh({2, 5}, {"batch", "model"});
  const Program program = compile::compile(pair.step.graph, mesh, 9);
  compile::PlanContext context;
  context.rules = {".*up/kernel"};
  context.warnings = {"said by the caller"};
  const json::Value plan = compile::plan_json(program, pair.step.table, context);
  CHECK(plan.find("format")->string == "tessera-plan");
  CHECK(plan.find("ranks")->integer == 10);
  const json::Value& kernel = plan.find("variables")->array.at(0);
  CHECK(json::dump(*kernel.find("layout"), -1) == "[null, \"model\"]");
  CHECK(kernel.find("rule")->string == ".*up/kernel");
  CHECK(json::dump(*kernel.find("local_shape"), -1) == "[8, 2]");
  CHECK(json::dump(*kernel.find("offset"), -1) == "[0, 10]");
  CHECK(kernel.find("bytes")->integer == 8 * 12 * 4);
  CHECK(kernel.find("local_bytes")->integer == 8 * 2 * 4);
  CHECK(plan.find("variables")->array.size() == 4);
  CHECK(plan.find("variables")->array.at(1).find("rule")->is_null());
  CHECK(plan.find("collectives")->array.size() == program.collectives.size());
  const json::Value& first = plan.find("collectives")->array.at(0);
  CHECK(first.find("kind")->string == "all_reduce");
  CHECK(first.find("group_size")->integer == 5);
  CHECK(first.find("reason")->string == "sum over model: contraction dimension is sharded");
  CHECK(json::dump(*first.find("for"), -1) == "[\"down/output\"]");
  // 12 over 5 is uneven in the kernels and the bias.
  CHECK(plan.find("warnings")->array.size() == 4);
  CHECK(plan.find("outputs")->array.at(0).find("path")->string == "down/output");
  const std::string text = compile::plan_text(program, pair.step.table, context, true);
  CHECK(text.find("up/kernel") != std::string::npos);
  CHECK(text.find("sum over model") != std::string::npos);
  CHECK(text.find("cut over model") != std::string::npos);
  CHECK(text.find("warning: said by the caller") != std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
