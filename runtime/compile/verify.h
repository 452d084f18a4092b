// Proof that a program uses its memory soundly.
#pragma once

#include "runtime/compile/program.h"

namespace tessera::compile {

/// Walks the instructions and throws internal where: an operand or an output does not hold what was
/// written for it (never written, or overwritten since by something else), a result lies over a
/// tensor that is still needed or over an operand that the op does not let it replace, memory of a
/// collective in flight is touched, a collective starts or is waited for other than once, or a
/// tensor reaches beyond the arena.
void verify(const Program& program);

}  // namespace tessera::compile
