// Keras's model methods: compile, fit, evaluate, predict, and what a run looks like before it
// starts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/tensor.h"

namespace tessera {

namespace json {
struct Value;
class Problems;
}  // namespace json

/// Something that Keras can serialise: a name ("adam"), or JSON text ({"class_name": ..., "config":
/// ...}, lists and maps of names).
class Object {
 public:
  Object() = default;  // absent
  Object(const char* name_or_json) : Object(std::string(name_or_json)) {}
  Object(std::string name_or_json);  // text that starts with { or [ is parsed; throws config
  Object(std::initializer_list<const char*> names);  // a list of names
  explicit Object(std::shared_ptr<const json::Value> value) : value_(std::move(value)) {}
  const json::Value* value() const { return value_.get(); }  // null: absent

 private:
  std::shared_ptr<const json::Value> value_;
};

class Model;

/// Arrays of samples, or files of them.
class Dataset {
 public:
  struct Arrays {
    std::vector<Tensor> x;       // in the order of the model's inputs
    std::vector<Tensor> y = {};  // in the order of its outputs
    std::vector<Tensor> sample_weight = {};
  };
  static Dataset from(Arrays arrays);
  static Dataset from(Tensor x, Tensor y);
  static Dataset from(Tensor x);
  /// What a config's data.train says: {"format": "npz", "path": ...}. Relative paths start at
  /// `folder`. Opened when first used.
  static Dataset from(Object section, std::filesystem::path folder = ".");

  /// Number of samples; opens what is described.
  std::int64_t rows(const Model& model) const;

  struct Data;  // defined inside the library
  const Data& data() const { return *data_; }

 private:
  explicit Dataset(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  std::shared_ptr<const Data> data_;
};

struct CompileOptions {
  Object optimizer = "rmsprop";
  Object loss = {};
  Object loss_weights = {};
  Object metrics = {};
  Object weighted_metrics = {};
};

/// Checkpoints of the whole training state, in <output_dir>/checkpoints.
struct CheckpointOptions {
  std::int64_t every_epochs = 0;  // 0: not by epochs
  std::int64_t every_steps = 0;   // 0: not by steps
  std::int64_t keep = 3;
};

struct FitOptions {
  std::int64_t batch_size = 0;  // global; 0: 32
  std::int64_t epochs = 1;
  int verbose = 1;
  std::vector<Object> callbacks = {};
  double validation_split = 0.0;
  std::optional<Dataset> validation_data = {};
  std::string shuffle = "true";  // "true", "false", "batch"
  std::map<std::int64_t, double> class_weight = {};
  std::int64_t initial_epoch = 0;
  std::optional<std::int64_t> steps_per_epoch = {};
  std::optional<std::int64_t> validation_steps = {};
  std::int64_t validation_batch_size = 0;  // 0: batch_size
  std::vector<std::int64_t> validation_freq =
      {};  // one number n: every n epochs; several: those epochs (from 1)
  /// Folder of run files (metrics.jsonl, history.json, plan.json, weights.safetensors); empty:
  /// none.
  std::filesystem::path output_dir = {};
  std::int64_t log_steps = 0;
  CheckpointOptions checkpoint = {};
  std::string resume = {};  // "auto": from the newest checkpoint in output_dir, or afresh; else
                            // that checkpoint's folder
  std::string config_text = {};  // written to output_dir/config.json where given
  bool append = false;           // go on with the files of an earlier run in output_dir
  bool terminal = false;         // verbose 1 may draw with control codes
};

struct EvaluateOptions {
  std::int64_t batch_size = 32;
  std::optional<std::int64_t> steps = {};
};

/// Values per epoch, by name; names in order of first appearance.
struct History {
  std::vector<std::int64_t> epochs;
  std::vector<std::pair<std::string, std::vector<double>>> history;
  const std::vector<double>& operator[](
      std::string_view name) const;  // throws config when there is none
};

struct Variable {
  std::string path;
  std::vector<std::int64_t> shape;
  DType dtype;
  bool trainable;
  distribution::TensorLayout layout;
  Tensor value;
};

/// The whole run before it starts, for one rank: layouts, collectives, bytes, memory.
class Plan {
 public:
  const std::string& json() const { return json_; }  // interface: format "tessera-plan", version 1
  const std::string& text() const { return text_; }
  Plan(std::string json, std::string text) : json_(std::move(json)), text_(std::move(text)) {}

 private:
  std::string json_;
  std::string text_;
};

/// A Keras model under the distribution that was set when it was made. Handles share one model.
class Model {
 public:
  static Model from_json(std::string_view json);         // what model.to_json() wrote
  static Model load(const std::filesystem::path& file);  // .json
  /// From parsed JSON with positions; problems are collected, nullopt when there are any.
  static std::optional<Model> read(const json::Value& value, const std::string& path,
                                   json::Problems& problems);

  const std::string& name() const;
  void compile(CompileOptions options);
  History fit(const Dataset& data, FitOptions options = {});
  std::map<std::string, double> evaluate(const Dataset& data, EvaluateOptions options = {});
  Tensor predict(const Tensor& x, std::int64_t batch_size = 32);
  std::vector<Tensor> predict(const Dataset& data, std::int64_t batch_size = 32);  // one per output
  /// .safetensors, or .npz with arrays named by path. `partial` takes what fits and returns a line
  /// for each tensor that does not.
  std::vector<std::string> load_weights(const std::filesystem::path& file, bool partial = false);
  void save_weights(const std::filesystem::path& file) const;  // .safetensors
  std::vector<Variable> variables() const;
  /// Of one training step; needs compile. `data` gives the types of targets. Rank: whose program.
  Plan plan(const Dataset& data, std::int64_t batch_size, int rank = 0) const;
  std::string summary() const;
  std::string to_json() const;

  struct Data;  // defined inside the library
  Data& data() const { return *data_; }

 private:
  explicit Model(std::shared_ptr<Data> data) : data_(std::move(data)) {}
  std::shared_ptr<Data> data_;
};

}  // namespace tessera
