// Products that join the element-wise node that reads them.
#include "runtime/compile/panels.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "runtime/ops/product_map.h"

namespace tessera::compile {
namespace {

using graph::LocalCall;
using ops::EinsumOp;
using ops::MapOp;
using ops::ProductMapOp;

class Joining {
 public:
  Joining(Draft& draft, std::int64_t panel_bytes)
      : draft_(draft), links_(link(draft)), panel_bytes_(panel_bytes) {}

  void run() {
    std::vector<bool> removed(draft_.nodes.size(), false);
    for (std::size_t i = 0; i < draft_.nodes.size(); ++i) {
      removed[i] = join(draft_.nodes[i]);
    }
    remove_nodes(draft_, removed);
  }

 private:
  bool join(const DraftNode& node) {
    const auto product = std::dynamic_pointer_cast<const EinsumOp>(node.op);
    if (product == nullptr) return false;
    const DraftId result = node.outputs.front();
    const auto index = static_cast<std::size_t>(result);
    if (links_.held[index] || links_.consumers[index].size() != 1) return false;
    DraftNode& reader = draft_.node(links_.consumers[index].front());
    const auto map = std::dynamic_pointer_cast<const MapOp>(reader.op);
    if (map == nullptr || !is_like(result, reader.outputs.front()) ||
        std::count(reader.inputs.begin(), reader.inputs.end(), result) != 1 ||
        !is_worth_it(node, *product)) {
      return false;
    }
    const auto place = std::find(reader.inputs.begin(), reader.inputs.end(), result);
    const auto operand = static_cast<std::size_t>(place - reader.inputs.begin());
    reader.inputs.erase(place);
    reader.inputs.insert(reader.inputs.begin(), node.inputs.begin(), node.inputs.end());
    reader.op = std::make_shared<const ProductMapOp>(product, map, operand, panel_bytes_);
    // The arithmetic is the product's, and counts where that belongs.
    reader.phase = node.phase;
    return true;
  }

  bool is_like(DraftId a, DraftId b) const {
    return draft_.value(a).type.shape == draft_.value(b).type.shape &&
           draft_.value(a).placement == draft_.value(b).placement;
  }

  /// Judged on the parts of rank 0, so that all ranks decide alike. The operands live on until the
  /// reader runs: they must be smaller than what is saved.
  bool is_worth_it(const DraftNode& node, const EinsumOp& product) const {
    LocalCall call;
    std::int64_t kept = 0;
    for (const DraftId input : node.inputs) {
      // A variable might get its new value before the reader runs.
      if (draft_.value(input).source == graph::Value::Source::variable) return false;
      // Products in 16 bits rearrange the whole second operand on every call.
      if (draft_.value(input).type.dtype != DType::float32) return false;
      call.inputs.push_back(local_of(draft_, input, 0));
      kept += call.inputs.back().bytes();
    }
    call.outputs.push_back(local_of(draft_, node.outputs.front(), 0));
    const std::int64_t saved = call.outputs.back().bytes();
    return saved >= 2 * panel_bytes_ && kept <= saved && ProductMapOp::has_panels(product, call);
  }

  Draft& draft_;
  const Links links_;
  std::int64_t panel_bytes_;
};

}  // namespace

void join_products(Draft& draft, std::int64_t panel_bytes) {
  Joining(draft, panel_bytes).run();
  verify(draft, "joining of products");
}

}  // namespace tessera::compile
