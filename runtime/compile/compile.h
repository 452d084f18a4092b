// From a step's graph and the placements of its variables to one rank's program.
#pragma once

#include <cstdint>

#include "layouts/mesh.h"
#include "runtime/compile/program.h"
#include "runtime/graph/graph.h"

namespace tessera::compile {

struct Options {
  bool fuse = true;
  /// Gradient all-reduces are joined up to this many bytes.
  std::int64_t bucket_bytes = std::int64_t{32} << 20U;
  /// How much of a large product is made at a time where the update reads it: fits a cache.
  std::int64_t panel_bytes = std::int64_t{8} << 20U;
  bool with_reports = true;  // values, decisions: off for speed where nobody reads them
};

/// Compiles for `rank`. Storage placements of variables must be set, but for metric variables (Role::metric): theirs, pending sums
/// included, is chosen by the first compilation that meets them and written into the graph's variable table. Inputs: pinned where
/// the graph pins them, else replicated. The same graph gives programs with equal hashes on all ranks. Each pass is followed by a check of its result
/// (internal errors). TESSERA_DUMP=graph,placement,program prints to standard error on rank 0.
Program compile(const graph::Graph& graph, const layouts::Mesh& mesh, int rank, const Options& options = {});

}  // namespace tessera::compile
