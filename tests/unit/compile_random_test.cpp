// Random small training steps under random placements: all ranks in lockstep against the unsharded
// graph.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "runtime/compile/simplify.h"
#include "tests/support/interpreter.h"
#include "tests/support/simulator.h"
#include "tests/unit/compile_models.h"

namespace tessera::testing {
namespace {

using graph::Phase;
using layouts::AxisList;
using layouts::Mesh;

/// Whole numbers stay exact whatever the order of sums, `halves` with products that round to
/// bfloat16 once they are whole; real numbers round.
enum class Numbers { whole, halves, real };

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : engine_(seed) {}
  int below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(engine_); }
  bool chance(double share) {
    return std::uniform_real_distribution<double>(0, 1)(engine_) < share;
  }
  std::int64_t size() {
    static constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 5, 6, 8};
    return kSizes[below(7)];
  }
  std::vector<double> values(const Shape& shape, Numbers numbers) {
    std::vector<double> result(static_cast<std::size_t>(shape.elements()));
    for (double& value : result) {
      value = below(5) - 2;
      if (numbers == Numbers::real) value = std::normal_distribution<float>(0.0F, 0.7F)(engine_);
    }
    return result;
  }
  /// Every axis cuts some dimension or none; the order of axes on one dimension is random too.
  Placement placement(std::size_t rank, const Mesh& mesh, double share) {
    Placement result = Placement::replicated(rank);
    std::vector<int> axes;
    for (int axis = 0; axis < mesh.axes(); ++axis) axes.push_back(axis);
    std::shuffle(axes.begin(), axes.end(), engine_);
    for (const int axis : axes) {
      if (rank == 0 || !chance(share)) continue;
      result.dims[static_cast<std::size_t>(below(static_cast<int>(rank)))].push_back(axis);
    }
    return result;
  }

 private:
  std::mt19937_64 engine_;
};

/// A random network with its data.
class Model {
 public:
  Model(std::uint64_t seed, const Mesh& mesh, Numbers numbers)
      : draws_(seed), mesh_(mesh), numbers_(numbers) {
    batch_ = draws_.size();
    SymbolicTensor x = input("x", {batch_, draws_.size()});
    // More layers would make numbers too large to be exact.
    const int layers = numbers == Numbers::halves ? 1 : 1 + draws_.below(3);
    for (int i = 0; i < layers; ++i) {
      const graph::Builder::Scope scope(step_.builder, fmt::format("layer{}", i));
      x = layer(x, i);
    }
    SymbolicTensor loss = numbers == Numbers::real ? real_loss(x) : whole_loss(x);
    if (draws_.chance(0.3)) loss = loss + penalty();
    finish(x, loss);
  }

  Step& step() { return step_; }

  template <typename Machine>
  void fill(Machine& machine) const {
    for (const auto& [name, values] : inputs_) machine.set_input(name, values);
    for (const auto& [id, values] : variables_) machine.set_variable(id, values);
  }

 private:
  SymbolicTensor input(const std::string& name, Shape shape) {
    inputs_.emplace_back(name, draws_.values(shape, numbers_));
    Placement pin = Placement::replicated(shape.rank());
    if (draws_.chance(0.8)) pin.dims[0] = {0};
    return step_.input(name, shape, pin);
  }

  VariableId weight(const std::string& path, Shape shape) {
    const VariableId id = step_.declare(path, shape, draws_.placement(shape.rank(), mesh_, 0.5));
    if (draws_.chance(0.2)) {  // used otherwise than stored
      step_.table[id].compute = draws_.placement(shape.rank(), mesh_, 0.3);
    }
    variables_.emplace_back(id, draws_.values(shape, numbers_));
    weights_.push_back(id);
    return id;
  }

  SymbolicTensor layer(SymbolicTensor x, int index) {
    const std::int64_t width = draws_.size();
    const std::string path = fmt::format("layer{}/", index);
    SymbolicTensor y = product(x, step_.read(weight(path + "kernel", {x.shape()[1], width})));
    if (draws_.chance(0.6)) y = y + step_.read(weight(path + "bias", {width}));
    y = activation(y);
    if (draws_.chance(0.3)) y = norm(y, path);
    if (draws_.chance(0.2) && y.shape() == x.shape()) y = y + x;
    if (draws_.chance(0.2)) {
      y = ops::reshape(ops::transpose(ops::reshape(y, {batch_, 1, width}), {1, 0, 2}), y.shape());
    }
    if (draws_.chance(0.2)) {
      y = ops::concat({y, y * 2.0}, 1);
      y = ops::slice(y, 1, width / 2, width);
    }
    step_.builder.name(y, path + "output");
    if (draws_.chance(0.3)) step_.builder.pin(y, draws_.placement(2, mesh_, 0.5));
    return y;
  }

  SymbolicTensor product(SymbolicTensor x, SymbolicTensor w) {
    if (numbers_ != Numbers::halves) return ops::matmul(x, w);
    const DType half = DType::bfloat16;
    // Large enough that terms, and sums, are rounded. Fusion leaves out the rounding of
    // element-wise results but casts, so there are none.
    const SymbolicTensor y = ops::matmul(ops::cast(x * 67.0, half), ops::cast(w, half));
    const SymbolicTensor rows = ops::sum(ops::cast(x * 67.0, half), {1}, true);
    // What lies between a sum and its cast to float32 keeps the compiler from leaving both out.
    const auto widened = [](SymbolicTensor sum) {
      return ops::cast(ops::transpose(sum, {1, 0}), DType::float32);
    };
    return ops::transpose(widened(y) + widened(rows), {1, 0});
  }

  SymbolicTensor activation(SymbolicTensor y) {
    if (numbers_ != Numbers::real) return draws_.chance(0.5) ? ops::relu(y) : y;
    switch (draws_.below(5)) {
      case 0:
        return ops::relu(y);
      case 1:
        return ops::tanh(y);
      case 2:
        return ops::softmax(y);
      case 3:
        return y - ops::max(y, {draws_.below(2)}, true);
      default:
        return y;
    }
  }

  /// Layer normalisation by reductions, over the features or the batch.
  SymbolicTensor norm(SymbolicTensor y, const std::string& path) {
    if (numbers_ != Numbers::real) return y - ops::sum(y, {draws_.below(2)}, true);
    const int dim = draws_.below(2);
    const SymbolicTensor centred = y - ops::mean(y, {dim}, true);
    const SymbolicTensor variance = ops::mean(ops::square(centred), {dim}, true);
    const SymbolicTensor scale = step_.read(weight(path + "gamma", {y.shape()[1]}));
    return centred * ops::rsqrt(variance + 0.1) * scale;
  }

  SymbolicTensor whole_loss(SymbolicTensor y) { return ops::sum(y * input("target", y.shape())); }

  SymbolicTensor real_loss(SymbolicTensor y) {
    const SymbolicTensor target = input("target", y.shape());
    if (draws_.chance(0.5)) return ops::mean(ops::square(y - target));
    return ops::mean(ops::sum(ops::log_softmax(y) * target, {1}) * -1.0);
  }

  SymbolicTensor penalty() {
    const SymbolicTensor w = step_.read(weights_.front());
    return ops::sum(numbers_ == Numbers::real ? ops::square(w) * 0.01 : w);
  }

  void finish(SymbolicTensor y, SymbolicTensor loss) {
    step_.builder.output("y", y);
    step_.builder.output("loss", loss);
    const VariableId total = step_.declare_metric("total");
    variables_.emplace_back(total, draws_.values({}, Numbers::whole));
    step_.add_to_metric(total, loss);
    const VariableId largest = step_.declare_metric("rows", {y.shape()[1]});
    variables_.emplace_back(largest, draws_.values({y.shape()[1]}, Numbers::whole));
    step_.add_to_metric(largest, ops::sum(y, {0}));
    const bool adam = numbers_ == Numbers::real && draws_.chance(0.5);
    const std::vector<SymbolicTensor> gradients = step_.differentiate(loss, weights_);
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const VariableId id = weights_[i];
      const Placement slots = draws_.chance(0.5)
                                  ? *step_.table[id].storage
                                  : draws_.placement(step_.table[id].shape.rank(), mesh_, 0.5);
      if (draws_.chance(0.3)) step_.builder.pin(gradients[i], slots);
      if (!adam) {
        step_.descend(id, gradients[i], numbers_ == Numbers::real ? 0.05 : 1.0);
        continue;
      }
      step_.adapt(id, gradients[i], 0.01, slots);
      for (const char* slot : {"/m", "/v"}) {
        const VariableId added = *step_.table.find(step_.table[id].path + slot);
        variables_.emplace_back(
            added, std::vector<double>(static_cast<std::size_t>(step_.table[id].shape.elements())));
      }
    }
  }

  Step step_;
  Draws draws_;
  const Mesh& mesh_;
  const Numbers numbers_;
  std::int64_t batch_ = 1;
  std::vector<VariableId> weights_;
  std::vector<std::pair<std::string, std::vector<double>>> inputs_;
  std::vector<std::pair<VariableId, std::vector<double>>> variables_;
};

/// Largest difference, as a share of the tolerance; NaN equals NaN.
double difference(const std::vector<double>& got, const std::vector<double>& want,
                  Numbers numbers) {
  if (got.size() != want.size()) return 1e9;
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
    const double allowed = numbers != Numbers::real ? 1e-30 : 2e-5 + 2e-4 * std::abs(want[i]);
    const double share = std::abs(got[i] - want[i]) / allowed;
    worst = std::isnan(share) ? 1e9 : std::max(worst, share);
  }
  return worst;
}

void compare(std::uint64_t seed, const Mesh& mesh, Numbers numbers) {
  Model model(seed, mesh, numbers);
  compile::Options options;
  options.fuse = seed % 4 != 0;
  if (seed % 2 == 0) options.panel_bytes = 16;
  options.bucket_bytes = seed % 3 == 0 ? 64 : std::int64_t{1} << 20U;
  INFO("seed " << seed << ", mesh of " << mesh.size() << " ranks and " << mesh.axes() << " axes");
  INFO(graph::to_string(model.step().graph));
  // The graph itself rounds gradients to 16 bits that the simplified one keeps.
  const graph::Graph simple = compile::simplify(model.step().graph);
  Interpreter whole(numbers == Numbers::halves ? simple : model.step().graph);
  Simulator parts(model.step().graph, mesh, options);
  model.fill(whole);
  model.fill(parts);
  for (std::uint64_t step = 0; step < 2; ++step) {
    whole.run(step);
    parts.run(step);
    // After one update whole numbers may be too large to be exact.
    const Numbers kind = step == 0 ? numbers : Numbers::real;
    for (const graph::Output& output : model.step().graph.outputs) {
      INFO("output " << output.name << " of step " << step);
      REQUIRE(difference(parts.output(output.name), whole.output(output.name), kind) <= 1);
    }
    for (const graph::Assignment& assignment : model.step().graph.assignments) {
      INFO("variable " << model.step().table[assignment.variable].path << " after step " << step);
      REQUIRE(difference(parts.variable(assignment.variable), whole.variable(assignment.variable),
                         kind) <= 1);
    }
  }
}

const std::vector<Mesh>& meshes() {
  static const std::vector<Mesh> all{Mesh({2}, {"a"}),         Mesh({3}, {"a"}),
                                     Mesh({4}, {"a"}),         Mesh({2, 2}, {"a", "b"}),
                                     Mesh({2, 3}, {"a", "b"}), Mesh({1, 2, 2}, {"a", "b", "c"})};
  return all;
}

TEST_CASE("random steps on whole numbers are exact on every mesh") {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    compare(seed, meshes()[seed % meshes().size()], Numbers::whole);
  }
}

TEST_CASE("random steps with products of 16 bits round the same on every mesh") {
  for (std::uint64_t seed = 2000; seed < 2300; ++seed) {
    compare(seed, meshes()[seed % meshes().size()], Numbers::halves);
  }
}

TEST_CASE("random steps on real numbers agree on every mesh") {
  for (std::uint64_t seed = 1000; seed < 1600; ++seed) {
    compare(seed, meshes()[seed % meshes().size()], Numbers::real);
  }
}

}  // namespace
}  // namespace tessera::testing
