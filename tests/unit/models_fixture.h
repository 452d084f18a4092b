// What the tests of models share: models from JSON text, and acceptance cases run through the
// interpreter.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/model.h"
#include "runtime/io/array_file.h"
#include "tests/support/interpreter.h"

namespace tessera::models::test {

json::Value parse(const std::string& text);

/// A model of valid JSON, its weights declared in `table`. Problems fail the test.
struct Loaded {
  explicit Loaded(const json::Value& value, const std::string& policy = "float32");
  explicit Loaded(const std::string& text, const std::string& policy = "float32")
      : Loaded(parse(text), policy) {}

  std::unique_ptr<Model> model;
  graph::VariableTable table;

  graph::VariableId id(const std::string& path) const;
  /// Paths of all weights, in order.
  std::vector<std::string> paths() const;
};

/// The forward graph of a model, run through the interpreter.
class Runner {
 public:
  Runner(Loaded& loaded, std::int64_t batch, bool training = false);

  graph::Graph& graph() { return graph_; }
  const train::ForwardResult& result() const { return result_; }
  testing::Interpreter& interpreter() { return *interpreter_; }
  /// Sets all inputs in order and runs; the value of output 0.
  std::vector<double> operator()(const std::vector<std::vector<double>>& inputs,
                                 std::uint64_t step = 0);
  std::vector<double> value(graph::SymbolicTensor tensor) const {
    return interpreter_->value(tensor.id);
  }

 private:
  Loaded& loaded_;
  graph::Graph graph_;
  graph::Builder builder_;
  train::ForwardResult result_;
  std::optional<testing::Interpreter> interpreter_;
};

/// Messages of the problems that reading `text` gives.
std::vector<std::string> problems_of(const std::string& text,
                                     const std::string& policy = "float32");

/// One folder of tests/acceptance.
struct Case {
  explicit Case(const std::filesystem::path& folder);

  std::filesystem::path folder;
  json::Value config;
  json::Value expect;
  json::Value model;

  std::string text(const char* key, const std::string& fallback) const;
  /// Names of all classes of layers and operations in the model.
  std::vector<std::string> classes() const;
  double tolerance(const char* kind) const;
};

/// Cases of a group in order of their names: those whose model this version can read.
std::vector<Case> cases_of(const std::string& group);

/// All values of an array of a file.
std::vector<double> read_array(const io::ArrayFile& file, const std::string& name);

/// Gives the weights of a file to the interpreter; all must be there and nothing else.
void set_weights(testing::Interpreter& interpreter, const Loaded& loaded,
                 const std::filesystem::path& file);

/// The worst of |a - b| / (absolute + relative |b|): at most 1 where all values agree.
double worst_error(const std::vector<double>& a, const std::vector<double>& b, double relative,
                   double absolute);

using Values = std::vector<double>;

/// Samples in the values of a model's first input.
std::int64_t size_of_batch(const Loaded& loaded, const Values& x);

/// Output of a Sequential of one layer, with weights as they are initialised.
Values apply(const std::string& class_name, const std::string& config, const std::string& shape,
             const Values& x, bool training = false, std::uint64_t step = 0);

double mean_of(const Values& x);

void check_near(const Values& a, const Values& b, double tolerance = 1e-6);

}  // namespace tessera::models::test
