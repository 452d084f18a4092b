// What the tests of models share.
#include "tests/unit/models_fixture.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <set>

#include "models/layer_table.h"
#include "tests/support/json.h"
#include "tests/unit/models_json.h"

namespace tessera::models::test {
namespace {

json::Value parse_file(const std::filesystem::path& path) {
  json::Problems problems;
  json::Value value = json::parse(json::read_text_file(path.string(), Error::Kind::config),
                                  path.filename().string(), problems);
  problems.throw_if_any();
  return value;
}

void collect_classes(const json::Value& value, std::set<std::string>& names) {
  const json::Value* class_name = value.find("class_name");
  const json::Value* module = value.find("module");
  const std::string from = module == nullptr ? "keras.layers" : module->string;
  const bool layer = value.find("config") != nullptr &&
                     (from.rfind("keras.layers", 0) == 0 || from.rfind("keras.src.ops", 0) == 0 ||
                      value.find("inbound_nodes") != nullptr);
  if (class_name != nullptr && layer && class_name->is_string()) names.insert(class_name->string);
  for (const json::Value& item : value.array) collect_classes(item, names);
  for (const json::Member& member : value.object) {
    if (member.key == "layers" || member.key == "layer" || member.key == "config") {
      collect_classes(member.value, names);
    }
  }
}

bool is_supported(const Case& one) {
  std::vector<std::string> known = layer_classes();
  for (std::string& name : operation_classes()) known.push_back(std::move(name));
  const std::vector<std::string> names = one.classes();
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return std::find(known.begin(), known.end(), name) != known.end();
  });
}

}  // namespace

json::Value parse(const std::string& text) { return testing::parse(text, "model.json"); }

Loaded::Loaded(const json::Value& value, const std::string& policy) {
  json::Problems problems;
  model = Model::read(value, "", policy, problems);
  problems.throw_if_any();
  REQUIRE(model != nullptr);
  model->declare(table, problems);
  problems.throw_if_any();
}

graph::VariableId Loaded::id(const std::string& path) const {
  const auto found = table.find(path);
  INFO(path);
  REQUIRE(found.has_value());
  return *found;
}

std::vector<std::string> Loaded::paths() const {
  std::vector<std::string> result;
  for (const graph::VariableId id : model->weights()) result.push_back(table[id].path);
  return result;
}

Runner::Runner(Loaded& loaded, std::int64_t batch, bool training)
    : loaded_(loaded), graph_(loaded.table), builder_(graph_) {
  std::vector<graph::SymbolicTensor> inputs;
  for (const train::TensorSpec& spec : loaded.model->inputs()) {
    Shape shape{batch};
    for (const std::int64_t size : spec.sample_shape.sizes()) shape.push_back(size);
    inputs.push_back(builder_.input(spec.name, shape, spec.dtype));
  }
  result_ = loaded.model->forward(builder_, inputs, training);
  interpreter_.emplace(graph_);
}

std::vector<double> Runner::operator()(const std::vector<std::vector<double>>& inputs,
                                       std::uint64_t step) {
  const auto& specs = loaded_.model->inputs();
  REQUIRE(inputs.size() == specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    interpreter_->set_input(specs[i].name, inputs[i]);
  }
  interpreter_->run(step);
  return value(result_.outputs.front());
}

std::vector<std::string> problems_of(const std::string& text, const std::string& policy) {
  json::Problems problems;
  const auto model = Model::read(parse(text), "", policy, problems);
  REQUIRE((model == nullptr) == !problems.empty());
  std::vector<std::string> messages;
  for (const json::Problem& problem : problems.list()) {
    messages.push_back(json::to_string(problem));
  }
  return messages;
}

Case::Case(const std::filesystem::path& at)
    : folder(at), config(parse_file(at / "config.json")), expect(parse_file(at / "expect.json")) {
  const json::Value* value = config.find("model");
  REQUIRE(value != nullptr);
  model = value->is_string() ? parse_file(at / value->string) : *value;
}

std::string Case::text(const char* key, const std::string& fallback) const {
  const json::Value* value = expect.find(key);
  return value == nullptr ? fallback : value->string;
}

std::vector<std::string> Case::classes() const {
  std::set<std::string> names;
  collect_classes(model, names);
  return {names.begin(), names.end()};
}

double Case::tolerance(const char* kind) const {
  const json::Value* tolerance = expect.find("tolerance");
  const json::Value* value = tolerance == nullptr ? nullptr : tolerance->find(kind);
  return value == nullptr ? 1e-6 : value->number;
}

std::vector<Case> cases_of(const std::string& group) {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(TESSERA_ACCEPTANCE) / group)) {
    if (std::filesystem::exists(entry.path() / "config.json")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  std::vector<Case> cases;
  for (const auto& folder : folders) {
    json::Problems problems;
    const json::Value config =
        json::parse(json::read_text_file((folder / "config.json").string(), Error::Kind::config),
                    "config.json", problems);
    if (!problems.empty()) continue;  // a case about the config's own syntax
    const json::Value* model = config.find("model");
    // Archives are read by another room.
    if (model->is_string() && std::filesystem::path(model->string).extension() != ".json") continue;
    Case one(folder);
    if (is_supported(one)) cases.push_back(std::move(one));
  }
  return cases;
}

std::vector<double> read_array(const io::ArrayFile& file, const std::string& name) {
  const int index = file.find(name);
  INFO(file.path() << ": " << name);
  REQUIRE(index >= 0);
  std::vector<double> values(
      static_cast<std::size_t>(file.arrays()[static_cast<std::size_t>(index)].shape.elements()));
  file.read(index, 0, static_cast<std::int64_t>(values.size()), values.data(), DType::float64);
  return values;
}

void set_weights(testing::Interpreter& interpreter, const Loaded& loaded,
                 const std::filesystem::path& path) {
  const auto file = io::open_array_file(path.string(), Error::Kind::weights);
  CHECK(file->arrays().size() == loaded.model->weights().size());
  for (const graph::VariableId id : loaded.model->weights()) {
    const graph::Variable& variable = loaded.table[id];
    const int index = file->find(variable.path);
    INFO(path << ": " << variable.path);
    REQUIRE(index >= 0);
    REQUIRE(file->arrays()[static_cast<std::size_t>(index)].shape == variable.shape);
    interpreter.set_variable(id, read_array(*file, variable.path));
  }
}

double worst_error(const std::vector<double>& a, const std::vector<double>& b, double relative,
                   double absolute) {
  REQUIRE(a.size() == b.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(a[i] - b[i]) / (absolute + relative * std::abs(b[i]));
    worst = error <= worst ? worst : error;  // NaN is the worst
  }
  return worst;
}

std::int64_t size_of_batch(const Loaded& loaded, const Values& x) {
  return static_cast<std::int64_t>(x.size()) /
         loaded.model->inputs().front().sample_shape.elements();
}

Values apply(const std::string& class_name, const std::string& config, const std::string& shape,
             const Values& x, bool training, std::uint64_t step) {
  Loaded loaded(model_of(shape, {{class_name, config}}));
  loaded.model->seed = 7;
  Runner runner(loaded, size_of_batch(loaded, x), training);
  return runner({x}, step);
}

double mean_of(const Values& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

void check_near(const Values& a, const Values& b, double tolerance) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    INFO(i);
    CHECK(a[i] == Approx(b[i]).margin(tolerance).epsilon(tolerance));
  }
}

}  // namespace tessera::models::test
