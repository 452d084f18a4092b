// Buckets of gradient all-reduces.
#include "runtime/compile/bucket.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/dtype.h"

namespace tessera::compile {
namespace {

using graph::Phase;

class Joining {
 public:
  Joining(Draft& draft, std::int64_t limit) : draft_(draft), limit_(limit), links_(link(draft)) {}

  void run() {
    std::vector<DraftNode> nodes = std::exchange(draft_.nodes, {});
    std::vector<bool> may_join(nodes.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) may_join[i] = joins(nodes, nodes[i]);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      flush_what_is_read(nodes[i]);
      if (may_join[i]) {
        join(std::move(nodes[i]));
      } else {
        draft_.nodes.push_back(std::move(nodes[i]));
      }
    }
    while (!open_.empty()) flush(open_.begin());
  }

 private:
  using Key = std::pair<layouts::AxisList, DType>;
  struct Bucket {
    DraftNode node;
    std::int64_t bytes = 0;
  };

  bool joins(const std::vector<DraftNode>& nodes, const DraftNode& node) const {
    return node.kind == DraftNode::Kind::collective &&
           node.collective.kind == CollectiveKind::all_reduce && node.phase == Phase::backward &&
           !is_read_in_backward(nodes, node.outputs.front());
  }

  bool is_read_in_backward(const std::vector<DraftNode>& nodes, DraftId id) const {
    const std::vector<std::int32_t>& readers = links_.consumers[static_cast<std::size_t>(id)];
    return std::any_of(readers.begin(), readers.end(), [&](std::int32_t reader) {
      const DraftNode& node = nodes[static_cast<std::size_t>(reader)];
      const bool is_view = node.kind == DraftNode::Kind::compute && node.op->is_view();
      return is_view ? is_read_in_backward(nodes, node.outputs.front())
                     : node.phase == Phase::backward;
    });
  }

  void flush_what_is_read(const DraftNode& node) {
    for (const DraftId input : node.inputs) {
      for (auto entry = open_.begin(); entry != open_.end();) {
        const std::vector<DraftId>& made = entry->second.node.outputs;
        const auto here = entry++;
        if (std::find(made.begin(), made.end(), input) != made.end()) flush(here);
      }
    }
  }

  void join(DraftNode node) {
    const DraftId value = node.inputs.front();
    const DType dtype = draft_.value(value).type.dtype;
    const std::int64_t bytes = local_of(draft_, value, 0).bytes();
    const Key key{node.collective.axes, dtype};
    auto entry = open_.find(key);
    if (entry != open_.end() && entry->second.bytes + bytes > limit_) {
      flush(entry);
      entry = open_.end();
    }
    if (entry == open_.end()) {
      open_.emplace(key, Bucket{std::move(node), bytes});
      return;
    }
    Bucket& bucket = entry->second;
    bucket.bytes += bytes;
    bucket.node.inputs.push_back(value);
    bucket.node.outputs.push_back(node.outputs.front());
    bucket.node.collective.elements += node.collective.elements;
    bucket.node.collective.for_paths.push_back(std::move(node.collective.for_paths.front()));
  }

  void flush(std::map<Key, Bucket>::iterator entry) {
    draft_.nodes.push_back(std::move(entry->second.node));
    open_.erase(entry);
  }

  Draft& draft_;
  const std::int64_t limit_;
  const Links links_;
  std::map<Key, Bucket> open_;
};

}  // namespace

void join_gradient_reductions(Draft& draft, std::int64_t bucket_bytes) {
  Joining(draft, bucket_bytes).run();
  verify(draft, "bucketing");
}

}  // namespace tessera::compile
