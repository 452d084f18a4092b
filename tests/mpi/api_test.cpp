// The facts of keras.distribution against the library, on as many ranks as mpirun starts: every
// rank runs every test.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <numeric>

#include "api/tessera.h"

namespace tessera {
namespace {

namespace dist = distribution;
using dist::Axes;
using dist::DeviceMesh;
using dist::LayoutMap;
using dist::TensorLayout;

std::vector<std::string> eight() {
  std::vector<std::string> devices;
  for (int i = 0; i < 8; ++i) devices.push_back("cpu:" + std::to_string(i));
  return devices;
}

DeviceMesh four_by_two(std::string first = "data") {
  return DeviceMesh({4, 2}, {std::move(first), "model"}, eight());
}

/// Runs `action` and gives the text of the config error that it must throw.
template <typename Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.kind == Error::Kind::config);
    return error.what();
  }
  FAIL("nothing was thrown");
  return "";
}

std::int64_t ranks() { return static_cast<std::int64_t>(dist::get_device_count()); }

LayoutMap docs_map() {
  LayoutMap map(four_by_two());
  map.insert("dense/kernel", TensorLayout::of({nullptr, "model"}));
  map.insert("dense/bias", TensorLayout::of({"model"}));
  map.insert(".*dense.*kernel", TensorLayout::of({nullptr, nullptr}));
  map.insert(".*dense.*bias", TensorLayout::of({nullptr}));
  map.insert(".*bias", TensorLayout::of({"model"}));
  return map;
}

TEST_CASE("devices are counted once a rank, the same everywhere") {
  const std::vector<std::string> devices = dist::list_devices();
  REQUIRE(static_cast<std::int64_t>(devices.size()) == ranks());
  for (std::size_t i = 0; i < devices.size(); ++i) CHECK(devices[i] == "cpu:" + std::to_string(i));
  CHECK(dist::list_devices("CPU") == devices);
  CHECK(dist::get_device_count("gpu") == 0);
  CHECK(refusal([] { dist::list_devices("cpus"); }).find("cpus") != std::string::npos);
}

TEST_CASE("initialize checks what it is told against the job") {
  CHECK_NOTHROW(dist::initialize());
  CHECK_NOTHROW(dist::initialize("10.0.0.1:1234", static_cast<int>(ranks())));
  CHECK(refusal([] {
          dist::initialize("10.0.0.1:1,10.0.0.2:2", 3, 0);
        }).find("has 2 jobs, but num_processes is 3") != std::string::npos);
  CHECK(refusal([] {
          dist::initialize({}, static_cast<int>(ranks()) + 1);
        }).find("num_processes") != std::string::npos);
  setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "", 1);
  CHECK(refusal([] { dist::initialize(); }).find("KERAS_DISTRIBUTION_NUM_PROCESSES") !=
        std::string::npos);
  // An explicit argument wins: the variable is not read.
  CHECK_NOTHROW(dist::initialize({}, static_cast<int>(ranks())));
  unsetenv("KERAS_DISTRIBUTION_NUM_PROCESSES");
}

TEST_CASE("a mesh keeps shape, names and devices, and refuses what does not fit") {
  const DeviceMesh mesh({4, 2}, {"batch", "model"}, eight());
  CHECK(mesh.shape() == std::vector<std::int64_t>{4, 2});
  CHECK(mesh.axis_names() == std::vector<std::string>{"batch", "model"});
  CHECK(mesh.devices() == eight());
  CHECK(mesh == DeviceMesh({4, 2}, {"batch", "model"}, eight()));
  CHECK(refusal([] { DeviceMesh({}, {}, eight()); }).find("Shape and axis_names cannot be empty") !=
        std::string::npos);
  CHECK(refusal([] {
          DeviceMesh({8}, {}, eight());
        }).find("Shape and axis_names cannot be empty") != std::string::npos);
  CHECK(refusal([] {
          DeviceMesh({4, 2}, {"batch"}, eight());
        }).find("Shape and axis_names should have same size") != std::string::npos);
  CHECK(refusal([] {
          DeviceMesh({4, 4}, {"a", "b"}, eight());
        }).find("Shape does not match the number of devices") != std::string::npos);
  CHECK(refusal([] { DeviceMesh({4, 2}, {"a", "a"}, eight()); }).find("a") != std::string::npos);
  CHECK(refusal([] {
          DeviceMesh({2}, {"a"}, {"cpu:0", "cpu:0"});
        }).find("twice") != std::string::npos);
  CHECK(refusal([] { DeviceMesh({-4, -2}, {"a", "b"}, eight()); }).empty() == false);
}

TEST_CASE("a layout is checked when its mesh is attached, once") {
  const DeviceMesh mesh = four_by_two();
  const TensorLayout layout = TensorLayout::of({"data", nullptr}, mesh);
  CHECK(layout.axes() == std::vector<Axes>{{"data"}, {}});
  CHECK(*layout.device_mesh() == mesh);
  CHECK(refusal([&] {
          TensorLayout::of({"data", "unknown", nullptr}, mesh);
        }).find("Invalid axis names for Layout") != std::string::npos);
  TensorLayout late = TensorLayout::of({"model"});
  CHECK_FALSE(late.device_mesh().has_value());
  late.set_device_mesh(mesh);
  CHECK(*late.device_mesh() == mesh);
  CHECK(refusal([&] { late.set_device_mesh(mesh); }).find("Cannot override device mesh value") !=
        std::string::npos);
  TensorLayout wrong = TensorLayout::of({"modle"});
  refusal([&] { wrong.set_device_mesh(mesh); });
  CHECK_FALSE(wrong.device_mesh().has_value());
}

TEST_CASE("look-up: the exact key, then patterns, two matches are an error") {
  const LayoutMap map = docs_map();
  CHECK(map.size() == 5);
  CHECK(map.resolve("dense/kernel")->axes() == std::vector<Axes>{{}, {"model"}});
  CHECK(map.resolve("dense_2/kernel")->axes() == std::vector<Axes>{{}, {}});
  CHECK(refusal([&] {
          map.resolve("dense_2/bias");
        }).find("Path 'dense_2/bias' matches multiple layout") != std::string::npos);
  CHECK_FALSE(map.resolve("conv2d/kernel").has_value());
  CHECK(*map.resolve("dense/bias")->device_mesh() == four_by_two());
}

TEST_CASE("a map keeps its order, refuses doubles, and gives entries back") {
  LayoutMap map = docs_map();
  CHECK(refusal([&] {
          map.insert("dense/kernel", TensorLayout::of({nullptr}));
        }).find("dense/kernel already exist") != std::string::npos);
  CHECK(map.size() == 5);
  std::vector<std::string> keys;
  for (const auto& [key, layout] : map) keys.push_back(key);
  CHECK(keys.front() == "dense/kernel");
  CHECK(keys.back() == ".*bias");
  CHECK(map.pop("dense/kernel").axes() == std::vector<Axes>{{}, {"model"}});
  CHECK_FALSE(map.contains("dense/kernel"));
  CHECK(map.contains(".*bias"));
  refusal([&] { map.pop("dense/kernel"); });
  CHECK(refusal([&] { map.insert("dense(", TensorLayout::of({nullptr})); }).empty() == false);
}

TEST_CASE("scopes nest and restore") {
  const dist::Distribution one = dist::DataParallel(DeviceMesh({8}, {"one"}, eight()));
  const dist::Distribution two = dist::DataParallel(DeviceMesh({8}, {"two"}, eight()));
  CHECK_FALSE(dist::distribution().has_value());
  {
    const dist::Scope outer(one);
    CHECK(dist::distribution()->batch_dim_name() == "one");
    {
      const dist::Scope inner(two);
      CHECK(dist::distribution()->batch_dim_name() == "two");
    }
    CHECK(dist::distribution()->batch_dim_name() == "one");
  }
  CHECK_FALSE(dist::distribution().has_value());
}

TEST_CASE("DataParallel cuts the batch and nothing else") {
  const dist::Distribution data = dist::DataParallel(DeviceMesh({8}, {"data"}, eight()));
  CHECK(data.batch_dim_name() == "data");
  CHECK(data.num_model_replicas() == 8);
  CHECK(data.get_data_layout({4, 2, 2}).axes() == std::vector<Axes>{{"data"}, {}, {}});
  CHECK(data.get_variable_layout("any/kernel", {3}).axes() == std::vector<Axes>{{}});
  CHECK_FALSE(data.get_tensor_layout("any/output").has_value());
  CHECK(dist::DataParallel({}, eight()).batch_dim_name() == "batch");
  refusal([] { dist::DataParallel(DeviceMesh({8}, {"data"}, eight()), eight()); });
}

TEST_CASE("ModelParallel follows the map") {
  LayoutMap map(DeviceMesh({2, 4}, {"data", "model"}, eight()));
  map.insert(".*kernel", TensorLayout::of({nullptr, "model"}));
  map.insert(".*bias", TensorLayout::of({"model"}));
  const dist::Distribution model =
      dist::ModelParallel({.layout_map = map, .batch_dim_name = "data"});
  CHECK(model.get_variable_layout("d/kernel", {8, 4}).axes() == std::vector<Axes>{{}, {"model"}});
  CHECK(model.get_variable_layout("d/bias", {4}).axes() == std::vector<Axes>{{"model"}});
  CHECK(model.get_variable_layout("d/seed", {2}).axes() == std::vector<Axes>{{}});
  CHECK(model.get_data_layout({4, 2, 2}).axes() == std::vector<Axes>{{"data"}, {}, {}});
  CHECK(model.num_model_replicas() == 2);
  CHECK(dist::ModelParallel({.layout_map = LayoutMap(four_by_two())}).batch_dim_name() == "data");
  refusal([&] { dist::ModelParallel({.layout_map = map, .batch_dim_name = "dta"}); });
}

TEST_CASE("a distributed tensor is cut as its layout says, and gathers to itself") {
  const std::int64_t count = ranks();
  const std::int64_t columns = count % 2 == 0 ? 2 : 1;
  const DeviceMesh mesh({count / columns, columns}, {"batch", "model"});
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{8, 4}, {7, 3}, {1, 1}}) {
    std::vector<float> values(static_cast<std::size_t>(shape[0] * shape[1]));
    std::iota(values.begin(), values.end(), 0.0F);
    const Tensor whole = Tensor::from(values, shape);
    const Tensor cut = dist::distribute_tensor(whole, TensorLayout::of({"batch", "model"}, mesh));
    CHECK(cut.shape() == shape);
    CHECK(cut.to_host() == values);
    const std::vector<std::int64_t> local = cut.local_shape();
    const std::vector<std::int64_t> at = cut.offset();
    const std::vector<float> part = cut.local();
    REQUIRE(static_cast<std::int64_t>(part.size()) == local[0] * local[1]);
    for (std::int64_t i = 0; i < local[0]; ++i) {
      for (std::int64_t j = 0; j < local[1]; ++j) {
        CHECK(part[static_cast<std::size_t>(i * local[1] + j)] ==
              static_cast<float>((at[0] + i) * shape[1] + at[1] + j));
      }
    }
    // Both axes on one dimension, in either order.
    const Tensor nested =
        dist::distribute_tensor(cut, TensorLayout({{"model", "batch"}, {}}, mesh));
    CHECK(nested.to_host() == values);
  }
  const Tensor vector = Tensor::from(std::vector<float>{1, 2}, {2});
  CHECK(refusal([&] {
          dist::distribute_tensor(vector, TensorLayout::of({"batch"}));
        }).find("Cannot create sharding") != std::string::npos);
  refusal([] { Tensor::from(std::vector<float>{1, 2, 3}, {2}); });
}

TEST_CASE("weights keep their layout when they are loaded outside the scope") {
  const std::int64_t count = ranks();
  const std::int64_t columns = count % 2 == 0 ? 2 : 1;
  std::optional<Model> model;
  {
    LayoutMap map(DeviceMesh({count / columns, columns}, {"batch", "model"}));
    map.insert(".*kernel", TensorLayout::of({nullptr, "model"}));
    map.insert(".*bias", TensorLayout::of({"model"}));
    const dist::Scope scope(dist::ModelParallel({.layout_map = map}));
    set_random_seed(3);
    model = Sequential({InputLayer({16}), Dense({.units = 8, .name = "wide"})}, "net");
  }
  const std::vector<Variable> before = model->variables();
  REQUIRE(before.size() == 2);
  CHECK(before[0].path == "net/wide/kernel");
  CHECK(before[0].layout.axes() == std::vector<Axes>{{}, {"model"}});
  const std::string file = "/tmp/tessera_api_test_" + std::to_string(count) + ".safetensors";
  model->save_weights(file);
  model->load_weights(file);
  const std::vector<Variable> after = model->variables();
  CHECK(after[0].layout == before[0].layout);
  CHECK(after[0].value.to_host() == before[0].value.to_host());
}

TEST_CASE("initial weights are the same on every mesh") {
  set_random_seed(11);
  const Model whole = Sequential({InputLayer({6}), Dense({.units = 5, .name = "d"})}, "net");
  const std::int64_t count = ranks();
  LayoutMap map(DeviceMesh({1, count}, {"batch", "model"}));
  map.insert(".*kernel", TensorLayout::of({"model", nullptr}));
  const dist::Scope scope(dist::ModelParallel({.layout_map = map}));
  const Model cut = Sequential({InputLayer({6}), Dense({.units = 5, .name = "d"})}, "net");
  CHECK(cut.variables()[0].value.to_host() == whole.variables()[0].value.to_host());
}

TEST_CASE("fit, evaluate and predict give the same on every number of ranks") {
  set_random_seed(5);
  Model model = Sequential({InputLayer({3}), Dense({.units = 4, .activation = "tanh", .name = "a"}),
                            Dense({.units = 1, .name = "b"})},
                           "net");
  CHECK(refusal([&] {
          model.evaluate(Dataset::from(Tensor::from(std::vector<float>(6), {2, 3})));
        }).empty() == false);
  model.compile({.optimizer = "sgd", .loss = "mse", .metrics = {"mae"}});
  std::vector<float> x;
  std::vector<float> y;
  for (int i = 0; i < 22; ++i) {
    for (int j = 0; j < 3; ++j) x.push_back(static_cast<float>((i * 7 + j * 5) % 11) / 11.0F);
    y.push_back(static_cast<float>(i % 4));
  }
  const Dataset data = Dataset::from(Tensor::from(x, {22, 3}), Tensor::from(y, {22, 1}));
  const History history = model.fit(data, {.batch_size = 8, .epochs = 3, .verbose = 0});
  REQUIRE(history["loss"].size() == 3);
  // From one rank; other numbers of ranks differ by rounding alone.
  CHECK(history["loss"][2] < history["loss"][0]);
  const auto results = model.evaluate(data, {.batch_size = 8});
  CHECK(results.count("mae") == 1);
  const Tensor predicted = model.predict(Tensor::from(x, {22, 3}), 8);
  REQUIRE(predicted.shape() == std::vector<std::int64_t>{22, 1});
  double mae = 0.0;
  const std::vector<float> values = predicted.to_host();
  for (std::size_t i = 0; i < 22; ++i)
    mae += std::abs(static_cast<double>(values[i]) - y[i]) / 22.0;
  CHECK(results.at("mae") == Approx(mae).epsilon(1e-5));
}

TEST_CASE("the plan of a job of any size needs no job") {
  LayoutMap map(DeviceMesh({2, 4}, {"batch", "model"}, eight()));
  map.insert(".*a/kernel", TensorLayout::of({nullptr, "model"}));
  const dist::Scope scope(dist::ModelParallel({.layout_map = map}));
  Model model = Sequential({InputLayer({4}), Dense({.units = 8, .name = "a"})}, "net");
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const Dataset data = Dataset::from(Tensor::from(std::vector<float>(64), {16, 4}),
                                     Tensor::from(std::vector<float>(128), {16, 8}));
  CHECK(model.plan(data, 8, 3).json().find("\"tessera-plan\"") != std::string::npos);
  if (ranks() != 8) CHECK(refusal([&] { model.fit(data); }).find("8 devices") != std::string::npos);
}

}  // namespace
}  // namespace tessera
