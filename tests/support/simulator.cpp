// Lockstep execution of all ranks.
#include "tests/support/simulator.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <string>

#include "base/error.h"

namespace tessera::testing {
namespace {

using compile::Collective;
using compile::CollectiveKind;
using compile::Instruction;
using compile::Program;
using compile::ProgramTensor;
using compile::TensorId;

constexpr int kPoison = 0xFF;  // NaN in every float type, -1 in integers

[[noreturn]] void fail(const std::string& message) {
  throw Error(Error::Kind::internal, "simulator: " + message);
}

void demand(bool condition, const std::string& message) {
  if (!condition) fail(message);
}

void compare_programs(const Program& first, const Program& other) {
  const std::string who = fmt::format("programs of ranks 0 and {} differ in ", other.rank);
  demand(first.hash == other.hash, who + "their hash");
  demand(first.instructions.size() == other.instructions.size(), who + "their length");
  demand(first.collectives.size() == other.collectives.size(), who + "their collectives");
  for (std::size_t i = 0; i < first.instructions.size(); ++i) {
    demand(first.instructions[i].kind == other.instructions[i].kind &&
               first.instructions[i].collective == other.instructions[i].collective,
           who + fmt::format("instruction {}", i));
  }
  for (std::size_t i = 0; i < first.collectives.size(); ++i) {
    demand(first.collectives[i].kind == other.collectives[i].kind &&
               first.collectives[i].axes == other.collectives[i].axes,
           who + fmt::format("collective {}", i));
  }
}

}  // namespace

/// Memory and prepared kernels of one rank.
struct Simulator::Rank {
  explicit Rank(const Program& its_program)
      : program(its_program), arena(DType::uint8, its_program.arena_bytes) {
    std::memset(arena.data(), kPoison, arena.bytes());
    for (const TensorId input : program.inputs) inputs.push_back(make(input));
    for (const ProgramTensor& tensor : program.tensors) {
      if (tensor.space != ProgramTensor::Space::variable) continue;
      variables.try_emplace(tensor.variable, tensor.local.dtype, tensor.local.box.elements());
    }
    for (const Instruction& instruction : program.instructions) {
      graph::LocalCall call;
      for (const TensorId id : instruction.inputs) call.inputs.push_back(tensor(id).local);
      for (const TensorId id : instruction.outputs) call.outputs.push_back(tensor(id).local);
      kernels.push_back(instruction.op ? instruction.op->prepare(call, kernels::CpuDevice{1})
                                       : graph::Kernel());
    }
  }

  const ProgramTensor& tensor(TensorId id) const {
    return program.tensors[static_cast<std::size_t>(id)];
  }
  Buffer make(TensorId id) const {
    return Buffer(tensor(id).local.dtype, tensor(id).local.box.elements());
  }

  /// Null where there is nothing, as kernels are promised.
  void* at(TensorId id) {
    const ProgramTensor& here = tensor(id);
    if (here.local.box.elements() == 0) return nullptr;
    switch (here.space) {
      case ProgramTensor::Space::arena:
        return static_cast<std::byte*>(arena.data()) + here.offset;
      case ProgramTensor::Space::variable:
        return variables.at(here.variable).data();
      case ProgramTensor::Space::input:
        return inputs[static_cast<std::size_t>(here.input)].data();
    }
    return nullptr;
  }

  std::vector<double> read(TensorId id) {
    Buffer copy = make(id);
    if (copy.bytes() > 0) std::memcpy(copy.data(), at(id), copy.bytes());
    return copy.get();
  }

  const Program& program;
  Buffer arena;
  std::vector<Buffer> inputs;
  std::map<graph::VariableId, Buffer> variables;
  std::vector<graph::Kernel> kernels;
  std::map<int, Buffer> sent;  // by collective in flight: a copy of what was sent
};

Simulator::Simulator(const graph::Graph& graph, const layouts::Mesh& mesh,
                     const compile::Options& options)
    : graph_(graph), mesh_(mesh) {
  programs_.reserve(static_cast<std::size_t>(mesh.size()));
  for (int rank = 0; rank < mesh.size(); ++rank) {
    programs_.push_back(compile::compile(graph, mesh, rank, options));
    compare_programs(programs_.front(), programs_.back());
    ranks_.push_back(std::make_unique<Rank>(programs_.back()));
  }
}

Simulator::~Simulator() = default;

void Simulator::set_input(std::string_view name, const std::vector<double>& values) {
  for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
    if (program().input_names[i] != name) continue;
    for (const auto& rank : ranks_) {
      const graph::LocalTensor& local = rank->tensor(rank->program.inputs[i]).local;
      rank->inputs[i].set(cut(values, local.global, local.box));
    }
    return;
  }
  fail("there is no input " + std::string(name));
}

void Simulator::set_variable(graph::VariableId id, const std::vector<double>& values) {
  const graph::Variable& variable = (*graph_.variables)[id];
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto found = ranks_[rank]->variables.find(id);
    if (found == ranks_[rank]->variables.end()) continue;  // no program reads it
    const Box box =
        layouts::box_of(variable.shape, *variable.storage, mesh_, static_cast<int>(rank));
    std::vector<double> part = cut(values, variable.shape, box);
    for (int axis = 0; axis < mesh_.axes(); ++axis) {
      const bool sums = ((variable.storage->pending >> axis) & 1U) != 0;
      if (sums && mesh_.coordinate(static_cast<int>(rank), axis) != 0) {
        part.assign(part.size(), 0.0);
      }
    }
    found->second.set(part);
  }
}

void Simulator::run(std::uint64_t step) {
  for (const auto& rank : ranks_) std::memset(rank->arena.data(), kPoison, rank->arena.bytes());
  for (std::size_t i = 0; i < program().instructions.size(); ++i) execute(i, step);
}

void Simulator::execute(std::size_t instruction, std::uint64_t step) {
  const Instruction& first = program().instructions[instruction];
  if (first.kind == Instruction::Kind::start)
    return start(static_cast<std::size_t>(first.collective));
  if (first.kind == Instruction::Kind::wait)
    return wait(static_cast<std::size_t>(first.collective));
  for (const auto& rank : ranks_) {
    const Instruction& here = rank->program.instructions[instruction];
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const TensorId id : here.inputs) inputs.push_back(rank->at(id));
    for (const TensorId id : here.outputs) outputs.push_back(rank->at(id));
    std::byte* workspace = static_cast<std::byte*>(rank->arena.data()) + here.workspace_offset;
    if (here.workspace_bytes > 0) {
      std::memset(workspace, kPoison, static_cast<std::size_t>(here.workspace_bytes));
    }
    rank->kernels[instruction](inputs.data(), outputs.data(), workspace, {step});
  }
}

/// What is sent: one tensor, or a bucket's tensors, which lie one after another.
void Simulator::start(std::size_t index) {
  for (const auto& rank : ranks_) {
    const Collective& collective = rank->program.collectives[index];
    std::int64_t elements = 0;
    for (const TensorId member : collective.members) {
      elements += rank->tensor(member).local.box.elements();
    }
    Buffer sent(collective.dtype, elements);
    if (elements > 0) std::memcpy(sent.data(), rank->at(collective.send), sent.bytes());
    if (collective.receive != collective.send) {
      const std::size_t bytes = rank->make(collective.receive).bytes();
      if (bytes > 0) std::memset(rank->at(collective.receive), kPoison, bytes);
    }
    rank->sent.emplace(static_cast<int>(index), std::move(sent));
  }
}

void Simulator::wait(std::size_t index) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) exchange(index, static_cast<int>(rank));
  for (const auto& rank : ranks_) rank->sent.erase(static_cast<int>(index));
}

/// Gives one rank what it receives.
void Simulator::exchange(std::size_t index, int rank) {
  Rank& here = *ranks_[static_cast<std::size_t>(rank)];
  const Collective& collective = here.program.collectives[index];
  std::vector<std::vector<double>> sent;
  std::size_t me = 0;
  for (std::size_t i = 0; i < collective.ranks.size(); ++i) {
    const Rank& member = *ranks_[static_cast<std::size_t>(collective.ranks[i])];
    demand(member.program.collectives[index].ranks == collective.ranks,
           "members of a collective do not agree on the group");
    sent.push_back(member.sent.at(static_cast<int>(index)).get());
    if (collective.ranks[i] == rank) me = i;
  }
  const auto element = [&](const std::vector<std::int64_t>& counts, std::size_t part) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < part; ++i) offset += counts[i];
    return static_cast<std::ptrdiff_t>(offset);
  };
  std::vector<double> received;
  const auto append = [&received](const std::vector<double>& from, std::ptrdiff_t begin,
                                  std::int64_t count) {
    received.insert(received.end(), from.begin() + begin, from.begin() + begin + count);
  };
  std::vector<double> sum(sent.front().size(), 0.0);
  if (collective.kind == CollectiveKind::all_reduce ||
      collective.kind == CollectiveKind::reduce_scatter) {
    for (const std::vector<double>& term : sent) {
      demand(term.size() == sum.size(), "terms of a sum differ in size");
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
    }
  }
  switch (collective.kind) {
    case CollectiveKind::all_reduce:
      received = sum;
      break;
    case CollectiveKind::reduce_scatter:
      append(sum, element(collective.receive_counts, me), collective.receive_counts[me]);
      break;
    case CollectiveKind::all_gather:
      for (std::size_t i = 0; i < sent.size(); ++i) {
        append(sent[i], 0, collective.receive_counts[i]);
      }
      break;
    case CollectiveKind::all_to_all:
      for (std::size_t i = 0; i < sent.size(); ++i) {
        const Collective& theirs =
            ranks_[static_cast<std::size_t>(collective.ranks[i])]->program.collectives[index];
        demand(theirs.send_counts[me] == collective.receive_counts[i],
               "counts of an all_to_all do not agree");
        append(sent[i], element(theirs.send_counts, me), theirs.send_counts[me]);
      }
      break;
    case CollectiveKind::broadcast:
    case CollectiveKind::send_receive:
      fail("the compiler makes no such collective");
  }
  Buffer result(collective.dtype, static_cast<std::int64_t>(received.size()));
  result.set(received);
  if (result.bytes() == 0) return;
  const TensorId target = collective.receive;
  if (collective.kind == CollectiveKind::all_reduce) {
    demand(std::memcmp(here.at(target), here.sent.at(static_cast<int>(index)).data(),
                       result.bytes()) == 0,
           collective.label + ": its memory changed while it was in flight");
  }
  std::memcpy(here.at(target), result.data(), result.bytes());
}

/// The whole tensor out of all ranks' parts; copies must be equal.
std::vector<double> Simulator::assemble(const Shape& shape, const layouts::Placement& placement,
                                        const std::vector<std::vector<double>>& parts) const {
  std::vector<double> whole(static_cast<std::size_t>(shape.elements()), 0.0);
  std::map<std::vector<int>, std::vector<double>> copies;  // coordinates along used axes -> part
  const layouts::AxisSet used = placement.cut_axes() | placement.pending;
  for (int rank = 0; rank < mesh_.size(); ++rank) {
    std::vector<int> coordinates;
    for (int axis = 0; axis < mesh_.axes(); ++axis) {
      if (((used >> axis) & 1U) != 0) coordinates.push_back(mesh_.coordinate(rank, axis));
    }
    const std::vector<double>& part = parts[static_cast<std::size_t>(rank)];
    const auto [known, is_new] = copies.emplace(coordinates, part);
    if (!is_new) {
      demand(known->second.size() == part.size() &&
                 (part.empty() || std::memcmp(known->second.data(), part.data(),
                                              part.size() * sizeof(double)) == 0),
             fmt::format("copies on two ranks differ (rank {})", rank));
      continue;
    }
    const Box box = layouts::box_of(shape, placement, mesh_, rank);
    std::vector<double> there = cut(whole, shape, box);
    for (std::size_t i = 0; i < there.size(); ++i) there[i] += part[i];
    paste(whole, shape, box, there);
  }
  return whole;
}

std::vector<double> Simulator::output(std::string_view name) const {
  for (std::size_t i = 0; i < program().outputs.size(); ++i) {
    if (program().outputs[i].name != name) continue;
    const ProgramTensor& tensor =
        program().tensors[static_cast<std::size_t>(program().outputs[i].tensor)];
    std::vector<std::vector<double>> parts;
    for (const auto& rank : ranks_) parts.push_back(rank->read(rank->program.outputs[i].tensor));
    return assemble(tensor.local.global, tensor.placement, parts);
  }
  fail("there is no output " + std::string(name));
}

std::vector<double> Simulator::variable(graph::VariableId id) const {
  const graph::Variable& variable = (*graph_.variables)[id];
  std::vector<std::vector<double>> parts;
  for (const auto& rank : ranks_) parts.push_back(rank->variables.at(id).get());
  return assemble(variable.shape, *variable.storage, parts);
}

}  // namespace tessera::testing
