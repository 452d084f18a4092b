#include "api/distribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>

#include "api/distribution_data.h"
#include "api/job.h"

namespace tessera {
namespace {

thread_local std::uint64_t seed_of_thread = 0;
thread_local std::string policy_of_thread = "float32";

[[noreturn]] void refuse(const std::string& message) { throw Error(Error::Kind::config, message); }

}  // namespace

void set_random_seed(std::uint64_t seed) { seed_of_thread = seed; }
std::uint64_t random_seed() { return seed_of_thread; }

void set_dtype_policy(std::string_view name) {
  static const std::vector<std::string> kPolicies{"float32", "bfloat16", "mixed_bfloat16",
                                                  "mixed_float16"};
  if (std::find(kPolicies.begin(), kPolicies.end(), name) == kPolicies.end()) {
    refuse(fmt::format("unknown dtype policy \"{}\"{}; there are \"{}\"", name,
                       json::did_you_mean(name, kPolicies), fmt::join(kPolicies, "\", \"")));
  }
  policy_of_thread = name;
}
const std::string& dtype_policy() { return policy_of_thread; }

namespace distribution {
namespace {

thread_local std::optional<Distribution> distribution_of_thread;

std::optional<std::string> from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

/// An absent argument is read from the environment; an empty or odd text is an error there.
std::optional<int> count_of(std::optional<int> argument, const char* name) {
  if (argument) return argument;
  const std::optional<std::string> text = from_environment(name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || text->empty()) {
    refuse(fmt::format("{} is \"{}\": expected an integer", name, *text));
  }
  return value;
}

layouts::LayoutAxes to_names(const std::vector<Axes>& axes) { return axes; }

layouts::Match to_match(Match match) {
  switch (match) {
    case Match::search:
      return layouts::Match::search;
    case Match::first:
      return layouts::Match::first;
    case Match::fullmatch:
      break;
  }
  return layouts::Match::fullmatch;
}

void check_axes(const std::vector<Axes>& axes, const DeviceMesh& mesh) {
  const std::vector<std::string> faults = layouts::axis_faults(axes, mesh_of(mesh));
  if (!faults.empty())
    refuse(fmt::format("Invalid axis names for Layout: {}", fmt::join(faults, "; ")));
}

layouts::Zero to_zero(const Zero& zero, const layouts::Mesh& mesh, int batch_axis) {
  if (zero.stage < 0 || zero.stage > 3)
    refuse(fmt::format("ZeRO stage {} is not 0, 1, 2 or 3", zero.stage));
  if (zero.axis.empty()) return {zero.stage, batch_axis};
  const auto axis = mesh.find_axis(zero.axis);
  if (!axis)
    refuse(fmt::format("ZeRO axis \"{}\" is no axis of the mesh{}", zero.axis,
                       json::did_you_mean(zero.axis, mesh.axis_names())));
  return {zero.stage, *axis};
}

}  // namespace

void initialize(std::optional<std::string> job_addresses, std::optional<int> num_processes,
                std::optional<int> process_id) {
  if (!job_addresses) job_addresses = from_environment("KERAS_DISTRIBUTION_JOB_ADDRESSES");
  num_processes = count_of(num_processes, "KERAS_DISTRIBUTION_NUM_PROCESSES");
  process_id = count_of(process_id, "KERAS_DISTRIBUTION_PROCESS_ID");
  if (job_addresses && num_processes && job_addresses->find(',') != std::string::npos) {
    const auto jobs = 1 + std::count(job_addresses->begin(), job_addresses->end(), ',');
    if (jobs != *num_processes) {
      refuse(fmt::format("The provided job addresses {} has {} jobs, but num_processes is {}",
                         *job_addresses, jobs, *num_processes));
    }
  }
  const comm::World& world = job();
  if (num_processes && *num_processes != world.size()) {
    refuse(fmt::format("num_processes is {}, but the job was started with {} ranks", *num_processes,
                       world.size()));
  }
  if (process_id && *process_id != world.rank()) {
    refuse(
        fmt::format("process_id is {}, but this is rank {} of the job", *process_id, world.rank()));
  }
}

std::vector<std::string> list_devices(std::string_view device_type) {
  std::string type(device_type);
  std::transform(type.begin(), type.end(), type.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (!type.empty() && type != "cpu" && type != "gpu" && type != "cuda" && type != "tpu") {
    refuse(fmt::format("unknown device type \"{}\"; there are \"cpu\" and \"gpu\"", device_type));
  }
  std::vector<std::string> devices;
  if (type.empty() || type == "cpu") {
    for (int rank = 0; rank < job().size(); ++rank) devices.push_back(fmt::format("cpu:{}", rank));
  }
  return devices;
}

std::size_t get_device_count(std::string_view device_type) {
  return list_devices(device_type).size();
}

struct DeviceMesh::Data {
  layouts::Mesh mesh;
  std::vector<std::string> devices;
};

DeviceMesh::DeviceMesh(std::vector<std::int64_t> shape, std::vector<std::string> axis_names,
                       std::vector<std::string> devices) {
  layouts::Mesh mesh(std::move(shape), std::move(axis_names));
  if (static_cast<std::size_t>(mesh.size()) != devices.size()) {
    refuse(fmt::format(
        "Shape does not match the number of devices: [{}] has {} positions, there are {} devices",
        fmt::join(mesh.shape(), ", "), mesh.size(), devices.size()));
  }
  if (std::set<std::string>(devices.begin(), devices.end()).size() != devices.size())
    refuse("a device stands twice in the mesh");
  data_ = std::make_shared<Data>(Data{std::move(mesh), std::move(devices)});
}

const std::vector<std::int64_t>& DeviceMesh::shape() const { return data_->mesh.shape(); }
const std::vector<std::string>& DeviceMesh::axis_names() const { return data_->mesh.axis_names(); }
const std::vector<std::string>& DeviceMesh::devices() const { return data_->devices; }

bool operator==(const DeviceMesh& a, const DeviceMesh& b) {
  return a.data_->mesh == b.data_->mesh && a.data_->devices == b.data_->devices;
}

layouts::Mesh mesh_of(const DeviceMesh& mesh) {
  return layouts::Mesh(mesh.shape(), mesh.axis_names());
}

TensorLayout::TensorLayout(std::vector<Axes> axes, std::optional<DeviceMesh> device_mesh)
    : axes_(std::move(axes)) {
  if (device_mesh) set_device_mesh(std::move(*device_mesh));
}

TensorLayout TensorLayout::of(std::initializer_list<const char*> axes,
                              std::optional<DeviceMesh> device_mesh) {
  std::vector<Axes> list;
  for (const char* axis : axes) list.push_back(axis == nullptr ? Axes{} : Axes{axis});
  return {std::move(list), std::move(device_mesh)};
}

void TensorLayout::set_device_mesh(DeviceMesh mesh) {
  if (mesh_) refuse("Cannot override device mesh value: the layout has one already");
  check_axes(axes_, mesh);
  mesh_ = std::move(mesh);
}

struct LayoutMap::Data {
  DeviceMesh mesh;
  layouts::LayoutMap map;
  std::vector<Entry> entries;
};

LayoutMap::LayoutMap(DeviceMesh mesh, Match match)
    : data_(std::make_shared<Data>(
          Data{mesh, layouts::LayoutMap(mesh_of(mesh), to_match(match)), {}})) {}

void LayoutMap::insert(std::string key, TensorLayout layout) {
  if (!layout.device_mesh()) {
    if (!data_->map.contains(key)) layout.set_device_mesh(data_->mesh);
  }
  data_->map.insert(key, to_names(layout.axes()));
  data_->entries.emplace_back(std::move(key), std::move(layout));
}

std::optional<TensorLayout> LayoutMap::resolve(std::string_view path) const {
  const auto rule = data_->map.resolve(path);
  if (!rule) return std::nullopt;
  return data_->entries[*rule].second;
}

bool LayoutMap::contains(std::string_view key) const { return data_->map.contains(key); }

TensorLayout LayoutMap::pop(std::string_view key) {
  data_->map.pop(key);
  const auto found = std::find_if(data_->entries.begin(), data_->entries.end(),
                                  [key](const Entry& entry) { return entry.first == key; });
  TensorLayout layout = found->second;
  data_->entries.erase(found);
  return layout;
}

std::size_t LayoutMap::size() const { return data_->entries.size(); }
const DeviceMesh& LayoutMap::device_mesh() const { return data_->mesh; }
Match LayoutMap::match() const {
  switch (data_->map.match()) {
    case layouts::Match::search:
      return Match::search;
    case layouts::Match::first:
      return Match::first;
    case layouts::Match::fullmatch:
      break;
  }
  return Match::fullmatch;
}
std::vector<LayoutMap::Entry>::const_iterator LayoutMap::begin() const {
  return data_->entries.begin();
}
std::vector<LayoutMap::Entry>::const_iterator LayoutMap::end() const {
  return data_->entries.end();
}

TensorLayout layout_of(const layouts::Placement& placement, const DeviceMesh& mesh) {
  return {layouts::axes_of(placement, mesh_of(mesh)), mesh};
}

layouts::Placement placement_of(const TensorLayout& layout, std::size_t rank) {
  if (!layout.device_mesh()) refuse("Cannot create sharding when device mesh is not set");
  if (layout.axes().size() > rank) {
    refuse(fmt::format("a layout of {} dimensions does not fit a tensor of {}",
                       layout.axes().size(), rank));
  }
  return layouts::placement_of(layout.axes(), rank, mesh_of(*layout.device_mesh()));
}

const DeviceMesh& Distribution::device_mesh() const { return data_->mesh; }
const std::string& Distribution::batch_dim_name() const { return data_->value.batch_axis_name(); }
int Distribution::num_processes() const { return job().size(); }
int Distribution::process_id() const { return job().rank(); }
std::int64_t Distribution::num_model_replicas() const { return data_->value.replicas(); }

std::int64_t Distribution::data_shard_id() const {
  const std::int64_t replicas = num_model_replicas();
  const std::int64_t processes = num_processes();
  return replicas >= processes ? process_id() : process_id() / (processes / replicas);
}

TensorLayout Distribution::get_data_layout(const std::vector<std::int64_t>& shape) const {
  return layout_of(data_->value.data_placement(Shape(shape)), data_->mesh);
}

TensorLayout Distribution::get_variable_layout(std::string_view path,
                                               const std::vector<std::int64_t>& shape) const {
  return layout_of(data_->value.variable_placement(path, Shape(shape)), data_->mesh);
}

std::optional<TensorLayout> Distribution::get_tensor_layout(std::string_view path) const {
  if (data_->value.is_data_parallel()) return std::nullopt;
  const layouts::LayoutMap& map = data_->value.map();
  const auto rule = map.resolve_output(path);
  if (!rule) return std::nullopt;
  return TensorLayout(map.rules()[*rule].axes, data_->mesh);
}

Distribution DataParallel(std::optional<DeviceMesh> device_mesh, std::vector<std::string> devices,
                          Zero zero) {
  if (device_mesh && !devices.empty())
    refuse("DataParallel takes device_mesh or devices, not both");
  if (!device_mesh) {
    if (devices.empty()) devices = list_devices();
    const auto count = static_cast<std::int64_t>(devices.size());
    device_mesh.emplace(std::vector<std::int64_t>{count}, std::vector<std::string>{"batch"},
                        std::move(devices));
  }
  const layouts::Mesh mesh = mesh_of(*device_mesh);
  return Distribution(std::make_shared<Distribution::Data>(Distribution::Data{
      layouts::Distribution::data_parallel(mesh, to_zero(zero, mesh, 0)), *device_mesh}));
}

Distribution ModelParallel(ModelParallelOptions options) {
  const DeviceMesh& device_mesh = options.layout_map.device_mesh();
  const layouts::Mesh mesh = mesh_of(device_mesh);
  layouts::LayoutMap map(mesh, to_match(options.layout_map.match()));
  for (const auto& [key, layout] : options.layout_map) map.insert(key, to_names(layout.axes()));
  const int batch_axis =
      options.batch_dim_name ? mesh.find_axis(*options.batch_dim_name).value_or(0) : 0;
  layouts::Distribution value = layouts::Distribution::model_parallel(
      std::move(map), options.batch_dim_name.value_or(""), to_zero(options.zero, mesh, batch_axis));
  value.allow_unused_rules = options.allow_unused_rules;
  value.require_divisible = options.require_divisible;
  return Distribution(
      std::make_shared<Distribution::Data>(Distribution::Data{std::move(value), device_mesh}));
}

std::optional<Distribution> read_distribution(const json::Value* section, const std::string& path,
                                              int ranks, const std::string& folder,
                                              json::Problems& problems) {
  const std::size_t before = problems.list().size();
  layouts::Distribution value = layouts::read_distribution(section, path, ranks, folder, problems);
  if (problems.list().size() != before) return std::nullopt;
  std::vector<std::string> devices;
  for (int rank = 0; rank < ranks; ++rank) devices.push_back(fmt::format("cpu:{}", rank));
  DeviceMesh mesh(value.mesh().shape(), value.mesh().axis_names(), std::move(devices));
  return Distribution(
      std::make_shared<Distribution::Data>(Distribution::Data{std::move(value), std::move(mesh)}));
}

void set_distribution(std::optional<Distribution> value) {
  distribution_of_thread = std::move(value);
}
std::optional<Distribution> distribution() { return distribution_of_thread; }
Distribution current() { return distribution_of_thread ? *distribution_of_thread : DataParallel(); }

Scope::Scope(Distribution value) : former_(distribution()) { set_distribution(std::move(value)); }
Scope::~Scope() { set_distribution(std::move(former_)); }

}  // namespace distribution
}  // namespace tessera
