// Initializers resolved for shapes, regularizers and constraints.
#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "runtime/ops/gradients.h"
#include "runtime/ops/ops.h"
#include "runtime/train/weight_rules.h"
#include "tests/support/interpreter.h"
#include "tests/support/json.h"

using Catch::Matchers::Contains;
using namespace tessera;
using namespace tessera::train;
using Kind = graph::Initializer::Kind;

namespace {

json::Value parse(const std::string& text) { return testing::parse(text, "m.json"); }

graph::Initializer initializer(const std::string& text, const Shape& shape, FanAxes axes = {}) {
  json::Problems problems;
  graph::Initializer result =
      make_initializer(parse(text), "kernel_initializer", shape, problems, axes);
  problems.throw_if_any();
  return result;
}

using Rule = std::function<graph::SymbolicTensor(graph::SymbolicTensor)>;

Rule regularizer(const std::string& text) {
  json::Problems problems;
  Rule rule = make_regularizer(parse(text), "kernel_regularizer", problems);
  problems.throw_if_any();
  return rule;
}

Rule constraint(const std::string& text) {
  json::Problems problems;
  Rule rule = make_constraint(parse(text), "kernel_constraint", problems);
  problems.throw_if_any();
  return rule;
}

std::vector<double> apply(const Rule& rule, const Shape& shape, const std::vector<double>& values) {
  graph::VariableTable table;
  graph::Graph graph(table);
  graph::Builder builder(graph);
  builder.output("result", rule(builder.input("x", shape, DType::float32)));
  testing::Interpreter interpreter(graph);
  interpreter.set_input("x", values);
  interpreter.run();
  return interpreter.output("result");
}

double limit(double scale, double units) { return std::sqrt(3.0 * scale / units); }
double deviation(double scale, double units) {
  return std::sqrt(scale / units) / 0.87962566103423978;
}

void require_near(const std::vector<double>& got, const std::vector<double>& wanted) {
  REQUIRE(got.size() == wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(wanted[i]).margin(1e-6));
}

}  // namespace

TEST_CASE("fans follow the rank, or the axes that a layer names") {
  CHECK(initializer(R"("glorot_uniform")", {30, 20}).b == Approx(limit(1, 25)));
  CHECK(initializer(R"("glorot_uniform")", {30, 20}).a == Approx(-limit(1, 25)));
  CHECK(initializer(R"("he_uniform")", {7}).b == Approx(limit(2, 7)));
  CHECK(initializer(R"("lecun_uniform")", {}).b == Approx(limit(1, 1)));
  CHECK(initializer(R"("glorot_uniform")", {3, 3, 4, 8}).b == Approx(limit(1, 9 * 6)));
  // A query kernel of attention: from 12 features to 3 heads of 4.
  const FanAxes axes{{0}, {1, 2}};
  CHECK(initializer(R"("glorot_uniform")", {12, 3, 4}, axes).b == Approx(limit(1, 12)));
  CHECK(initializer(R"({"class_name": "GlorotUniform",
                        "config": {"seed": null, "input_axes": [0], "output_axes": [1, 2]}})",
                    {12, 3, 4})
            .b == Approx(limit(1, 12)));
  CHECK(initializer(R"({"class_name": "GlorotUniform",
                        "config": {"seed": null, "input_axes": null, "output_axes": null}})",
                    {12, 3, 4})
            .b == Approx(limit(1, 12.0 * (3 + 4) / 2)));
  // Nothing enters: Keras counts at least one unit.
  CHECK(initializer(R"("lecun_uniform")", {0, 5}).b == Approx(limit(1, 1)));
}

TEST_CASE("the VarianceScaling family resolves to its distributions") {
  const auto truncated = initializer(R"("he_normal")", {8, 2});
  CHECK(truncated.kind == Kind::truncated_normal);
  CHECK(truncated.a == 0.0);
  CHECK(truncated.b == Approx(deviation(2, 8)));
  CHECK(initializer(R"("GlorotNormal")", {8, 2}).b == Approx(deviation(1, 5)));
  CHECK(initializer(R"("lecun_normal")", {8, 2}).b == Approx(deviation(1, 8)));
  const auto untruncated = initializer(
      R"({"class_name": "VarianceScaling", "config": {"scale": 3, "mode": "fan_out",
          "distribution": "untruncated_normal", "seed": 9}})",
      {8, 2});
  CHECK(untruncated.kind == Kind::random_normal);
  CHECK(untruncated.b == Approx(std::sqrt(1.5)));
  CHECK(untruncated.seed == std::optional<std::uint64_t>(9));
  CHECK_FALSE(truncated.seed.has_value());
}

TEST_CASE("plain initializers keep their arguments") {
  CHECK(initializer(R"("zeros")", {2}).kind == Kind::zeros);
  CHECK(initializer(R"({"class_name": "Ones", "config": {}})", {2}).kind == Kind::ones);
  CHECK(initializer(R"({"class_name": "Constant", "config": {"value": 0.25}})", {2}).a == 0.25);
  const auto uniform = initializer(R"("uniform")", {2});
  CHECK((uniform.kind == Kind::random_uniform && uniform.a == -0.05 && uniform.b == 0.05));
  const auto normal =
      initializer(R"({"class_name": "RandomNormal", "config": {"mean": 1, "stddev": 2}})", {2});
  CHECK((normal.kind == Kind::random_normal && normal.a == 1.0 && normal.b == 2.0));
  const auto truncated = initializer(R"("truncated_normal")", {2});
  CHECK((truncated.kind == Kind::truncated_normal && truncated.b == 0.05));
  CHECK(initializer(R"({"class_name": "Orthogonal", "config": {"gain": 2}})", {3, 2}).a == 2.0);
  CHECK(initializer(R"("identity")", {3, 3}).kind == Kind::identity);
  const auto values =
      initializer(R"({"class_name": "Constant", "config": {"value": [[1, 2], [3, 4]]}})", {2, 2});
  CHECK(values.kind == Kind::values);
  CHECK(*values.values == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("errors of initializers are placed") {
  CHECK_THROWS_WITH(initializer(R"("glorot_unifrom")", {2, 2}),
                    Contains(R"(m.json:1:1: error: kernel_initializer: unknown initializer )"
                             R"("glorot_unifrom"; did you mean "glorot_uniform"?)"));
  CHECK_THROWS_WITH(initializer(R"("orthogonal")", {2}), Contains("at least two-dimensional"));
  CHECK_THROWS_WITH(initializer(R"("identity")", {2, 2, 2}), Contains("only be used for 2D"));
  CHECK_THROWS_WITH(
      initializer(R"({"class_name": "VarianceScaling", "config": {"scale": 0}})", {2, 2}),
      Contains("`scale` must be positive"));
  CHECK_THROWS_WITH(
      initializer(R"({"class_name": "RandomNormal", "config": {"stdev": 1}})", {2, 2}),
      Contains("kernel_initializer.config.stdev") && Contains("did you mean \"stddev\"?"));
  CHECK_THROWS_WITH(
      initializer(R"({"class_name": "Constant", "config": {"value": [1, 2, 3]}})", {2, 2}),
      Contains("the 4 numbers of shape [2, 2], got 3"));
}

TEST_CASE("penalties are whole sums") {
  const std::vector<double> x = {1, -2, 3, -4};
  CHECK_FALSE(regularizer("null"));
  require_near(apply(regularizer(R"("l1")"), {2, 2}, x), {0.1});
  require_near(apply(regularizer(R"("l2")"), {2, 2}, x), {0.3});
  require_near(
      apply(regularizer(R"({"class_name": "L1L2", "config": {"l1": 0.5, "l2": 2}})"), {4}, x),
      {65});
  require_near(apply(regularizer(R"("L1L2")"), {4}, x), {0});
  require_near(apply(regularizer(R"("l1_l2")"), {4}, x), {0.4});
  require_near(apply(regularizer(R"("l2")"), {0}, {}), {0});
  CHECK_THROWS_WITH(regularizer(R"({"class_name": "L2", "config": {"l2": -1}})"),
                    Contains("at least 0"));
  CHECK_THROWS_WITH(regularizer(R"("l3")"), Contains("unknown regularizer"));
}

TEST_CASE("OrthogonalRegularizer is the mean cosine of pairs") {
  // Rows (3, 4), (4, 3), (0, 1): cosines 24/25, 4/5, 3/5.
  const std::vector<double> rows = {3, 4, 4, 3, 0, 1};
  const double mean = (24.0 / 25 + 4.0 / 5 + 3.0 / 5) / 3;
  require_near(apply(regularizer(R"("orthogonal_regularizer")"), {3, 2}, rows), {0.01 * mean});
  const auto columns = regularizer(
      R"({"class_name": "OrthogonalRegularizer", "config": {"factor": 2, "mode": "columns"}})");
  const double cosine = (3 * 4 + 4 * 3 + 0 * 1) / (5.0 * std::sqrt(26.0));
  require_near(apply(columns, {3, 2}, rows), {2 * cosine});
  require_near(apply(columns, {3, 1}, {1, 2, 3}), {0});
  CHECK_THROWS_WITH(apply(columns, {3}, {1, 2, 3}), Contains("must have rank 2"));
  CHECK_THROWS_WITH(
      regularizer(R"({"class_name": "OrthogonalRegularizer", "config": {"mode": "row"}})"),
      Contains("did you mean \"rows\"?"));
}

TEST_CASE("a row of zeros gives no infinite gradient") {
  graph::VariableTable table;
  graph::Graph graph(table);
  graph::Builder builder(graph);
  const graph::SymbolicTensor x = builder.input("x", {2, 2}, DType::float32);
  const graph::SymbolicTensor penalty = regularizer(R"("orthogonal_regularizer")")(x);
  builder.output("gradient", ops::gradients(builder, penalty, std::span(&x, 1))[0]);
  testing::Interpreter interpreter(graph);
  interpreter.set_input("x", {0, 0, 1, 2});
  interpreter.run();
  for (const double element : interpreter.output("gradient")) CHECK(std::isfinite(element));
}

TEST_CASE("constraints project as Keras does") {
  const std::vector<double> x = {3, -1, 4, 0};  // columns (3, 4) and (-1, 0)
  CHECK_FALSE(constraint("null"));
  require_near(
      apply(constraint(R"({"class_name": "MaxNorm", "config": {"max_value": 2.5}})"), {2, 2}, x),
      {1.5, -1, 2, 0});
  require_near(
      apply(constraint(R"({"class_name": "MaxNorm", "config": {"max_value": 2, "axis": [0, 1]}})"),
            {2, 2}, x),
      {3 * 2 / std::sqrt(26.0), -2 / std::sqrt(26.0), 4 * 2 / std::sqrt(26.0), 0});
  require_near(apply(constraint(R"("unit_norm")"), {2, 2}, x), {0.6, -1, 0.8, 0});
  require_near(apply(constraint(R"("NonNeg")"), {2, 2}, x), {3, 0, 4, 0});
  require_near(apply(constraint(R"({"class_name": "MinMaxNorm", "config":
                         {"min_value": 2, "max_value": 3, "rate": 0.5, "axis": 0}})"),
                     {2, 2}, x),
               {3 * 0.8, -1.5, 4 * 0.8, 0});
  require_near(apply(constraint(R"("max_norm")"), {2, 1}, {0, 0}), {0, 0});
  CHECK_THROWS_WITH(constraint(R"("max_nrm")"), Contains("did you mean \"max_norm\"?"));
}
