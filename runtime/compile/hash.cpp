// A hash over a scheduled draft.
#include "runtime/compile/hash.h"

#include <string_view>

namespace tessera::compile {
namespace {

class Hash {
 public:
  void add(std::uint64_t number) {
    for (int i = 0; i < 8; ++i) add_byte(static_cast<unsigned char>(number >> (8 * i)));
  }
  void add(std::string_view text) {
    add(static_cast<std::uint64_t>(text.size()));
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
  }
  std::uint64_t result() const { return state_; }

 private:
  void add_byte(unsigned char byte) {
    state_ ^= byte;
    state_ *= 0x100000001B3U;
  }

  std::uint64_t state_ = 0xCBF29CE484222325U;
};

void add_number(Hash& hash, std::int64_t number) { hash.add(static_cast<std::uint64_t>(number)); }

void add_value(Hash& hash, const Draft& draft, DraftId id) {
  const DraftValue& value = draft.value(id);
  add_number(hash, id);
  add_number(hash, static_cast<std::int64_t>(value.type.dtype));
  if (value.flat) return;  // its size is a rank's own
  add_number(hash, static_cast<std::int64_t>(value.type.shape.rank()));
  for (const std::int64_t size : value.type.shape) add_number(hash, size);
  hash.add(key_of(value.placement));
  if (value.source == graph::Value::Source::variable) {
    hash.add(draft.variables()[value.variable].path);
  }
  if (value.source == graph::Value::Source::input) add_number(hash, value.input);
}

void add_node(Hash& hash, const Draft& draft, const DraftNode& node) {
  add_number(hash, static_cast<std::int64_t>(node.phase));
  if (node.kind == DraftNode::Kind::compute) {
    hash.add(node.op->name());
    if (!node.internal) hash.add(node.op->attributes());
  } else {
    add_number(hash, static_cast<std::int64_t>(node.collective.kind));
    for (const int axis : node.collective.axes) add_number(hash, axis);
    for (const std::string& path : node.collective.for_paths) hash.add(path);
  }
  for (const DraftId input : node.inputs) add_value(hash, draft, input);
  for (const DraftId output : node.outputs) add_value(hash, draft, output);
}

}  // namespace

std::uint64_t hash_of(const Draft& draft, const std::vector<Event>& events) {
  Hash hash;
  for (const std::int64_t size : draft.mesh.shape()) add_number(hash, size);
  for (const std::string& name : draft.mesh.axis_names()) hash.add(name);
  for (const Event& event : events) {
    add_number(hash, static_cast<std::int64_t>(event.kind));
    add_number(hash, event.node);
    if (event.kind != Instruction::Kind::wait) add_node(hash, draft, draft.node(event.node));
  }
  for (const DraftAssignment& assignment : draft.assignments) {
    hash.add(draft.variables()[assignment.variable].path);
    add_number(hash, assignment.value);
  }
  for (const DraftOutput& output : draft.outputs) {
    hash.add(output.name);
    add_number(hash, output.value);
  }
  return hash.result();
}

}  // namespace tessera::compile
