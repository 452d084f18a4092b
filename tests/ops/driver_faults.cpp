// The driver finds what it is there to find: ops that are wrong in one way each.
#include <array>
#include <cstring>

#include "base/error.h"
#include "tests/ops/values.h"

namespace tessera::testing {
namespace {

using graph::GradientCall;
using graph::Kernel;
using graph::kNoValue;
using graph::LocalCall;
using graph::Rule;
using graph::StepState;
using graph::ValueId;
using graph::ValueType;

enum class Fault {
  none,
  cuts_what_must_be_whole,  // the rule lets the summed dimension be cut and forgets that parts add
                            // up
  squares_pending_sums,     // says that it is linear, but squares
  writes_too_much,
  leaves_a_hole,
  changes_its_operand,
  uses_too_much_workspace,
  spoils_in_place,
  wrong_gradient,
  no_gradient,
  wrong_term,
};

/// y[r, c] = x[r, c]^2 (the sum of the row for cuts_what_must_be_whole), float32 or float64.
class Faulty final : public graph::Op {
 public:
  explicit Faulty(Fault fault) : fault_(fault) {}

  std::string_view name() const override { return "faulty"; }
  std::string attributes() const override { return std::to_string(static_cast<int>(fault_)); }

  std::vector<ValueType> infer(std::span<const ValueType> inputs) const override {
    return {inputs[0]};
  }

  Rule rule(std::span<const ValueType> /*inputs*/,
            std::span<const ValueType> /*outputs*/) const override {
    if (fault_ == Fault::squares_pending_sums) return graph::parse_rule("rc->rc", {0b1});
    if (fault_ == Fault::wrong_term) return graph::parse_rule("rc->r");
    return graph::parse_rule("rc->rc");
  }

  std::vector<ValueId> gradient(const GradientCall& call) const override {
    using ops::operator*;
    if (fault_ == Fault::no_gradient) return {kNoValue};
    const SymbolicTensor x = call.builder.wrap(call.inputs[0]);
    const SymbolicTensor dy = call.builder.wrap(call.output_gradients[0]);
    return {(dy * x * (fault_ == Fault::wrong_gradient ? 2.001 : 2.0)).id};
  }

  std::int64_t workspace_bytes(const LocalCall& /*call*/) const override { return 8; }

  bool may_overwrite(std::size_t /*output*/, std::size_t /*input*/) const override {
    return fault_ == Fault::none || fault_ == Fault::spoils_in_place;
  }

  Kernel prepare(const LocalCall& call, const kernels::Device& /*device*/) const override {
    const std::int64_t elements = call.outputs[0].box.elements();
    const bool wide = call.outputs[0].dtype == DType::float64;
    const std::int64_t columns = call.outputs[0].shape().back();
    return
        [fault = fault_, elements, columns, wide](const void* const* inputs, void* const* outputs,
                                                  void* workspace, const StepState& /*step*/) {
          if (wide) {
            run<double>(fault, elements, columns, inputs[0], outputs[0], workspace);
          } else {
            run<float>(fault, elements, columns, inputs[0], outputs[0], workspace);
          }
        };
  }

 private:
  template <typename T>
  static void run(Fault fault, std::int64_t elements, std::int64_t columns, const void* input,
                  void* output, void* workspace) {
    const auto* x = static_cast<const T*>(input);
    auto* y = static_cast<T*>(output);
    if (fault == Fault::spoils_in_place && elements > 0) y[elements - 1] = T{0};
    for (std::int64_t i = 0; i < elements; ++i) {
      if (fault == Fault::leaves_a_hole && i == elements - 1) break;
      if (fault == Fault::cuts_what_must_be_whole) {
        T sum = 0;
        for (std::int64_t c = 0; c < columns; ++c) sum += x[i / columns * columns + c];
        y[i] = sum;
      } else {
        y[i] = x[i] * x[i];
      }
    }
    if (elements == 0) return;
    if (fault == Fault::writes_too_much) y[elements] = T{1};
    if (fault == Fault::changes_its_operand) const_cast<T*>(x)[0] += T{1};
    if (fault == Fault::uses_too_much_workspace) std::memset(workspace, 0, 9);
  }

  Fault fault_;
};

std::string found(Fault fault, bool check_gradient) {
  Options options;
  options.gradient = check_gradient;
  options.backward = check_gradient;
  return problem_of(
      {{real({6, 4})}},
      [fault](Builder& builder, const Tensors& x) {
        return builder.add(std::make_shared<Faulty>(fault), x);
      },
      options);
}

TEST_CASE("the driver finds faulty kernels and rules") {
  using Catch::Contains;
  CHECK(found(Fault::none, true).empty());
  CHECK_THAT(found(Fault::cuts_what_must_be_whole, false), Contains("mesh [2]: result 0"));
  CHECK_THAT(found(Fault::squares_pending_sums, false), Contains("pending over a"));
  CHECK_THAT(found(Fault::writes_too_much, false), Contains("wrote outside result 0"));
  CHECK_THAT(found(Fault::leaves_a_hole, false), Contains("two runs differ"));
  CHECK_THAT(found(Fault::changes_its_operand, false), Contains("changed an input"));
  CHECK_THAT(found(Fault::uses_too_much_workspace, false), Contains("outside its workspace"));
  CHECK_THAT(found(Fault::spoils_in_place, false), Contains("in the memory of operand 0"));
  CHECK_THAT(found(Fault::wrong_term, false), Contains("wrong length"));
}

TEST_CASE("the driver finds wrong and missing gradients") {
  CHECK_THAT(found(Fault::wrong_gradient, true), Catch::Contains("gradient of operand 0"));
  CHECK_THAT(found(Fault::no_gradient, true), Catch::Contains("analytic 0"));
}

TEST_CASE("the driver wants reasons and instances") {
  const Build same = [](Builder&, const Tensors& x) { return x; };
  Options options;
  options.tolerance = 1e-3;
  CHECK(problem_of({{real({2})}}, same, options) == "a tolerance needs a reason");
  CHECK(problem_of({}, same) == "there are no instances");
}

}  // namespace
}  // namespace tessera::testing
