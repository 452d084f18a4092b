// Which ranks have the parts of a variable.
#pragma once

#include <vector>

#include "layouts/mesh.h"
#include "runtime/graph/graph.h"

namespace tessera::exec {

struct Holder {
  int rank = 0;
  Box box;
};

/// One rank for every part (and every term of a pending sum), by rising rank: the first among those
/// with copies. Rank 0 is always one.
std::vector<Holder> holders_of(const graph::Variable& variable, const layouts::Mesh& mesh);

/// True on the ranks that hold the value when a pending sum is written as a whole; the others hold
/// zero.
bool keeps_pending_value(const graph::Variable& variable, const layouts::Mesh& mesh, int rank);

}  // namespace tessera::exec
