// Regularizers: penalties of weights and activity.
#include "base/error.h"
#include "runtime/ops/ops.h"
#include "runtime/train/named_entry.h"
#include "runtime/train/weight_rules.h"

namespace tessera::train {
namespace {

using graph::SymbolicTensor;
using ops::operator+;
using ops::operator*;
using Regularizer = std::function<SymbolicTensor(SymbolicTensor)>;

SymbolicTensor l1_penalty(SymbolicTensor x, double factor) {
  return ops::sum(ops::abs(x)) * factor;
}
SymbolicTensor l2_penalty(SymbolicTensor x, double factor) {
  return ops::sum(ops::square(x)) * factor;
}

Regularizer l1_l2_of(double l1, double l2) {
  return [=](SymbolicTensor x) {
    if (l2 == 0.0) return l1_penalty(x, l1);
    if (l1 == 0.0) return l2_penalty(x, l2);
    return l1_penalty(x, l1) + l2_penalty(x, l2);
  };
}

Regularizer l1(json::Arguments& arguments) {
  return l1_l2_of(arguments.number("l1", 0.01, 0.0), 0.0);
}

Regularizer l2(json::Arguments& arguments) {
  const double factor = arguments.number("l2", 0.01, 0.0);
  return [=](SymbolicTensor x) { return l2_penalty(x, factor); };
}

Regularizer l1_l2(json::Arguments& arguments) {
  return l1_l2_of(arguments.number("l1", 0.0, 0.0), arguments.number("l2", 0.0, 0.0));
}

/// The shortcut function: both factors have a default.
Regularizer l1_l2_by_name(json::Arguments& arguments) {
  return l1_l2_of(arguments.number("l1", 0.01, 0.0), arguments.number("l2", 0.01, 0.0));
}

/// Mean |cosine| of different rows (or columns), each pair once.
SymbolicTensor orthogonality_penalty(SymbolicTensor x, double factor, bool rows) {
  if (x.rank() != 2) {
    throw Error(
        Error::Kind::config,
        fmt::format("Inputs to OrthogonalRegularizer must have rank 2. Received a weight of "
                    "shape {}",
                    to_string(x.shape())));
  }
  const std::int64_t size = x.shape()[rows ? 0 : 1];
  if (size < 2) return ops::sum(x) * 0.0;
  // The limit keeps the gradient of an all-zero row finite.
  const SymbolicTensor squares = ops::sum(ops::square(x), {rows ? 1 : 0}, true);
  const SymbolicTensor unit = x * ops::rsqrt(ops::maximum(squares, 1e-12));
  const SymbolicTensor product = ops::einsum(rows ? "mk,nk->mn" : "km,kn->mn", unit, unit);
  const SymbolicTensor different = ops::not_equal(ops::iota(*x.builder, {size, size}, 0),
                                                  ops::iota(*x.builder, {size, size}, 1));
  const double pairs = static_cast<double>(size) * static_cast<double>(size - 1) / 2.0;
  return ops::sum(ops::abs(product * ops::cast(different, x.dtype()))) * (factor * 0.5 / pairs);
}

Regularizer orthogonal(json::Arguments& arguments) {
  const double factor = arguments.number("factor", 0.01, 0.0);
  const bool rows = arguments.choice("mode", "rows", {"rows", "columns"}) == "rows";
  return [=](SymbolicTensor x) { return orthogonality_penalty(x, factor, rows); };
}

struct Entry {
  const char* name;
  const char* alias;
  Regularizer (*make)(json::Arguments&);
};
constexpr Entry kRegularizers[] = {
    {"L1", "l1", l1},
    {"L2", "l2", l2},
    {"L1L2", "l1l2", l1_l2},
    {"l1_l2", nullptr, l1_l2_by_name},
    {"OrthogonalRegularizer", "orthogonal_regularizer", orthogonal},
};

}  // namespace

Regularizer make_regularizer(const json::Value& value, const std::string& path,
                             json::Problems& problems) {
  if (value.is_null()) return {};
  const json::Identifier identifier = json::read_identifier(value, path, problems);
  const Entry* entry =
      find_entry(std::span<const Entry>(kRegularizers), identifier, "regularizer", path, problems);
  if (entry == nullptr) return {};
  json::Arguments arguments(*identifier.config, config_path(value, path), problems);
  Regularizer regularizer = entry->make(arguments);
  arguments.finish("argument");
  return regularizer;
}

}  // namespace tessera::train
