// Memory of a rank's parts of variables, and scratch memory of its programs.
#include "base/error.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/memory.h"

namespace tessera::exec {

/// Memory of one variable; `placed` is false until its placement is known.
struct Storage::Part {
  Box box;
  std::byte* memory = nullptr;
  std::int64_t bytes = 0;
  bool placed = false;
};

Storage::Storage(const graph::VariableTable& table, const layouts::Mesh& mesh, int rank)
    : table_(&table), mesh_(mesh), rank_(rank) {
  extend();
}

Storage::~Storage() {
  for (const Part& part : parts_) release(part.memory, part.bytes);
}

void Storage::extend() {
  parts_.resize(table_->size());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const graph::Variable& variable = (*table_)[static_cast<graph::VariableId>(i)];
    Part& part = parts_[i];
    if (part.placed || !variable.storage) continue;
    part.box = layouts::box_of(variable.shape, *variable.storage, mesh_, rank_);
    part.bytes = part.box.elements() * static_cast<std::int64_t>(size_of(variable.dtype));
    part.memory = allocate_zeroed(part.bytes);
    part.placed = true;
  }
}

const Storage::Part& Storage::part(graph::VariableId id) const {
  const auto at = static_cast<std::size_t>(id);
  if (id < 0 || at >= parts_.size() || !parts_[at].placed) {
    const bool known = id >= 0 && at < table_->size();
    throw Error(Error::Kind::internal, "variable " +
                                           (known ? (*table_)[id].path : std::to_string(id)) +
                                           " has no memory: its placement is not known");
  }
  return parts_[at];
}

void* Storage::data(graph::VariableId id) { return part(id).memory; }

const void* Storage::data(graph::VariableId id) const { return part(id).memory; }

const Box& Storage::box(graph::VariableId id) const { return part(id).box; }

std::int64_t Storage::local_bytes() const {
  std::int64_t bytes = 0;
  for (const Part& part : parts_) bytes += part.bytes;
  return bytes;
}

Arena::~Arena() { release(data_, bytes_); }

void Arena::reserve(std::int64_t bytes) {
  if (bytes <= bytes_) return;
  release(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
  data_ = allocate_zeroed(bytes);
  bytes_ = bytes;
}

}  // namespace tessera::exec
