// One total order of compute, starts and waits.
#include "runtime/compile/schedule.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"

namespace tessera::compile {
namespace {

using Kind = DraftNode::Kind;

class Scheduler {
 public:
  explicit Scheduler(const Draft& draft)
      : draft_(draft),
        links_(link(draft)),
        emitted_(draft.nodes.size(), false),
        missing_(draft.nodes.size(), 0),
        early_(draft.nodes.size(), false),
        in_flight_(draft.values.size(), -1),
        waited_(draft.nodes.size(), false) {
    find_early_nodes();
    find_variable_gathers();
  }

  std::vector<Event> run() {
    const auto count = static_cast<std::int32_t>(draft_.nodes.size());
    for (std::int32_t id = 0; id < count; ++id) emit(id);
    for (std::int32_t id = 0; id < count; ++id) {
      if (draft_.node(id).kind == Kind::collective) wait_for(id);
    }
    return std::move(events_);
  }

 private:
  bool is_compute(std::int32_t id) const { return draft_.node(id).kind == Kind::compute; }

  /// Collectives, and copies made for one, whose data all come from compute nodes of the same
  /// phase. (After a collective, starting at once would mean waiting at once.)
  void find_early_nodes() {
    for (std::size_t i = draft_.nodes.size(); i-- > 0;) {
      const auto id = static_cast<std::int32_t>(i);
      const DraftNode& node = draft_.nodes[i];
      early_[i] = (!is_compute(id) || (node.internal && feeds_early_node(node))) &&
                  data_are_of_its_phase(node);
    }
    for (std::size_t i = 0; i < draft_.nodes.size(); ++i) {
      std::vector<std::int32_t> producers;
      for (const DraftId input : draft_.nodes[i].inputs) {
        const std::int32_t producer = links_.producer[static_cast<std::size_t>(input)];
        if (producer >= 0) producers.push_back(producer);
      }
      std::sort(producers.begin(), producers.end());
      producers.erase(std::unique(producers.begin(), producers.end()), producers.end());
      missing_[i] = static_cast<int>(producers.size());
    }
  }

  bool feeds_early_node(const DraftNode& node) const {
    const std::vector<std::int32_t>& readers =
        links_.consumers[static_cast<std::size_t>(node.outputs.front())];
    return readers.size() == 1 && early_[static_cast<std::size_t>(readers.front())];
  }

  bool data_are_of_its_phase(const DraftNode& node) const {
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](DraftId input) {
      const std::int32_t producer = links_.producer[static_cast<std::size_t>(input)];
      return producer >= 0 && is_compute(producer) && draft_.node(producer).phase == node.phase;
    });
  }

  void find_variable_gathers() {
    for (std::size_t i = 0; i < draft_.nodes.size(); ++i) {
      const DraftNode& node = draft_.nodes[i];
      if (node.kind == Kind::collective && node.collective.kind == CollectiveKind::all_gather &&
          draft_.value(node.inputs.front()).source == graph::Value::Source::variable) {
        gathers_.push_back(static_cast<std::int32_t>(i));
      }
    }
  }

  void emit(std::int32_t id) {
    const auto index = static_cast<std::size_t>(id);
    if (emitted_[index]) return;
    emitted_[index] = true;
    const DraftNode& node = draft_.node(id);
    if (node.kind == Kind::collective) {
      wait_for_inputs(node);
      events_.push_back({Instruction::Kind::start, id});
      for (const DraftId output : node.outputs) in_flight_[static_cast<std::size_t>(output)] = id;
    } else if (node.op->is_view()) {
      // Nobody reads anything yet: the wait comes before the view's readers.
      in_flight_[static_cast<std::size_t>(node.outputs.front())] =
          in_flight_[static_cast<std::size_t>(node.inputs.front())];
    } else {
      wait_for_inputs(node);
      events_.push_back({Instruction::Kind::compute, id});
    }
    start_what_is_ready(node);
  }

  void start_what_is_ready(const DraftNode& node) {
    std::vector<std::int32_t> readers;
    for (const DraftId output : node.outputs) {
      const std::vector<std::int32_t>& some = links_.consumers[static_cast<std::size_t>(output)];
      readers.insert(readers.end(), some.begin(), some.end());
    }
    std::sort(readers.begin(), readers.end());
    readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
    for (const std::int32_t reader : readers) {
      const auto index = static_cast<std::size_t>(reader);
      if (--missing_[index] == 0 && early_[index]) emit(reader);
    }
  }

  void wait_for_inputs(const DraftNode& node) {
    for (const DraftId input : node.inputs) {
      const std::int32_t collective = in_flight_[static_cast<std::size_t>(input)];
      if (collective >= 0) wait_for(collective);
    }
  }

  void wait_for(std::int32_t id) {
    const auto index = static_cast<std::size_t>(id);
    if (waited_[index]) return;
    check(emitted_[index], "schedule: a collective is waited for before it starts");
    waited_[index] = true;
    events_.push_back({Instruction::Kind::wait, id});
    const auto here = std::find(gathers_.begin(), gathers_.end(), id);
    if (here != gathers_.end() && here + 1 != gathers_.end()) emit(*(here + 1));
  }

  const Draft& draft_;
  const Links links_;
  std::vector<bool> emitted_;
  std::vector<int> missing_;  // producers that have not been emitted
  std::vector<bool> early_;
  std::vector<std::int32_t> in_flight_;  // per value: the collective that it is a result of
  std::vector<bool> waited_;
  std::vector<std::int32_t> gathers_;  // of variables, in order of need
  std::vector<Event> events_;
};

/// How far before a start compute is looked for that could run during the collective instead.
constexpr std::size_t kWindow = 16;

/// Fills the time between a start and a wait that follows at once: compute before the start that
/// neither it nor anything in between needs moves behind it. (The weight's gradient during the
/// reduction of the input's gradient.)
class Overlap {
 public:
  Overlap(const Draft& draft, std::vector<Event> events)
      : draft_(draft), events_(std::move(events)), root_(draft.values.size()) {
    for (std::size_t i = 0; i < root_.size(); ++i) root_[i] = static_cast<DraftId>(i);
    for (const DraftNode& node : draft.nodes) {
      if (node.kind != Kind::compute || !node.op->is_view()) continue;
      root_[static_cast<std::size_t>(node.outputs.front())] = root(node.inputs.front());
    }
  }

  std::vector<Event> run() {
    for (std::size_t i = 1; i < events_.size(); ++i) {
      const bool at_once = events_[i].kind == Instruction::Kind::wait &&
                           events_[i - 1].kind == Instruction::Kind::start &&
                           events_[i - 1].node == events_[i].node;
      if (at_once) fill(i - 1);
    }
    return std::move(events_);
  }

 private:
  DraftId root(DraftId id) const { return root_[static_cast<std::size_t>(id)]; }

  void fill(std::size_t start) {
    const DraftNode& collective = draft_.node(events_[start].node);
    std::set<DraftId> needed;
    const auto need = [&](const DraftNode& node) {
      for (const DraftId input : node.inputs) needed.insert(root(input));
    };
    need(collective);
    std::vector<Event> stays{events_[start]};  // backwards
    std::vector<Event> moves;
    std::size_t first = start;
    while (first > 0 && start - first < kWindow) {
      const Event& event = events_[first - 1];
      const DraftNode& node = draft_.node(event.node);
      if (event.kind != Instruction::Kind::compute || node.phase != collective.phase) break;
      const bool wanted = std::any_of(node.outputs.begin(), node.outputs.end(),
                                      [&](DraftId id) { return needed.contains(root(id)); });
      if (wanted) need(node);
      (wanted ? stays : moves).push_back(event);
      --first;
    }
    std::reverse(stays.begin(), stays.end());
    std::reverse(moves.begin(), moves.end());
    const auto at = events_.begin() + static_cast<std::ptrdiff_t>(first);
    std::copy(moves.begin(), moves.end(), std::copy(stays.begin(), stays.end(), at));
  }

  const Draft& draft_;
  std::vector<Event> events_;
  std::vector<DraftId> root_;  // of views: the value whose memory they show
};

}  // namespace

std::vector<Event> schedule(const Draft& draft) {
  return Overlap(draft, Scheduler(draft).run()).run();
}

}  // namespace tessera::compile
