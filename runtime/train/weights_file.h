// Weights in and out: whole tensors by variable path, without any rank holding a whole sharded
// tensor.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "runtime/exec/executor.h"
#include "runtime/io/array_file.h"

namespace tessera::train {

/// Reads variables of role weight from .safetensors or .npz by path and shape. All missing, extra
/// and misshapen tensors are named in one weights error; integers are refused, float16, bfloat16
/// and float64 converted. `partial`: takes what fits and returns one line for each that does not.
/// Every rank reads only its part.
std::vector<std::string> load_weights(exec::Storage& storage, const std::string& path,
                                      bool partial);

/// What load_weights would refuse, from the names and shapes alone: nothing is allocated or read of
/// the values.
void check_weights(const graph::VariableTable& table, const std::string& path, bool partial);

/// Writes variables of role weight as float32 .safetensors, atomically, from rank 0; the bytes do
/// not depend on the mesh. Collective; an error of rank 0 is thrown on every rank.
void save_weights(exec::Storage& storage, comm::World& world, const std::string& path);

/// Reads this rank's part of a variable from an array of its shape, converted to the variable's
/// dtype. Not for pending sums.
void read_variable(const io::ArrayFile& file, int array, exec::Storage& storage,
                   graph::VariableId id);

}  // namespace tessera::train
