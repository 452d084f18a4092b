// The passes in their order.
#include "runtime/compile/compile.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "runtime/compile/bucket.h"
#include "runtime/compile/draft.h"
#include "runtime/compile/emit.h"
#include "runtime/compile/epilogue.h"
#include "runtime/compile/fuse.h"
#include "runtime/compile/hash.h"
#include "runtime/compile/memory.h"
#include "runtime/compile/panels.h"
#include "runtime/compile/propagate.h"
#include "runtime/compile/reshard.h"
#include "runtime/compile/schedule.h"
#include "runtime/compile/simplify.h"
#include "runtime/compile/verify.h"

namespace tessera::compile {
namespace {

/// Does the comma-separated list in TESSERA_DUMP name this stage?
bool is_dumped(std::string_view stage) {
  const char* list = std::getenv("TESSERA_DUMP");
  if (list == nullptr) return false;
  std::string_view rest = list;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    if (rest.substr(0, comma) == stage) return true;
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  return false;
}

void dump(std::string_view stage, int rank, const std::string& text) {
  if (rank == 0) fmt::print(stderr, "---- {}\n{}", stage, text);
}

}  // namespace

Program compile(const graph::Graph& graph, const layouts::Mesh& mesh, int rank,
                const Options& options) {
  check(rank >= 0 && rank < mesh.size(), "compile: no such rank");
  const graph::Graph simple = simplify(graph, mesh.size() > 1);
  graph::verify(simple);
  if (is_dumped("graph")) dump("graph", rank, graph::to_string(simple));
  Draft draft = propagate(simple, mesh, options.with_reports);
  if (is_dumped("placement")) dump("placement", rank, to_string(draft));
  if (options.fuse) {
    fuse_epilogues(draft);
    fuse(draft);
    join_products(draft, options.panel_bytes);
  }
  lower_conversions(draft, rank);
  join_gradient_reductions(draft, options.bucket_bytes);
  const std::vector<Event> events = schedule(draft);
  const MemoryPlan memory = plan_memory(draft, events, rank);
  Program program = emit(draft, events, memory, rank);
  program.hash = hash_of(draft, events);
  if (is_dumped("program")) dump("program", rank, to_string(program));
  verify(program);
  return program;
}

}  // namespace tessera::compile
