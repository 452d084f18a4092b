// What the tests of optimizers share: one weight, its optimizer and one update whose gradient is an
// input.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/train/optimizers.h"
#include "tests/support/interpreter.h"

namespace tessera::train::test {

using testing::Interpreter;

inline const std::vector<double> kStart = {1, -2, 3, 0.5};
inline const std::vector<std::vector<double>> kGradients = {
    {.1, -.2, .3, .05}, {.2, -.2, .15, .05}, {-.3, .4, .1, 0}};

inline json::Value parse(const std::string& text) {
  json::Problems problems;
  json::Value value = json::parse(text, "config.json", problems);
  problems.throw_if_any();
  return value;
}

inline std::unique_ptr<Optimizer> make(const std::string& text, bool mixed_float16 = false) {
  json::Problems problems;
  std::unique_ptr<Optimizer> optimizer =
      make_optimizer(parse(text), "compile.optimizer", mixed_float16, problems);
  problems.throw_if_any();
  return optimizer;
}

/// One weight "kernel", its optimizer and one update whose gradient is an input.
class Trainer {
 public:
  Trainer(const std::string& optimizer, Shape shape, DType dtype = DType::float32,
          std::function<graph::SymbolicTensor(graph::SymbolicTensor)> constraint = {})
      : optimizer_(make(optimizer)), graph_(table_) {
    graph::Variable kernel;
    kernel.path = "kernel";
    kernel.shape = shape;
    kernel.dtype = dtype;
    kernel.constraint = std::move(constraint);
    kernel_ = table_.declare(kernel);
    optimizer_->declare(table_, std::span(&kernel_, 1));
    graph::Builder builder(graph_);
    const Gradient gradient{kernel_, builder.input("gradient", shape, dtype)};
    optimizer_->apply(builder, std::span(&gradient, 1));
    interpreter_.emplace(graph_);
    interpreter_->set_variable(kernel_, kStart);
  }

  std::vector<double> step(const std::vector<double>& gradient) {
    interpreter_->set_input("gradient", gradient);
    interpreter_->run();
    return weight();
  }
  std::vector<double> weight() const { return interpreter_->variable(kernel_); }
  std::vector<double> variable(const std::string& path) const {
    return interpreter_->variable(table_.find(path).value());
  }
  void set(const std::string& path, double value) {
    interpreter_->set_variable(table_.find(path).value(), {value});
  }
  std::vector<std::string> paths() const {
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < table_.size(); ++i) {
      paths.push_back(table_[static_cast<graph::VariableId>(i)].path);
    }
    return paths;
  }
  graph::VariableTable& table() { return table_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  Interpreter& interpreter() { return *interpreter_; }

 private:
  std::unique_ptr<Optimizer> optimizer_;
  graph::VariableTable table_;
  graph::Graph graph_;
  graph::VariableId kernel_ = -1;
  std::optional<Interpreter> interpreter_;
};

inline void require_near(const std::vector<double>& got, const std::vector<double>& wanted,
                         double relative = 1.5e-6) {
  REQUIRE(got.size() == wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i << ": " << got[i] << ", expected " << wanted[i]);
    REQUIRE(std::abs(got[i] - wanted[i]) <= relative * std::max(std::abs(wanted[i]), 0.05));
  }
}

inline std::string object(const std::string& name, const std::string& config = "") {
  return R"({"class_name": ")" + name + R"(", "config": {)" + config + "}}";
}

}  // namespace tessera::train::test
