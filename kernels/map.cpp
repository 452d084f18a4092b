// Names of element-wise operations, and programs as text.
#include "kernels/map.h"

#include <fmt/format.h>

namespace tessera::kernels {
namespace {

constexpr std::array<std::string_view, kMapCodes> kNames = {
    "copy",      "negate",   "abs",        "sign",    "exp",           "expm1",       "log",
    "log1p",     "sqrt",     "rsqrt",      "square",  "reciprocal",    "sin",         "cos",
    "tanh",      "sigmoid",  "softplus",   "erf",     "floor",         "ceil",        "round",
    "relu",      "gelu_erf", "gelu_tanh",  "silu",    "is_finite",     "logical_not", "add",
    "subtract",  "multiply", "divide",     "power",   "maximum",       "minimum",     "equal",
    "not_equal", "less",     "less_equal", "greater", "greater_equal", "logical_and", "logical_or",
    "select"};

std::string to_string(const MapOperand& operand) {
  switch (operand.kind) {
    case MapOperand::Kind::input:
      return fmt::format("x{}", operand.index);
    case MapOperand::Kind::step:
      return fmt::format("t{}", operand.index);
    case MapOperand::Kind::constant:
      // All digits: the text is part of the keys of equal nodes.
      return fmt::format("{}", operand.constant);
  }
  return "";
}

}  // namespace

std::string_view name_of(MapCode code) { return kNames[static_cast<std::size_t>(code)]; }

int operands_of(MapCode code) {
  if (code == MapCode::select) return 3;
  return code >= MapCode::add ? 2 : 1;
}

bool gives_boolean(MapCode code) {
  return (code >= MapCode::equal && code <= MapCode::logical_or) || code == MapCode::is_finite ||
         code == MapCode::logical_not;
}

std::string to_string(const MapProgram& program) {
  std::string text;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const MapStep& step = program.steps[i];
    if (i > 0) text += "; ";
    if (program.steps.size() > 1) text += fmt::format("t{} = ", i);
    text += name_of(step.code);
    for (int j = 0; j < operands_of(step.code); ++j) {
      text += (j == 0 ? "(" : ", ") + to_string(step.operands[static_cast<std::size_t>(j)]);
    }
    text += ")";
  }
  const bool plain = program.steps.size() == 1 && program.results.size() == 1;
  for (std::size_t i = 0; !plain && i < program.results.size(); ++i) {
    text += fmt::format("{}t{}", i == 0 ? " -> " : ", ", program.results[i]);
  }
  if (program.wide) text += " wide";
  return text;
}

}  // namespace tessera::kernels
