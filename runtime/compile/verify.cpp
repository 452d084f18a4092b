// The contents of memory, tracked through a program.
#include "runtime/compile/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "runtime/compile/intervals.h"

namespace tessera::compile {
namespace {

using Space = ProgramTensor::Space;

/// Variables and inputs have a buffer each, and fill it; the arena is one.
using Buffer = std::pair<Space, std::int32_t>;
using Bytes = Range<Buffer>;

class Verification {
 public:
  explicit Verification(const Program& program) : program_(program) {
    for (std::size_t i = 0; i < program.tensors.size(); ++i) {
      const auto id = static_cast<TensorId>(i);
      roots_.push_back(root_of(id));
      ranges_.push_back(range_of(tensor(id)));
      if (tensor(id).space == Space::variable) tensors_of_[tensor(id).variable].push_back(id);
    }
    live_at_.resize(program.tensors.size());
    find_last_reads();
    find_written();
  }

  void run() {
    for (now_ = 0; now_ < static_cast<std::int64_t>(program_.instructions.size()); ++now_) {
      const Instruction& instruction = program_.instructions[static_cast<std::size_t>(now_)];
      switch (instruction.kind) {
        case Instruction::Kind::compute:
          compute(instruction);
          break;
        case Instruction::Kind::start:
          start(instruction.collective);
          break;
        case Instruction::Kind::wait:
          wait(instruction.collective);
          break;
      }
    }
    demand(flights_.empty(), "a collective is never waited for");
    for (const ProgramOutput& output : program_.outputs) read(output.tensor);
    for (const auto& [collective, count] : started_) {
      demand(count == 1, [&, id = collective, times = count] {
        return fmt::format("collective {} starts {} times", id, times);
      });
    }
    demand(started_.size() == program_.collectives.size(), "a collective never starts");
  }

 private:
  const ProgramTensor& tensor(TensorId id) const {
    return program_.tensors[static_cast<std::size_t>(id)];
  }

  /// `what` is a text, or makes one: most are never needed.
  template <class What>
  void demand(bool condition, const What& what) const {
    if (condition) return;
    std::string text;
    if constexpr (std::is_invocable_v<What>) {
      text = what();
    } else {
      text = what;
    }
    throw Error(Error::Kind::internal,
                fmt::format("compile: instruction {} of rank {}: {}", now_, program_.rank, text));
  }

  std::string show(TensorId id) const {
    return fmt::format("tensor {} \"{}\"", id, tensor(id).path);
  }

  TensorId root_of(TensorId id) const {
    while (tensor(id).content_of >= 0) id = tensor(id).content_of;
    return id;
  }
  TensorId root(TensorId id) const { return roots_[static_cast<std::size_t>(id)]; }

  const Bytes& range(TensorId id) const { return ranges_[static_cast<std::size_t>(id)]; }

  static Bytes range_of(const ProgramTensor& here) {
    switch (here.space) {
      case Space::arena:
        return {{here.space, 0}, here.offset, here.offset + here.bytes()};
      case Space::variable:
        return {{here.space, here.variable}, 0, here.bytes()};
      case Space::input:
        return {{here.space, here.input}, 0, here.bytes()};
    }
    return {};
  }

  void find_last_reads() {
    last_read_.assign(program_.tensors.size(), -1);
    const auto note = [this](TensorId id, std::int64_t when) {
      std::int64_t& last = last_read_[static_cast<std::size_t>(root(id))];
      last = std::max(last, when);
    };
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      for (const TensorId input : program_.instructions[i].inputs) {
        note(input, static_cast<std::int64_t>(i));
      }
      if (program_.instructions[i].kind == Instruction::Kind::compute) continue;
      const Collective& collective =
          program_.collectives[static_cast<std::size_t>(program_.instructions[i].collective)];
      for (const TensorId member : collective.members) note(member, static_cast<std::int64_t>(i));
    }
    const auto end = static_cast<std::int64_t>(program_.instructions.size());
    for (const ProgramOutput& output : program_.outputs) note(output.tensor, end);
  }

  void compute(const Instruction& instruction) {
    for (const TensorId input : instruction.inputs) read(input);
    std::vector<Bytes> written;
    if (instruction.workspace_bytes > 0) {
      written.push_back({{Space::arena, 0},
                         instruction.workspace_offset,
                         instruction.workspace_offset + instruction.workspace_bytes});
      demand_free(written.back(), instruction, -1, "a workspace");
    }
    for (std::size_t i = 0; i < instruction.outputs.size(); ++i) {
      const Bytes here = range(instruction.outputs[i]);
      for (const Bytes& other : written) {
        demand(!here.meets(other), "two results of one instruction overlap");
      }
      written.push_back(here);
      demand_free(here, instruction, static_cast<int>(i), show(instruction.outputs[i]));
    }
    for (const TensorId output : instruction.outputs) write(output);
  }

  /// Nothing that is read later, and no operand but where the op allows it, lies in `here`.
  void demand_free(const Bytes& here, const Instruction& instruction, int output,
                   const std::string& what) {
    demand(here.buffer.first != Space::arena || here.end <= program_.arena_bytes,
           [&] { return what + " reaches beyond the arena"; });
    demand(here.empty() || here.buffer.first != Space::input,
           [&] { return what + " overwrites an input of the step"; });
    for (std::size_t i = 0; i < instruction.inputs.size(); ++i) {
      const TensorId input = instruction.inputs[i];
      if (!here.meets(range(input))) continue;
      const bool same = output >= 0 && range(input).begin == here.begin &&
                        range(input).end == here.end &&
                        instruction.op->may_overwrite(static_cast<std::size_t>(output), i);
      demand(same, [&] { return fmt::format("{} lies over operand {}", what, show(input)); });
    }
    demand_not_needed(here, what);
  }

  void demand_not_needed(const Bytes& here, const std::string& what) {
    const auto [first, last] = live_.meeting(here);
    for (auto piece = first; piece != last; ++piece) {
      const TensorId id = piece->second.content;
      demand(last_read_[static_cast<std::size_t>(id)] <= now_,
             [&] { return fmt::format("{} lies over {}, which is read later", what, show(id)); });
    }
    const auto [flying, end] = flying_.meeting(here);
    demand(flying == end,
           [&] { return fmt::format("{} lies in memory of a collective in flight", what); });
  }

  void read(TensorId id) {
    const Bytes& here = range(id);
    if (here.empty()) return;
    const auto [first, last] = flying_.meeting(here);
    for (auto piece = first; piece != last; ++piece) {
      // What is sent may be read by others meanwhile, unless the sum is made in it.
      for (const Flight& flight : piece->second.content) {
        demand(flight.is_readable,
               [&] { return show(id) + " is read while a collective is in flight"; });
      }
    }
    if (tensor(id).space != Space::arena && is_old(id)) {
      demand(!overwritten_.contains(here.buffer),
             [&] { return show(id) + " is read after it was overwritten"; });
      return;
    }
    demand(live_at_[static_cast<std::size_t>(root(id))].has_value(),
           [&] { return show(id) + " is read but does not hold what was written for it"; });
  }

  void find_written() {
    written_.assign(program_.tensors.size(), false);
    const auto note = [this](TensorId id) { written_[static_cast<std::size_t>(root(id))] = true; };
    for (const Instruction& instruction : program_.instructions) {
      for (const TensorId output : instruction.outputs) note(output);
    }
    for (const Collective& collective : program_.collectives) {
      if (collective.receive != collective.send) note(collective.receive);
    }
  }

  /// A variable as it was when the step started: no instruction writes it.
  bool is_old(TensorId id) const { return !written_[static_cast<std::size_t>(root(id))]; }

  void write(TensorId id) {
    const Bytes& here = range(id);
    forget(here);
    if (here.empty()) return;
    std::optional<Bytes>& place = live_at_[static_cast<std::size_t>(root(id))];
    if (place) forget(*place);
    place = here;
    live_.add(here, root(id));
    if (tensor(id).space == Space::variable) {
      demand_old_value_is_done(id);
      overwritten_.insert(here.buffer);
    }
  }

  /// What lies there is overwritten.
  void forget(Bytes here) {
    const auto [first, last] = live_.meeting(here);
    for (auto piece = first; piece != last; ++piece) {
      live_at_[static_cast<std::size_t>(piece->second.content)].reset();
    }
    live_.erase(first, last);
  }

  void demand_old_value_is_done(TensorId id) const {
    for (const TensorId other : tensors_of_.at(tensor(id).variable)) {
      if (root(other) == root(id) || last_read_[static_cast<std::size_t>(other)] <= now_) continue;
      demand(!is_old(other),
             [&] { return fmt::format("{} replaces the old value that is read later", show(id)); });
    }
  }

  void start(int index) {
    ++started_[index];
    const Collective& collective = program_.collectives[static_cast<std::size_t>(index)];
    demand(!flights_.contains(index), "a collective starts twice");
    std::int64_t expected = range(collective.send).begin;
    std::vector<TensorId> members = collective.members;
    std::sort(members.begin(), members.end(), [this](TensorId a, TensorId b) {
      return std::pair(range(a).begin, range(a).end) < std::pair(range(b).begin, range(b).end);
    });
    for (const TensorId member : members) {
      read(member);
      demand(members.size() == 1 || range(member).begin == expected,
             "members of a bucket do not lie one after another");
      expected = range(member).end;
    }
    const bool in_place = collective.receive == collective.send;
    if (!in_place) {
      const Bytes& here = range(collective.receive);
      for (const TensorId member : members) {
        demand(!here.meets(range(member)), "a collective receives into what it sends");
      }
      demand_not_needed(here, show(collective.receive));
      write(collective.receive);
    }
    std::vector<Bytes>& flights = flights_[index];
    for (const TensorId member : members) take_off(index, range(member), !in_place, flights);
    if (!in_place) take_off(index, range(collective.receive), false, flights);
  }

  void take_off(int index, const Bytes& here, bool is_readable, std::vector<Bytes>& flights) {
    if (here.empty()) return;
    const auto [first, last] = flying_.meeting(here);
    if (first == last) {
      flying_.add(here, {{index, is_readable}});
    } else {
      // Two collectives may send one tensor: all that is alive lies apart or in the same place.
      demand(first->first.second == here.begin && first->second.end == here.end,
             "collectives in flight share a part of their memory");
      first->second.content.push_back({index, is_readable});
    }
    flights.push_back(here);
  }

  void wait(int index) {
    const auto flights = flights_.find(index);
    demand(flights != flights_.end(), "a collective is waited for that is not in flight");
    for (const Bytes& here : flights->second) {
      const auto piece = flying_.meeting(here).first;
      std::erase_if(piece->second.content,
                    [index](const Flight& flight) { return flight.collective == index; });
      if (piece->second.content.empty()) flying_.erase(piece);
    }
    flights_.erase(flights);
  }

  /// Use of some memory by a collective in flight.
  struct Flight {
    int collective = -1;
    bool is_readable = false;  // it is sent, not written
  };

  const Program& program_;
  std::vector<TensorId> roots_;
  std::vector<Bytes> ranges_;
  std::map<graph::VariableId, std::vector<TensorId>> tensors_of_;
  std::vector<std::int64_t> last_read_;        // by root
  Intervals<Buffer, TensorId> live_;           // contents of memory: roots
  std::vector<std::optional<Bytes>> live_at_;  // by root
  Intervals<Buffer, std::vector<Flight>> flying_;
  std::map<int, std::vector<Bytes>> flights_;  // by collective in flight
  std::map<int, int> started_;
  std::vector<bool> written_;     // by root: some instruction makes it
  std::set<Buffer> overwritten_;  // variables written by the step
  std::int64_t now_ = 0;
};

}  // namespace

void verify(const Program& program) { Verification(program).run(); }

}  // namespace tessera::compile
