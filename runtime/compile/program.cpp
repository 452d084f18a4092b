// Names, sizes and the text form of programs.
#include "runtime/compile/program.h"

#include <fmt/format.h>

namespace tessera::compile {

std::int64_t ProgramTensor::bytes() const { return local.bytes(); }

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return "all_reduce";
    case CollectiveKind::all_gather:
      return "all_gather";
    case CollectiveKind::reduce_scatter:
      return "reduce_scatter";
    case CollectiveKind::all_to_all:
      return "all_to_all";
    case CollectiveKind::broadcast:
      return "broadcast";
    case CollectiveKind::send_receive:
      return "send_receive";
  }
  return "";
}

namespace {

std::string show(const Program& program, TensorId id) {
  const ProgramTensor& tensor = program.tensors[static_cast<std::size_t>(id)];
  std::string where;
  switch (tensor.space) {
    case ProgramTensor::Space::arena:
      where = fmt::format("@{}", tensor.offset);
      break;
    case ProgramTensor::Space::variable:
      where = fmt::format("variable {}", tensor.variable);
      break;
    case ProgramTensor::Space::input:
      where = fmt::format("input {}", tensor.input);
      break;
  }
  return fmt::format("t{}{} {}{} {}", id, tensor.path.empty() ? "" : " \"" + tensor.path + "\"",
                     name_of(tensor.local.dtype), to_string(tensor.local.shape()), where);
}

std::string show(const Program& program, const std::vector<TensorId>& ids) {
  std::string text;
  for (const TensorId id : ids) text += (text.empty() ? "" : ", ") + show(program, id);
  return text;
}

}  // namespace

std::string to_string(const Program& program) {
  std::string text = fmt::format("rank {} of {}, arena {} bytes, hash {:016x}\n", program.rank,
                                 program.mesh.size(), program.arena_bytes, program.hash);
  for (const Instruction& instruction : program.instructions) {
    if (instruction.kind == Instruction::Kind::compute) {
      text += fmt::format("{} = {}{{{}}}({})", show(program, instruction.outputs),
                          instruction.op->name(), instruction.op->attributes(),
                          show(program, instruction.inputs));
    } else {
      const Collective& collective =
          program.collectives[static_cast<std::size_t>(instruction.collective)];
      const bool starts = instruction.kind == Instruction::Kind::start;
      text += fmt::format("{} {} [{}]: {} -> {}, {} elements; {}", starts ? "start" : "wait",
                          collective.label, fmt::join(collective.ranks, ", "),
                          show(program, collective.send), show(program, collective.receive),
                          collective.elements, collective.reason);
    }
    text += fmt::format("  # {} {}\n", graph::name_of(instruction.phase), instruction.path);
  }
  for (const ProgramOutput& output : program.outputs) {
    text += fmt::format("output {} = {}\n", output.name, show(program, output.tensor));
  }
  return text;
}

}  // namespace tessera::compile
