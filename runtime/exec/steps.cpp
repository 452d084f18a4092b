// Preparation: all look-ups, strings and allocations of a program happen here, none while it runs.
#include "runtime/exec/steps.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace tessera::exec {
namespace {

using compile::Collective;
using compile::CollectiveKind;
using compile::Instruction;
using compile::Program;
using compile::ProgramTensor;
using compile::TensorId;

const ProgramTensor& tensor_of(const Program& program, TensorId id) {
  check(id >= 0 && static_cast<std::size_t>(id) < program.tensors.size(),
        "executor: there is no such tensor");
  return program.tensors[static_cast<std::size_t>(id)];
}

std::int64_t total(const std::vector<std::int64_t>& counts) {
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) sum += count;
  return sum;
}

/// Elements that the executor will ask the communicator to move, by the plan's way of counting.
std::int64_t elements_issued(const Collective& collective) {
  switch (collective.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::broadcast:
      return collective.elements;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
      return total(collective.receive_counts);
    case CollectiveKind::all_to_all:
    case CollectiveKind::send_receive:
      break;
  }
  return -1;  // parts of other members are not known here
}

void verify(const Collective& collective) {
  const auto size = static_cast<std::int64_t>(size_of(collective.dtype));
  const std::int64_t issued = elements_issued(collective);
  const bool in_place =
      collective.kind == CollectiveKind::all_reduce || collective.kind == CollectiveKind::broadcast;
  const bool exchange = collective.kind == CollectiveKind::all_to_all ||
                        collective.kind == CollectiveKind::send_receive;
  const char* problem = nullptr;
  if (collective.bytes != collective.elements * size) problem = "bytes are not elements times size";
  if (issued >= 0 && issued != collective.elements)
    problem = "counts do not add up to its elements";
  if (in_place && collective.send >= 0 && collective.send != collective.receive) {
    problem = "it is in place but has two buffers";
  }
  if (!in_place && collective.receive_counts.size() != collective.ranks.size()) {
    problem = "it has not one count a member";
  }
  if (exchange && collective.send_counts.size() != collective.ranks.size()) {
    problem = "it has not one count a member";
  }
  if (problem != nullptr) throw Error(Error::Kind::internal, collective.label + ": " + problem);
}

/// "dense/kernel and 3 others"
std::string label_of(const Collective& collective) {
  if (collective.for_paths.empty()) return collective.label;
  std::string label = collective.for_paths.front();
  const std::size_t others = collective.for_paths.size() - 1;
  if (others > 0) label += " and " + std::to_string(others) + (others > 1 ? " others" : " other");
  return label;
}

}  // namespace

void Steps::prepare(const Program& program, comm::World& world, const kernels::Device& device) {
  exchanges_.reserve(program.collectives.size());
  for (const Collective& collective : program.collectives) {
    verify(collective);
    Exchange exchange;
    exchange.plan = &collective;
    exchange.communicator = &world.group(collective.ranks);
    exchange.label = label_of(collective);
    exchanges_.push_back(std::move(exchange));
  }
  inputs_ = program.inputs;
  std::vector<int> started;
  for (const Instruction& instruction : program.instructions) {
    Step step;
    step.collective = instruction.collective;
    switch (instruction.kind) {
      case Instruction::Kind::compute:
        prepare_compute(program, instruction, device, step);
        break;
      case Instruction::Kind::start:
        step.kind = Step::Kind::start;
        started.push_back(instruction.collective);
        break;
      case Instruction::Kind::wait:
        step.kind = Step::Kind::wait;
        std::erase(started, instruction.collective);
        break;
    }
    note_in_flight(step, started);
    steps_.push_back(std::move(step));
  }
}

void Steps::prepare_compute(const Program& program, const Instruction& instruction,
                            const kernels::Device& device, Step& step) {
  graph::LocalCall call;
  step.first_operand = static_cast<std::uint32_t>(operand_ids_.size());
  step.first_result = static_cast<std::uint32_t>(result_ids_.size());
  for (const TensorId id : instruction.inputs) {
    call.inputs.push_back(tensor_of(program, id).local);
    operand_ids_.push_back(id);
  }
  for (const TensorId id : instruction.outputs) {
    call.outputs.push_back(tensor_of(program, id).local);
    result_ids_.push_back(id);
  }
  check(instruction.op->workspace_bytes(call) <= instruction.workspace_bytes,
        "executor: the plan has less workspace than the op needs");
  step.kernel = instruction.op->prepare(call, device);
}

void Steps::note_in_flight(Step& step, const std::vector<int>& started) {
  step.first_in_flight = static_cast<std::uint32_t>(in_flight_.size());
  for (const int collective : started) {
    comm::Communicator* communicator =
        exchanges_[static_cast<std::size_t>(collective)].communicator;
    const auto begin = in_flight_.begin() + step.first_in_flight;
    if (communicator->size() > 1 &&
        std::find(begin, in_flight_.end(), communicator) == in_flight_.end()) {
      in_flight_.push_back(communicator);
    }
  }
  step.end_in_flight = static_cast<std::uint32_t>(in_flight_.size());
}

void* Steps::place(const ProgramTensor& tensor, Storage& storage, Arena& arena) {
  switch (tensor.space) {
    case ProgramTensor::Space::arena:
      check(tensor.offset >= 0 && tensor.offset + tensor.bytes() <= arena.bytes(),
            "executor: a tensor reaches beyond the arena");
      return arena.data() + tensor.offset;
    case ProgramTensor::Space::variable:
      // A reshaped view of a variable has its own shape over the same elements.
      if (storage.box(tensor.variable).elements() != tensor.local.box.elements()) {
        throw Error(Error::Kind::internal,
                    "variable " + storage.table()[tensor.variable].path + ": the program expects " +
                        to_string(tensor.local.box.size) + ", memory holds " +
                        to_string(storage.box(tensor.variable).size));
      }
      return storage.data(tensor.variable);
    case ProgramTensor::Space::input:
      break;
  }
  return nullptr;
}

void Steps::resolve(const Program& program, Storage& storage, Arena& arena) {
  addresses_.clear();
  input_uses_.clear();
  for (const ProgramTensor& tensor : program.tensors) {
    addresses_.push_back(place(tensor, storage, arena));
  }
  operands_.resize(operand_ids_.size());
  results_.resize(result_ids_.size());
  const auto resolve_operand = [&](TensorId id, const void** target) {
    const ProgramTensor& tensor = tensor_of(program, id);
    *target = addresses_[static_cast<std::size_t>(id)];
    if (tensor.space == ProgramTensor::Space::input) input_uses_.push_back({target, tensor.input});
  };
  for (std::size_t i = 0; i < operands_.size(); ++i)
    resolve_operand(operand_ids_[i], &operands_[i]);
  for (std::size_t i = 0; i < results_.size(); ++i) {
    check(tensor_of(program, result_ids_[i]).space != ProgramTensor::Space::input,
          "executor: an instruction writes to an input");
    results_[i] = addresses_[static_cast<std::size_t>(result_ids_[i])];
  }
  for (Exchange& exchange : exchanges_) {
    const TensorId receive = exchange.plan->receive;
    check(tensor_of(program, receive).space != ProgramTensor::Space::input,
          "executor: a collective writes to an input");
    exchange.receive = addresses_[static_cast<std::size_t>(receive)];
    if (exchange.plan->send >= 0) resolve_operand(exchange.plan->send, &exchange.send);
  }
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.workspace_bytes <= 0) continue;
    check(instruction.workspace_offset + instruction.workspace_bytes <= arena.bytes(),
          "executor: a workspace reaches beyond the arena");
    steps_[i].workspace = arena.data() + instruction.workspace_offset;
  }
  resolved_ = true;
}

void Steps::set_inputs(std::span<const void* const> inputs) {
  for (const InputUse& use : input_uses_) *use.target = inputs[static_cast<std::size_t>(use.input)];
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    // Only read: outputs that are inputs give them back as they came.
    addresses_[static_cast<std::size_t>(inputs_[i])] = const_cast<void*>(inputs[i]);
  }
}

void Steps::start(const Step& step) {
  Exchange& exchange = exchanges_[static_cast<std::size_t>(step.collective)];
  const Collective& plan = *exchange.plan;
  comm::Communicator& group = *exchange.communicator;
  const char* label = exchange.label.c_str();
  switch (plan.kind) {
    case CollectiveKind::all_reduce:
      exchange.request = group.start_all_reduce(exchange.receive, plan.elements, plan.dtype,
                                                comm::ReduceKind::sum, label);
      return;
    case CollectiveKind::all_gather:
      exchange.request = group.start_all_gather(exchange.send, exchange.receive,
                                                plan.receive_counts, plan.dtype, label);
      return;
    case CollectiveKind::reduce_scatter:
      exchange.request = group.start_reduce_scatter(exchange.send, exchange.receive,
                                                    plan.receive_counts, plan.dtype, label);
      return;
    case CollectiveKind::all_to_all:
    case CollectiveKind::send_receive:
      exchange.request = group.start_all_to_all(exchange.send, plan.send_counts, exchange.receive,
                                                plan.receive_counts, plan.dtype, label);
      return;
    case CollectiveKind::broadcast:
      exchange.request =
          group.start_broadcast(exchange.receive, plan.elements, plan.dtype, 0, label);
      return;
  }
}

void Steps::wait(const Step& step) {
  const Exchange& exchange = exchanges_[static_cast<std::size_t>(step.collective)];
  exchange.communicator->wait(exchange.request);
}

const void* Steps::address(TensorId tensor) const {
  check(resolved_, "executor: the program has not run");
  return addresses_[static_cast<std::size_t>(tensor)];
}

}  // namespace tessera::exec
