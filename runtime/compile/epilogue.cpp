// Products with bias and activation.
#include "runtime/compile/epilogue.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/matmul.h"
#include "runtime/ops/einsum.h"
#include "runtime/ops/map.h"

namespace tessera::compile {
namespace {

using kernels::MapCode;
using kernels::MapOperand;
using kernels::MapStep;
using ops::EinsumOp;
using ops::Epilogue;
using ops::MapOp;

class EpilogueFusion {
 public:
  explicit EpilogueFusion(Draft& draft)
      : draft_(draft), links_(link(draft)), removed_(draft.nodes.size(), false) {}

  void run() {
    for (std::size_t i = 0; i < draft_.nodes.size(); ++i) {
      auto id = static_cast<std::int32_t>(i);
      while (const std::optional<std::int32_t> next = absorb_reader(id)) id = *next;
    }
    remove_nodes(draft_, removed_);
  }

 private:
  /// The product moves to its reader's place, which it returns.
  std::optional<std::int32_t> absorb_reader(std::int32_t id) {
    DraftNode& node = draft_.node(id);
    const auto* product = dynamic_cast<const EinsumOp*>(node.op.get());
    if (product == nullptr || product->epilogue().activation) return std::nullopt;
    const DraftId result = node.outputs.front();
    const auto index = static_cast<std::size_t>(result);
    if (links_.held[index] || links_.consumers[index].size() != 1) return std::nullopt;
    const std::int32_t reader = links_.consumers[index].front();
    DraftNode& follower = draft_.node(reader);
    const auto* map = dynamic_cast<const MapOp*>(follower.op.get());
    if (map == nullptr || follower.phase != node.phase || map->program().steps.size() != 1 ||
        map->program().wide || !is_like(result, follower.outputs.front())) {
      return std::nullopt;
    }
    const MapStep& step = map->program().steps.front();
    const DType dtype = draft_.value(follower.outputs.front()).type.dtype;
    Epilogue epilogue = product->epilogue();
    std::vector<DraftId> inputs = node.inputs;
    if (step.code == MapCode::copy && is_floating(dtype) &&
        size_of(dtype) <= size_of(draft_.value(result).type.dtype)) {
      // A cast: the product rounds to its dtype itself.
    } else if (follower.inputs.size() == 1 && kernels::operands_of(step.code) == 1 &&
               kernels::can_fuse_activation(step.code)) {
      epilogue.activation = step.code;
    } else if (const DraftId bias = bias_of(*product, follower, step, result);
               bias != kNoDraft && !epilogue.bias) {
      epilogue.bias = true;
      inputs.push_back(bias);
    } else {
      return std::nullopt;
    }
    follower.op = product->with(dtype, epilogue);
    follower.inputs = std::move(inputs);
    removed_[static_cast<std::size_t>(id)] = true;
    return reader;
  }

  bool is_like(DraftId a, DraftId b) const {
    return draft_.value(a).type.shape == draft_.value(b).type.shape;
  }

  /// The other operand of an addition, where it has just the trailing dimensions of the product.
  DraftId bias_of(const EinsumOp& product, const DraftNode& follower, const MapStep& step,
                  DraftId result) const {
    if (step.code != MapCode::add || follower.inputs.size() != 2) return kNoDraft;
    if (step.operands[0].kind != MapOperand::Kind::input ||
        step.operands[1].kind != MapOperand::Kind::input) {
      return kNoDraft;
    }
    const DraftId other = follower.inputs[0] == result ? follower.inputs[1] : follower.inputs[0];
    if (other == result) return kNoDraft;  // y + y
    const Shape& whole = draft_.value(result).type.shape;
    const Shape& bias = draft_.value(other).type.shape;
    if (bias.empty() || bias.rank() != product.bias_letters().size()) return kNoDraft;
    const std::span<const std::int64_t> tail = whole.sizes().subspan(whole.rank() - bias.rank());
    return std::equal(tail.begin(), tail.end(), bias.begin()) ? other : kNoDraft;
  }

  Draft& draft_;
  const Links links_;
  std::vector<bool> removed_;
};

}  // namespace

void fuse_epilogues(Draft& draft) {
  EpilogueFusion(draft).run();
  verify(draft, "fusion of epilogues");
}

}  // namespace tessera::compile
