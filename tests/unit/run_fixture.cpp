// What the tests of runs share.
#include "tests/unit/run_fixture.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <iostream>

#include "base/error.h"
#include "runtime/ops/ops.h"
#include "runtime/train/weight_rules.h"

namespace tessera::train::test {

using graph::SymbolicTensor;

namespace {

graph::VariableId declare(graph::VariableTable& table, const layouts::Distribution& distribution,
                          const std::string& path, const Shape& shape) {
  json::Problems problems;
  graph::Variable variable;
  variable.path = path;
  variable.shape = shape;
  variable.initializer = make_initializer(json::make(shape.rank() > 1 ? "glorot_uniform" : "zeros"),
                                          "i", shape, problems);
  variable.storage =
      distribution.parameter_storage(shape, layouts::Placement::replicated(shape.rank()));
  return table.declare(variable);
}

}  // namespace

Net::Net(comm::World& world, const std::string& optimizer, std::uint64_t seed, std::int64_t hidden)
    : distribution_(
          layouts::Distribution::data_parallel(layouts::Mesh({world.size()}, {"batch"}))) {
  const graph::VariableId up = declare(table_, distribution_, "up/kernel", {4, hidden});
  const graph::VariableId bias = declare(table_, distribution_, "up/bias", {hidden});
  const graph::VariableId down = declare(table_, distribution_, "down/kernel", {hidden, 1});
  interface_.name = "net";
  interface_.inputs = {{"x", {4}, DType::float32}};
  interface_.outputs = {{"down", {1}, DType::float32}};
  interface_.forward = [up, bias, down](graph::Builder& builder,
                                        const std::vector<SymbolicTensor>& inputs, bool training) {
    using ops::operator+;
    using ops::operator*;
    SymbolicTensor hidden_values =
        ops::tanh(ops::matmul(inputs[0], builder.variable(up)) + builder.variable(bias));
    if (training) {
      const SymbolicTensor draws = ops::random_uniform(builder, hidden_values.shape(), 99);
      hidden_values =
          ops::where(ops::greater_equal(draws, 0.25), hidden_values * (1.0 / 0.75), 0.0);
    }
    ForwardResult result;
    result.outputs = {ops::matmul(hidden_values, builder.variable(down))};
    return result;
  };
  session_ = std::make_unique<Session>(world, distribution_, interface_, table_, seed,
                                       kernels::CpuDevice{});
  json::Problems problems;
  session_->compile(
      read_compile(parse(R"({"loss": "mse", "metrics": ["mae"], "optimizer": )" + optimizer + "}"),
                   "compile", interface_, {{"down", {1}, DType::float32}}, false, problems));
  problems.throw_if_any();
}

data::Dataset samples(std::int64_t rows, int salt) {
  std::vector<float> x;
  std::vector<float> y;
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (int i = 0; i < 4; ++i) {
      x.push_back(
          static_cast<float>(std::sin(1.7 * static_cast<double>(4 * row + i) + 0.9 * salt)));
      sum += (i + 1) * static_cast<double>(x.back());
    }
    y.push_back(static_cast<float>(std::tanh(sum) +
                                   0.5 * std::sin(12.9 * static_cast<double>(row) + salt)));
  }
  const auto source = [rows](std::vector<float> values, const Shape& shape) {
    return std::make_shared<data::MemorySource>(std::move(values), rows, shape, false, "memory");
  };
  data::Dataset dataset;
  dataset.shown = "memory";
  dataset.rows = rows;
  dataset.x = {{"x", source(std::move(x), {4})}};
  dataset.y = {{"down", source(std::move(y), {1})}};
  return dataset;
}

std::unique_ptr<Callback> callback(const std::string& text, Session& session) {
  json::Problems problems;
  std::unique_ptr<Callback> made = make_callback(parse(text), "callbacks[0]", problems);
  problems.throw_if_any();
  if (auto* monitor = dynamic_cast<MonitorCallback*>(made.get()))
    monitor->set_directions(session.directions());
  return made;
}

std::string problems_of(const std::string& text) {
  json::Problems problems;
  make_callback(parse(text), "callbacks[0]", problems);
  std::string lines;
  for (const json::Problem& problem : problems.list()) lines += to_string(problem) + "\n";
  return lines;
}

std::string output_of(const std::function<void()>& action, bool standard_error) {
  std::FILE* stream = standard_error ? stderr : stdout;
  const int descriptor = fileno(stream);
  std::cout.flush();
  std::fflush(stream);
  const int kept = dup(descriptor);
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  dup2(fileno(file), descriptor);
  const auto restore = [&] {
    std::fflush(stream);
    dup2(kept, descriptor);
    close(kept);
  };
  try {
    action();
  } catch (...) {
    restore();
    std::fclose(file);
    throw;
  }
  restore();
  std::string text(
      static_cast<std::size_t>(std::ftell(file) >= 0 ? lseek(fileno(file), 0, SEEK_END) : 0), '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

void alone(const std::function<void(comm::World&)>& body) { comm::run_as_threads(1, body); }

}  // namespace tessera::train::test
