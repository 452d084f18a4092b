// Losses, their gradients and metrics on meshes: rows cut over "data", classes over "model".
#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/ops/gradients.h"
#include "runtime/ops/ops.h"
#include "runtime/train/metrics.h"
#include "tests/support/json.h"
#include "tests/support/simulator.h"
#include "tests/unit/train_loss_cases.h"
#include "tests/unit/train_metric_cases.h"

using namespace tessera;
using namespace tessera::train;
using namespace tessera::train::cases;
using layouts::Mesh;
using layouts::Placement;
using testing::Simulator;

namespace {

json::Value parse(const std::string& text) { return testing::parse(text, "config.json"); }

Approx near_to(double value) { return Approx(value).epsilon(3e-5).margin(3e-6); }

/// Where batches and predictions lie.
struct Cut {
  const char* about;
  Mesh mesh;
  bool classes;  // the predictions' last dimension is cut over axis 1
};

const std::vector<Cut>& cuts() {
  static const std::vector<Cut> kCuts = {
      {"two ranks by rows", Mesh({2}, {"data"}), false},
      {"three ranks by rows", Mesh({3}, {"data"}), false},
      {"rows and classes", Mesh({2, 2}, {"data", "model"}), true},
      {"classes", Mesh({1, 2}, {"data", "model"}), true},
  };
  return kCuts;
}

/// A graph whose inputs are pinned as a step pins them.
class Step {
 public:
  explicit Step(const Cut& cut) : graph_(table_), builder_(graph_), cut_(cut) {}

  graph::VariableTable& table() { return table_; }
  graph::Builder& builder() { return builder_; }

  SymbolicTensor input(const std::string& name, const Data* data, bool classes = false) {
    if (data == nullptr) return {};
    inputs_[name] = data;
    const SymbolicTensor tensor = builder_.input(name, data->shape, data->dtype);
    Placement placement = Placement::replicated(data->shape.rank());
    if (!data->shape.empty()) placement.dims[0] = {0};
    if (classes && cut_.classes && data->shape.rank() > 1) placement.dims.back() = {1};
    builder_.pin(tensor, placement);
    return tensor;
  }

  const graph::Graph& graph() const { return graph_; }

  void set_inputs(Simulator& simulator) const {
    for (const auto& [name, data] : inputs_) simulator.set_input(name, data->values);
  }

 private:
  graph::VariableTable table_;
  graph::Graph graph_;
  graph::Builder builder_;
  const Cut& cut_;
  std::map<std::string, const Data*> inputs_;
};

}  // namespace

TEST_CASE("losses and gradients on meshes are those of one rank", "[losses]") {
  for (const Cut& cut : cuts()) {
    for (const LossCase& test : kLossCases) {
      INFO(cut.about << ": " << test.config);
      json::Problems problems;
      const auto loss =
          make_loss(parse(test.config), "loss", {test.y_true.type(), test.y_pred.type()}, problems);
      problems.throw_if_any();
      Step step(cut);
      const SymbolicTensor y_pred = step.input("predictions", &test.y_pred, true);
      const SymbolicTensor value = (*loss)(step.input("targets", &test.y_true), y_pred, {}, {});
      step.builder().output("loss", value);
      step.builder().output("gradient",
                            ops::gradients(step.builder(), value, std::span(&y_pred, 1))[0]);
      Simulator simulator(step.graph(), cut.mesh);
      step.set_inputs(simulator);
      simulator.run();
      CHECK(simulator.output("loss")[0] == near_to(test.value));
      const std::vector<double> gradient = simulator.output("gradient");
      REQUIRE(gradient.size() == test.gradient.size());
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        INFO("element " << i);
        CHECK(gradient[i] == near_to(test.gradient[i]));
      }
    }
  }
}

TEST_CASE("weights and masks on meshes are those of one rank", "[losses]") {
  for (const Cut& cut : cuts()) {
    for (const ReductionCase& test : kReductionCases) {
      INFO(cut.about << ": " << test.loss << " " << test.reduction
                     << (test.weight != nullptr ? " weighted" : "")
                     << (test.mask != nullptr ? " masked" : ""));
      const bool steps = std::string_view(test.loss) == kStepsLoss;
      const bool dice = std::string_view(test.loss) == kDiceLoss;
      const Data& y_true = steps ? kStepLabels : dice ? kBinary : kNumbers;
      const Data& y_pred = steps ? kSteps : dice ? kProbabilities : kPositive;
      const std::string config = std::string(R"({"class_name": ")") + test.loss +
                                 R"(", "config": {"reduction": ")" + test.reduction +
                                 (steps ? R"(", "from_logits": true}})" : R"("}})");
      json::Problems problems;
      const auto loss = make_loss(parse(config), "loss", {y_true.type(), y_pred.type()}, problems);
      problems.throw_if_any();
      Step step(cut);
      const SymbolicTensor predictions = step.input("predictions", &y_pred, true);
      step.builder().output(
          "loss", (*loss)(step.input("targets", &y_true), predictions,
                          step.input("weight", test.weight), step.input("mask", test.mask)));
      Simulator simulator(step.graph(), cut.mesh);
      step.set_inputs(simulator);
      simulator.run();
      CHECK(simulator.output("loss")[0] == near_to(test.value));
    }
  }
}

TEST_CASE("totals of metrics on meshes are those of one rank", "[metrics]") {
  for (const Cut& cut : cuts()) {
    for (const metrics::MetricCase& test : metrics::kMetricCases) {
      INFO(cut.about << ": " << test.config << (test.weight != nullptr ? " weighted" : "")
                     << (test.mask != nullptr ? " masked" : ""));
      json::Problems problems;
      const auto metric = make_metric(parse(test.config), "metric",
                                      {test.y_true.type(), test.y_pred.type()}, problems);
      problems.throw_if_any();
      Step step(cut);
      metric->declare(step.table(), "shown");
      const SymbolicTensor predictions = step.input("predictions", &test.y_pred, true);
      const SymbolicTensor targets = step.input("targets", &test.y_true);
      metric->update(step.builder(), targets, predictions, step.input("weight", test.weight),
                     step.input("mask", test.mask));
      Simulator simulator(step.graph(), cut.mesh);
      step.set_inputs(simulator);
      for (const graph::VariableId id : metric->variables()) {
        const std::int64_t elements = step.table()[id].shape.elements();
        simulator.set_variable(id, std::vector<double>(static_cast<std::size_t>(elements), 0.0));
      }
      // The same rows twice: totals double, and results that are no counts stay.
      const auto result = [&] {
        std::vector<std::vector<double>> totals;
        for (const graph::VariableId id : metric->variables()) {
          totals.push_back(simulator.variable(id));
        }
        return metric->result(totals);
      };
      simulator.run();
      CHECK(result() == near_to(test.result));
      std::vector<std::vector<double>> once;
      for (const graph::VariableId id : metric->variables()) once.push_back(simulator.variable(id));
      simulator.run();
      for (std::size_t i = 0; i < once.size(); ++i) {
        const std::vector<double> twice = simulator.variable(metric->variables()[i]);
        for (std::size_t k = 0; k < twice.size(); ++k) CHECK(twice[k] == near_to(2.0 * once[i][k]));
      }
    }
  }
}
