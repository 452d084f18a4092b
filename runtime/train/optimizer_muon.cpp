// Muon: orthogonalised momentum for matrices, AdamW for everything else.
#include <cmath>

#include "base/error.h"
#include "layouts/pattern.h"
#include "runtime/ops/ops.h"
#include "runtime/train/optimizer_families.h"

namespace tessera::train {
namespace {

using ops::operator+;
using ops::operator-;
using ops::operator*;
using ops::operator/;

class Muon final : public OptimizerBase {
 public:
  explicit Muon(json::Arguments& arguments)
      : OptimizerBase(arguments, {.name = "muon", .learning_rate = 0.001, .weight_decay = 0.004}),
        adam_beta_1_(arguments.number("adam_beta_1", 0.9)),
        adam_beta_2_(arguments.number("adam_beta_2", 0.999)),
        adam_rate_(arguments.number("adam_lr_ratio", 1.0)),
        adam_decay_(optional_with_default(arguments, "adam_weight_decay", 0.004)),
        epsilon_(arguments.number("epsilon", 1e-7)),
        momentum_(arguments.number("momentum", 0.95)),
        nesterov_(arguments.boolean("nesterov", true)),
        iterations_(arguments.integer("ns_steps", 5, 0, 1000)),
        a_(arguments.number("muon_a", 3.4445)),
        b_(arguments.number("muon_b", -4.775)),
        c_(arguments.number("muon_c", 2.0315)),
        rms_rate_(optional_with_default(arguments, "rms_rate", 0.2)),
        exclude_embeddings_(arguments.boolean("exclude_embeddings", true)) {
    for (const std::string& text :
         arguments.texts("exclude_layers").value_or(std::vector<std::string>{})) {
      try {
        excluded_.emplace_back(text);
      } catch (const Error& error) {
        arguments.problem(*arguments.object().find("exclude_layers"), "exclude_layers",
                          error.what());
      }
    }
  }

 protected:
  void declare_slots(graph::VariableTable& table, std::span<const VariableId> trainable) override {
    for (const VariableId variable : trainable) {
      momentums_.set(variable, add_slot(table, variable, "momentum"));
      if (is_for_adam(table[variable])) {
        velocities_.set(variable, add_slot(table, variable, "velocity"));
      }
    }
  }

  std::optional<double> weight_decay_of(const graph::Variable& variable) const override {
    return is_for_adam(variable) ? adam_decay_ : OptimizerBase::weight_decay_of(variable);
  }

  void update_variable(Updates& updates, const StepScalars& step, VariableId variable,
                       SymbolicTensor gradient) const override {
    if (velocities_.has(variable)) {
      adam_step(updates, step, variable, gradient);
    } else {
      muon_step(updates, step, variable, gradient);
    }
  }

 private:
  static std::optional<double> optional_with_default(json::Arguments& arguments,
                                                     std::string_view key, double fallback) {
    const json::Value* value = arguments.value(key);
    if (value == nullptr) return fallback;
    return arguments.optional_number(key);
  }

  bool is_for_adam(const graph::Variable& variable) const {
    if (variable.shape.rank() != 2) return true;
    std::string lower = variable.path;
    for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (exclude_embeddings_ && lower.find("embedding") != std::string::npos) return true;
    for (const layouts::Pattern& pattern : excluded_) {
      if (pattern.matches_part_of(variable.path)) return true;
    }
    return false;
  }

  void adam_step(Updates& updates, const StepScalars& step, VariableId variable,
                 SymbolicTensor gradient) const {
    const SymbolicTensor value = updates.read(variable);
    const DType dtype = value.dtype();
    const SymbolicTensor rate = step.learning_rate(dtype) * adam_rate_ *
                                ops::sqrt(1.0 - step.power(adam_beta_2_, dtype)) /
                                (1.0 - step.power(adam_beta_1_, dtype));
    const SymbolicTensor old_m = updates.read(momentums_[variable]);
    const SymbolicTensor old_v = updates.read(velocities_[variable]);
    const SymbolicTensor m = old_m + (gradient - old_m) * (1.0 - adam_beta_1_);
    const SymbolicTensor v = old_v + (ops::square(gradient) - old_v) * (1.0 - adam_beta_2_);
    updates.write(momentums_[variable], m);
    updates.write(velocities_[variable], v);
    updates.write(variable, value - m * rate / (ops::sqrt(v) + epsilon_));
  }

  void muon_step(Updates& updates, const StepScalars& step, VariableId variable,
                 SymbolicTensor gradient) const {
    const SymbolicTensor value = updates.read(variable);
    const SymbolicTensor m = updates.read(momentums_[variable]) * momentum_ + gradient;
    updates.write(momentums_[variable], m);
    const SymbolicTensor direction = nesterov_ ? gradient + momentum_ * m : m;
    SymbolicTensor move =
        step.learning_rate(value.dtype()) * orthogonalised(updates.builder(), direction);
    if (rms_rate_) {
      const auto larger = static_cast<double>(std::max(value.shape()[0], value.shape()[1]));
      move = move * (std::sqrt(larger) * *rms_rate_);
    }
    updates.write(variable, value - move);
  }

  /// Newton-Schulz iteration towards the nearest orthogonal matrix.
  SymbolicTensor orthogonalised(graph::Builder& builder, SymbolicTensor matrix) const {
    const bool tall = matrix.shape()[0] > matrix.shape()[1];
    SymbolicTensor x = tall ? ops::transpose(matrix, {1, 0}) : matrix * 1.0;
    // The products need the whole matrix: gathered once here, instead of a sum over ranks in each.
    builder.pin(x, layouts::Placement::replicated(2));
    x = x / (ops::sqrt(ops::sum(ops::square(x))) + 1e-7);
    for (std::int64_t i = 0; i < iterations_; ++i) {
      const SymbolicTensor square = ops::einsum("mk,nk->mn", x, x);
      const SymbolicTensor polynomial = b_ * square + c_ * ops::einsum("mk,kn->mn", square, square);
      x = a_ * x + ops::einsum("mk,kn->mn", polynomial, x);
    }
    return tall ? ops::transpose(x, {1, 0}) : x;
  }

  double adam_beta_1_;
  double adam_beta_2_;
  double adam_rate_;
  std::optional<double> adam_decay_;
  double epsilon_;
  double momentum_;
  bool nesterov_;
  std::int64_t iterations_;
  double a_;
  double b_;
  double c_;
  std::optional<double> rms_rate_;
  bool exclude_embeddings_;
  std::vector<layouts::Pattern> excluded_;
  Slots momentums_;
  Slots velocities_;
};

}  // namespace

std::unique_ptr<OptimizerBase> make_muon(json::Arguments& config) {
  return std::make_unique<Muon>(config);
}

}  // namespace tessera::train
