// keras.distribution in C++: devices, meshes, layouts, layout maps, distributions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tessera {

/// Seeds everything: initial weights, dropout, the order of samples (keras.utils.set_random_seed).
/// Default 0. Of this thread.
void set_random_seed(std::uint64_t seed);
std::uint64_t random_seed();
/// Policy of layers that name none: "float32", "bfloat16", "mixed_bfloat16", "mixed_float16"
/// (keras.config.set_dtype_policy). Of this thread. Throws config for an unknown name.
void set_dtype_policy(std::string_view name);
const std::string& dtype_policy();

class Tensor;

namespace distribution {

/// Joins the job that mpirun or srun started; done implicitly by first use. Each argument that is
/// absent is taken from KERAS_DISTRIBUTION_JOB_ADDRESSES, _NUM_PROCESSES and _PROCESS_ID where
/// these are set. Counts are checked against the job's own size and rank. Throws config: a count
/// that is no number, `has <n> jobs, but num_processes is <m>`, a mismatch with the job.
void initialize(std::optional<std::string> job_addresses = {},
                std::optional<int> num_processes = {}, std::optional<int> process_id = {});

/// "cpu:0", "cpu:1", ...: one per rank, in rank order, the same on every rank. Empty type: GPUs
/// where ranks have them, else CPUs. An unknown type throws config; a type that the job has not
/// gives an empty list.
std::vector<std::string> list_devices(std::string_view device_type = "");
std::size_t get_device_count(std::string_view device_type = "");

/// Devices arranged along named axes; ranks fill it in row-major order. Cheap to copy; equal by
/// value.
class DeviceMesh {
 public:
  /// Throws config with Keras's leading words: `Shape and axis_names cannot be empty`, `Shape and
  /// axis_names should have same size`, `Shape does not match the number of devices`; repeated axis
  /// names or devices, sizes below 1.
  DeviceMesh(std::vector<std::int64_t> shape, std::vector<std::string> axis_names,
             std::vector<std::string> devices = list_devices());

  const std::vector<std::int64_t>& shape() const;
  const std::vector<std::string>& axis_names() const;
  const std::vector<std::string>& devices() const;  // row-major
  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b);

 private:
  struct Data;
  std::shared_ptr<const Data> data_;
};

/// Axes of one dimension, outer first; empty: not split.
using Axes = std::vector<std::string>;

/// How the dimensions of a tensor are split over a mesh. Dimensions beyond the list are whole.
class TensorLayout {
 public:
  /// Throws config when a mesh is given and an axis is not one of it (`Invalid axis names for
  /// Layout`) or is named twice.
  TensorLayout(std::vector<Axes> axes, std::optional<DeviceMesh> device_mesh = {});
  /// One axis or nullptr per dimension: TensorLayout::of({"model", nullptr}).
  static TensorLayout of(std::initializer_list<const char*> axes,
                         std::optional<DeviceMesh> device_mesh = {});

  const std::vector<Axes>& axes() const { return axes_; }
  const std::optional<DeviceMesh>& device_mesh() const { return mesh_; }
  /// Once (`Cannot override device mesh value`); a failed check leaves it unset.
  void set_device_mesh(DeviceMesh mesh);
  friend bool operator==(const TensorLayout& a, const TensorLayout& b) = default;

 private:
  std::vector<Axes> axes_;
  std::optional<DeviceMesh> mesh_;
};

enum class Match { fullmatch, search, first };

/// An ordered map from variable paths, or patterns of them, to layouts.
class LayoutMap {
 public:
  using Entry = std::pair<std::string, TensorLayout>;

  explicit LayoutMap(DeviceMesh mesh, Match match = Match::fullmatch);
  /// Throws config: `<key> already exist in the LayoutMap`, a pattern that does not compile, axes
  /// that the mesh has not. The map's mesh is attached to a layout that has none.
  void insert(std::string key, TensorLayout layout);
  /// The exact key, else the pattern that matches; nullopt when none does. Throws config when
  /// several match (`Path '<k>' matches multiple layout specification keys`).
  std::optional<TensorLayout> resolve(std::string_view path) const;
  bool contains(std::string_view key) const;  // literal keys
  TensorLayout pop(std::string_view key);     // literal key, or throws config
  std::size_t size() const;
  const DeviceMesh& device_mesh() const;
  Match match() const;
  std::vector<Entry>::const_iterator begin() const;  // in order of insertion
  std::vector<Entry>::const_iterator end() const;

 private:
  struct Data;
  std::shared_ptr<Data> data_;
};

struct Zero {
  int stage = 0;     // 1: optimizer state, 2: gradients too, 3: parameters too
  std::string axis;  // empty: the batch axis
};

/// How data and variables of a model are split.
class Distribution {
 public:
  const DeviceMesh& device_mesh() const;
  const std::string& batch_dim_name() const;
  int num_processes() const;
  int process_id() const;
  std::int64_t num_model_replicas() const;
  std::int64_t data_shard_id() const;
  TensorLayout get_data_layout(const std::vector<std::int64_t>& shape) const;
  TensorLayout get_variable_layout(std::string_view path,
                                   const std::vector<std::int64_t>& shape) const;
  std::optional<TensorLayout> get_tensor_layout(std::string_view path) const;

  struct Data;  // defined inside the library
  explicit Distribution(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  const Data& data() const { return *data_; }

 private:
  std::shared_ptr<const Data> data_;
};

/// Every variable whole on every device, the batch split over the mesh's first axis. `devices`
/// makes a mesh of one axis "batch"; giving both throws config.
Distribution DataParallel(std::optional<DeviceMesh> device_mesh = {},
                          std::vector<std::string> devices = {}, Zero zero = {});

struct ModelParallelOptions {
  LayoutMap layout_map;
  std::optional<std::string> batch_dim_name = {};  // default: the mesh's first axis
  bool allow_unused_rules = false;
  bool require_divisible = false;
  Zero zero = {};
};
Distribution ModelParallel(ModelParallelOptions options);

/// The distribution under which models are made; none: DataParallel over all devices. Of this
/// thread.
void set_distribution(std::optional<Distribution> value);
std::optional<Distribution> distribution();
/// Sets a distribution and restores the former one when it ends.
class Scope {
 public:
  explicit Scope(Distribution value);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::optional<Distribution> former_;
};

/// Every rank passes the same whole tensor, or a tensor in another layout of the same mesh; the
/// result is one global tensor in `layout`. A layout without mesh throws config (`Cannot create
/// sharding when device mesh is not set`).
Tensor distribute_tensor(const Tensor& tensor, const TensorLayout& layout);

}  // namespace distribution
}  // namespace tessera
