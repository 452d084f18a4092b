// Values of a formula for given operands: what tests compare with numbers worked out by hand.
#pragma once

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/ops/driver.h"
#include "tests/support/interpreter.h"

namespace tessera::testing {

struct Given {
  Shape shape;
  std::vector<double> values;
  DType dtype = DType::float32;
};

/// All results of `build` for these operands.
inline std::vector<std::vector<double>> results_of(const std::vector<Given>& operands,
                                                   const Build& build) {
  graph::VariableTable table;
  graph::Graph graph(table);
  Builder builder(graph);
  Tensors inputs;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    inputs.push_back(builder.input(fmt::format("x{}", i), operands[i].shape, operands[i].dtype));
  }
  const Tensors results = build(builder, inputs);
  Interpreter interpreter(graph);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    interpreter.set_input(fmt::format("x{}", i), operands[i].values);
  }
  interpreter.run();
  std::vector<std::vector<double>> values;
  for (const SymbolicTensor result : results) values.push_back(interpreter.value(result.id));
  return values;
}

/// The first result.
inline std::vector<double> result_of(const std::vector<Given>& operands, const Build& build) {
  return results_of(operands, build).front();
}

/// Element-wise within `tolerance`, relative to max(1, |expected|).
inline void check_near(const std::vector<double>& found, const std::vector<double>& expected,
                       double tolerance) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO("element " << i);
    CHECK(found[i] == Approx(expected[i]).margin(tolerance).epsilon(tolerance));
  }
}

}  // namespace tessera::testing
