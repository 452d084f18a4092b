// The contents of memory, tracked through a program.
#include "runtime/compile/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace tessera::compile {
namespace {

using Space = ProgramTensor::Space;

/// Bytes of one buffer; variables and inputs are whole.
struct Range {
  std::tuple<Space, std::int32_t> buffer;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool meets(const Range& other) const {
    return buffer == other.buffer && begin < other.end && other.begin < end;
  }
};

class Verification {
 public:
  explicit Verification(const Program& program) : program_(program) {
    for (std::size_t i = 0; i < program.tensors.size(); ++i) {
      roots_.push_back(root_of(static_cast<TensorId>(i)));
    }
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
    demand(flying_.empty(), "a collective is never waited for");
    for (const ProgramOutput& output : program_.outputs) read(output.tensor);
    for (const auto& [collective, count] : started_) {
      demand(count == 1, fmt::format("collective {} starts {} times", collective, count));
    }
    demand(started_.size() == program_.collectives.size(), "a collective never starts");
  }

 private:
  const ProgramTensor& tensor(TensorId id) const {
    return program_.tensors[static_cast<std::size_t>(id)];
  }

  void demand(bool condition, const std::string& what) const {
    if (condition) return;
    throw Error(Error::Kind::internal,
                fmt::format("compile: instruction {} of rank {}: {}", now_, program_.rank, what));
  }

  std::string show(TensorId id) const {
    return fmt::format("tensor {} \"{}\"", id, tensor(id).path);
  }

  TensorId root_of(TensorId id) const {
    while (tensor(id).content_of >= 0) id = tensor(id).content_of;
    return id;
  }
  TensorId root(TensorId id) const { return roots_[static_cast<std::size_t>(id)]; }

  Range range(TensorId id) const {
    const ProgramTensor& here = tensor(id);
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
    std::vector<Range> written;
    if (instruction.workspace_bytes > 0) {
      written.push_back({{Space::arena, 0},
                         instruction.workspace_offset,
                         instruction.workspace_offset + instruction.workspace_bytes});
      demand_free(written.back(), instruction, -1, "a workspace");
    }
    for (std::size_t i = 0; i < instruction.outputs.size(); ++i) {
      const Range here = range(instruction.outputs[i]);
      for (const Range& other : written) {
        demand(!here.meets(other), "two results of one instruction overlap");
      }
      written.push_back(here);
      demand_free(here, instruction, static_cast<int>(i), show(instruction.outputs[i]));
    }
    for (const TensorId output : instruction.outputs) write(output);
  }

  /// Nothing that is read later, and no operand but where the op allows it, lies in `here`.
  void demand_free(const Range& here, const Instruction& instruction, int output,
                   const std::string& what) const {
    demand(std::get<0>(here.buffer) != Space::arena || here.end <= program_.arena_bytes,
           what + " reaches beyond the arena");
    demand(here.begin == here.end || std::get<0>(here.buffer) != Space::input,
           what + " overwrites an input of the step");
    for (std::size_t i = 0; i < instruction.inputs.size(); ++i) {
      const TensorId input = instruction.inputs[i];
      if (!here.meets(range(input))) continue;
      const bool same = output >= 0 && range(input).begin == here.begin &&
                        range(input).end == here.end &&
                        instruction.op->may_overwrite(static_cast<std::size_t>(output), i);
      demand(same, fmt::format("{} lies over operand {}", what, show(input)));
    }
    demand_not_needed(here, what);
  }

  void demand_not_needed(const Range& here, const std::string& what) const {
    for (const auto& [id, content] : live_) {
      if (last_read_[static_cast<std::size_t>(id)] <= now_ || !here.meets(content)) continue;
      demand(false, fmt::format("{} lies over {}, which is read later", what, show(id)));
    }
    for (const auto& [collective, ranges] : flying_) {
      for (const Range& other : ranges) {
        demand(!here.meets(other),
               fmt::format("{} lies in memory of a collective in flight", what));
      }
    }
  }

  void read(TensorId id) {
    const Range here = range(id);
    if (here.begin == here.end) return;
    for (const auto& [collective, parts] : flying_) {
      const Collective& source = program_.collectives[static_cast<std::size_t>(collective)];
      for (const Range& part : parts) {
        // What is sent may be read by others meanwhile, unless the sum is made in it.
        const bool sent =
            source.kind != CollectiveKind::all_reduce && part.meets(range(source.members.front()));
        demand(sent || !here.meets(part), show(id) + " is read while a collective is in flight");
      }
    }
    if (tensor(id).space != Space::arena && is_old(id)) {
      demand(!overwritten_.contains(here.buffer), show(id) + " is read after it was overwritten");
      return;
    }
    demand(live_.contains(root(id)),
           show(id) + " is read but does not hold what was written for it");
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
    const Range here = range(id);
    std::erase_if(live_, [&here](const auto& entry) { return here.meets(entry.second); });
    if (here.begin == here.end) return;
    live_[root(id)] = here;
    if (tensor(id).space == Space::variable) {
      demand_old_value_is_done(id, here);
      overwritten_.insert(here.buffer);
    }
  }

  void demand_old_value_is_done(TensorId id, const Range& here) const {
    for (std::size_t i = 0; i < program_.tensors.size(); ++i) {
      const auto other = static_cast<TensorId>(i);
      if (tensor(other).space != Space::variable || range(other).buffer != here.buffer) continue;
      if (root(other) == root(id) || last_read_[i] <= now_) continue;
      demand(!is_old(other), fmt::format("{} replaces the old value that is read later", show(id)));
    }
  }

  void start(int index) {
    ++started_[index];
    const Collective& collective = program_.collectives[static_cast<std::size_t>(index)];
    std::vector<Range>& ranges = flying_[index];
    demand(ranges.empty(), "a collective starts twice");
    std::int64_t expected = range(collective.send).begin;
    std::vector<TensorId> members = collective.members;
    std::sort(members.begin(), members.end(), [this](TensorId a, TensorId b) {
      return std::pair(range(a).begin, range(a).end) < std::pair(range(b).begin, range(b).end);
    });
    std::vector<Range> sent;
    for (const TensorId member : members) {
      read(member);
      demand(members.size() == 1 || range(member).begin == expected,
             "members of a bucket do not lie one after another");
      expected = range(member).end;
      sent.push_back(range(member));
    }
    if (collective.receive != collective.send) {
      const Range here = range(collective.receive);
      for (const Range& other : sent) {
        demand(!here.meets(other), "a collective receives into what it sends");
      }
      demand_not_needed(here, show(collective.receive));
      write(collective.receive);
      sent.push_back(here);
    }
    ranges = std::move(sent);
    if (ranges.empty()) ranges.emplace_back();
  }

  void wait(int index) {
    demand(flying_.erase(index) == 1, "a collective is waited for that is not in flight");
  }

  const Program& program_;
  std::vector<TensorId> roots_;
  std::vector<std::int64_t> last_read_;  // by root
  std::map<TensorId, Range> live_;       // contents of memory, by root
  std::map<int, std::vector<Range>> flying_;
  std::map<int, int> started_;
  std::vector<bool> written_;                              // by root: some instruction makes it
  std::set<std::tuple<Space, std::int32_t>> overwritten_;  // variables written by the step
  std::int64_t now_ = 0;
};

}  // namespace

void verify(const Program& program) { Verification(program).run(); }

}  // namespace tessera::compile
