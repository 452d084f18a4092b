// What a layer is: read from its Keras config, built for the types it first meets, called any
// number of times. No layer knows anything about ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/arguments.h"
#include "models/dtype_policy.h"
#include "models/weights.h"
#include "runtime/graph/builder.h"

namespace tessera::models {

using graph::SymbolicTensor;

/// A value with its Keras mask: boolean, shaped as the leading dimensions of the value; absent:
/// none.
struct MaskedTensor {
  SymbolicTensor value;
  SymbolicTensor mask;
};

/// One argument of a call: a tensor, a constant of the model's JSON, or a list of arguments
/// (`keys` names its items where it is a dictionary).
struct Argument {
  MaskedTensor tensor;
  const json::Value* constant = nullptr;
  std::vector<Argument> items;
  std::vector<std::string> keys;
};

struct CallArguments {
  std::vector<Argument> positional;
  std::vector<std::pair<std::string, Argument>> named;

  /// The named argument, or nullptr.
  const Argument* find(std::string_view name) const;
  /// All tensors of the first argument, in order. Throws config when there is none.
  std::vector<MaskedTensor> tensors() const;
};

/// Calls `visit` for every tensor in an argument.
void for_each_tensor(const Argument& argument,
                     const std::function<void(const MaskedTensor&)>& visit);

using PlaceFunction =
    std::function<std::optional<layouts::Placement>(const std::string& path, const Shape& shape)>;

class Layer;

/// One walk over a model that adds its nodes to a graph. The first walk also builds: `store` then
/// takes the weights, and problems are collected instead of thrown.
class Pass {
 public:
  struct Options {
    bool training = false;
    std::uint64_t seed = 0;
    const PlaceFunction* place = nullptr;  // nullptr: nothing is pinned
    WeightStore* store = nullptr;
    /// Variables of the weights; with a store, those of the store are used.
    const std::vector<graph::VariableId>* ids = nullptr;
  };
  Pass(graph::Builder& builder, const Options& options) : builder_(builder), options_(options) {}

  graph::Builder& builder() { return builder_; }
  bool training() const { return options_.training; }
  WeightStore* store() { return options_.store; }
  const PlaceFunction* place() const { return options_.place; }

  /// The weight as it is now (updates of this walk included), cast to `dtype`.
  SymbolicTensor weight(Weight weight, DType dtype);
  /// Sets the weight's value after the step.
  void update(Weight weight, SymbolicTensor value);
  void add_loss(SymbolicTensor loss) { losses_.push_back(loss); }
  const std::vector<SymbolicTensor>& losses() const { return losses_; }
  /// Key of a random stream of `layer`; every call of a shared layer has its own.
  std::uint64_t stream(const Layer& layer, std::optional<std::uint64_t> seed);
  /// Says that the whole numbers in `ids` must lie in 0..limit-1.
  void limit_ids(SymbolicTensor ids, std::int64_t limit);
  /// The smallest such limit of a value; 0 when there is none.
  std::int64_t limit_of(SymbolicTensor ids) const;
  /// Adds the assignments of all updates.
  void finish();

 private:
  graph::VariableId id_of(Weight weight) const;

  graph::Builder& builder_;
  Options options_;
  std::vector<SymbolicTensor> losses_;
  std::map<int, SymbolicTensor> updates_;  // by index of the weight
  std::map<const Layer*, int> random_calls_;
  std::map<graph::ValueId, std::int64_t> limits_;
};

/// What all layers have in common.
struct LayerInfo {
  std::string name;
  std::string class_name;
  std::string path;       // of its variables: "sequential/dense"
  std::string call_path;  // of its output: "inner/dense"
  DTypePolicy policy;
  bool trainable = true;              // its own flag and those of all models around it
  const json::Value* json = nullptr;  // the layer's object
  std::string json_path;
};

/// What a layer says about a weight besides its config.
struct WeightOptions {
  bool trainable = true;
  std::optional<DType> dtype;  // absent: the policy's
  train::FanAxes axes;
};

class Layer {
 public:
  explicit Layer(LayerInfo info) : info_(std::move(info)) {}
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  const LayerInfo& info() const { return info_; }
  const std::vector<Weight>& weights() const { return weights_; }
  /// Types of the outputs of the first call, with the batch size of the first walk.
  const std::vector<graph::ValueType>& output_types() const { return output_types_; }
  /// Whether a layout may name this layer's output: it has one, and is no plain operation.
  bool has_output_path() const { return names_outputs() && output_types_.size() == 1; }
  void set_activity_regularizer(std::function<SymbolicTensor(SymbolicTensor)> regularizer) {
    activity_regularizer_ = std::move(regularizer);
  }

  /// Casts floating arguments to the compute dtype, builds on the first walk, calls, and names and
  /// pins the output. Throws config where shapes do not fit.
  std::vector<MaskedTensor> operator()(Pass& pass, const CallArguments& arguments);

 protected:
  /// Declares weights. Called once, before the first `call`.
  virtual void build(const CallArguments& arguments, WeightStore& store);
  virtual std::vector<MaskedTensor> call(Pass& pass, const CallArguments& arguments) = 0;
  /// Layers cast their inputs; models and plain operations do not.
  virtual bool casts_inputs() const { return true; }
  /// Layers' outputs have paths; those of plain operations do not.
  virtual bool names_outputs() const { return true; }

  Weight add_weight(WeightStore& store, std::string_view name, const Shape& shape,
                    const WeightConfig& config, const WeightOptions& options = {});
  DType compute_dtype() const { return info_.policy.compute; }
  /// float32, or float64 where that is computed in: for statistics.
  DType wide_dtype() const {
    return compute_dtype() == DType::float64 ? DType::float64 : DType::float32;
  }
  [[noreturn]] void fail(const std::string& message) const;

 private:
  void finish_output(Pass& pass, MaskedTensor& output, const CallArguments& arguments);

  LayerInfo info_;
  bool built_ = false;
  std::vector<Weight> weights_;
  std::vector<graph::ValueType> output_types_;
  std::function<SymbolicTensor(SymbolicTensor)> activity_regularizer_;
};

/// What happens to the mask of a layer's input.
enum class MaskRule : std::uint8_t { keep, drop };

/// A layer of one tensor.
class TensorLayer : public Layer {
 public:
  TensorLayer(LayerInfo info, MaskRule rule) : Layer(std::move(info)), rule_(rule) {}

 protected:
  /// `mask`: the call's "mask" argument, else that of the input; may be absent.
  virtual SymbolicTensor call(Pass& pass, SymbolicTensor x, SymbolicTensor mask) = 0;
  virtual void build(const Shape& /*input*/, WeightStore& /*store*/) {}

 private:
  void build(const CallArguments& arguments, WeightStore& store) final;
  std::vector<MaskedTensor> call(Pass& pass, const CallArguments& arguments) final;

  MaskRule rule_;
};

/// A layer without weights whose output is a formula of its input.
class FunctionLayer : public TensorLayer {
 public:
  using Function = std::function<SymbolicTensor(SymbolicTensor)>;
  FunctionLayer(LayerInfo info, MaskRule rule, Function function)
      : TensorLayer(std::move(info), rule), function_(std::move(function)) {}

 protected:
  SymbolicTensor call(Pass& /*pass*/, SymbolicTensor x, SymbolicTensor /*mask*/) override {
    return function_ ? function_(x) : x;
  }

 private:
  Function function_;
};

/// Largest size of one dimension that a config may ask for: products of a few of them still fit.
inline constexpr std::int64_t kMaxSize = (std::int64_t{1} << 31) - 1;

/// `dim` counted from the front. Throws config with the layer's words when it is out of range.
std::size_t positive_dim(std::int64_t dim, std::size_t rank, std::string_view what);

/// The same for a list, in its order. Throws also where a dimension is named twice or none is.
std::vector<int> positive_dims(const std::vector<std::int64_t>& dims, std::size_t rank,
                               std::string_view what);

}  // namespace tessera::models
