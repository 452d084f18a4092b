// The prepared form of a program: kernels, addresses and communicators in flat lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "kernels/device.h"
#include "runtime/compile/program.h"
#include "runtime/exec/executor.h"

namespace tessera::exec {

/// One instruction, ready to run.
struct Step {
  enum class Kind : std::uint8_t { compute, start, wait };
  Kind kind = Kind::compute;
  graph::Kernel kernel;             // compute
  std::uint32_t first_operand = 0;  // position in the list of all operands
  std::uint32_t first_result = 0;   // position in the list of all results
  void* workspace = nullptr;
  std::uint32_t first_in_flight = 0;  // communicators that are given time after the step
  std::uint32_t end_in_flight = 0;
  int collective = -1;  // start and wait
};

class Steps {
 public:
  /// Chooses kernels and makes communicators: collective where the program has collectives.
  void prepare(const compile::Program& program, comm::World& world, const kernels::Device& device);
  /// Turns tensors into addresses. Throws internal where a tensor lies outside the arena or a
  /// variable has another size in memory.
  void resolve(const compile::Program& program, Storage& storage, Arena& arena);
  bool resolved() const { return resolved_; }
  void set_inputs(std::span<const void* const> inputs);

  const std::vector<Step>& list() const { return steps_; }
  const void* const* operands(const Step& step) const {
    return operands_.data() + step.first_operand;
  }
  void* const* results(const Step& step) const { return results_.data() + step.first_result; }
  std::span<comm::Communicator* const> in_flight(const Step& step) const {
    return {in_flight_.data() + step.first_in_flight, in_flight_.data() + step.end_in_flight};
  }
  void start(const Step& step);
  void wait(const Step& step);
  const void* address(compile::TensorId tensor) const;

 private:
  struct Exchange {
    const compile::Collective* plan = nullptr;
    comm::Communicator* communicator = nullptr;
    std::string label;  // what it carries: the communicator adds the kind
    const void* send = nullptr;
    void* receive = nullptr;
    comm::Request request = 0;
  };
  /// An address that is known only when a step begins.
  struct InputUse {
    const void** target;
    int input;
  };

  void prepare_compute(const compile::Program& program, const compile::Instruction& instruction,
                       const kernels::Device& device, Step& step);
  void note_in_flight(Step& step, const std::vector<int>& started);
  static void* place(const compile::ProgramTensor& tensor, Storage& storage, Arena& arena);

  std::vector<Step> steps_;
  std::vector<compile::TensorId> operand_ids_, result_ids_;  // of all steps, one after another
  std::vector<const void*> operands_;
  std::vector<void*> results_;
  std::vector<comm::Communicator*> in_flight_;
  std::vector<Exchange> exchanges_;
  std::vector<InputUse> input_uses_;
  std::vector<void*> addresses_;           // by TensorId; of inputs: set with the inputs
  std::vector<compile::TensorId> inputs_;  // by position
  bool resolved_ = false;
};

}  // namespace tessera::exec
