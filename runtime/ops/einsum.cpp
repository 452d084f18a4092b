// Einstein sums of two operands as ops.
#include "runtime/ops/einsum.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "runtime/ops/einsum_plan.h"
#include "runtime/ops/ops.h"

namespace tessera::ops {
namespace {

using graph::kNoValue;
using graph::LocalCall;
using graph::LocalTensor;
using graph::ValueId;
using graph::ValueType;

bool has(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

[[noreturn]] void refuse(std::string_view equation, const std::string& reason) {
  throw Error(Error::Kind::config, fmt::format("einsum \"{}\": {}", equation, reason));
}

struct Terms {
  std::string a;
  std::string b;
  std::string c;
};

/// Throws config unless the text is "a,b->c" with letters, none twice in a term.
Terms parse(std::string_view equation) {
  const std::size_t comma = equation.find(',');
  const std::size_t arrow = equation.find("->");
  if (comma == std::string_view::npos || arrow == std::string_view::npos || comma > arrow) {
    refuse(equation, "two operands and a result are expected, as in \"ab,bc->ac\"");
  }
  Terms terms{std::string(equation.substr(0, comma)),
              std::string(equation.substr(comma + 1, arrow - comma - 1)),
              std::string(equation.substr(arrow + 2))};
  for (const std::string* term : {&terms.a, &terms.b, &terms.c}) {
    for (const char letter : *term) {
      const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
      if (!is_letter) refuse(equation, fmt::format("'{}' is not a letter", letter));
      if (std::count(term->begin(), term->end(), letter) > 1) {
        refuse(equation, fmt::format("letter '{}' comes twice in \"{}\"", letter, *term));
      }
    }
  }
  for (const char letter : terms.c) {
    if (!has(terms.a, letter) && !has(terms.b, letter)) {
      refuse(equation, fmt::format("letter '{}' of the result is in no operand", letter));
    }
  }
  return terms;
}

/// Letters renamed to a, b, c, ... in order of appearance: equal products get equal equations.
Terms canonical(const Terms& terms) {
  std::map<char, char> names;
  const auto rename = [&names](const std::string& term) {
    std::string result;
    for (const char letter : term) {
      const auto next = static_cast<char>('a' + static_cast<int>(names.size()));
      result.push_back(names.emplace(letter, next).first->second);
    }
    return result;
  };
  Terms result;
  result.a = rename(terms.a);
  result.b = rename(terms.b);
  result.c = rename(terms.c);
  return result;
}

/// Sums away the letters that only this operand has.
SymbolicTensor sum_own(SymbolicTensor x, std::string& own, const std::string& other,
                       const std::string& result) {
  std::vector<int> dims;
  std::string left;
  for (std::size_t dim = 0; dim < own.size(); ++dim) {
    if (has(other, own[dim]) || has(result, own[dim])) {
      left.push_back(own[dim]);
    } else {
      dims.push_back(static_cast<int>(dim));
    }
  }
  own = left;
  return dims.empty() ? x : sum(x, dims);
}

/// An operand with its dimensions in the order of the result, and size 1 where it has none.
SymbolicTensor align(SymbolicTensor x, const std::string& own, const std::string& result) {
  std::vector<int> order;
  Shape shape;
  for (const char letter : result) {
    const std::size_t dim = own.find(letter);
    shape.push_back(dim == std::string::npos ? 1 : x.shape()[dim]);
    if (dim != std::string::npos) order.push_back(static_cast<int>(dim));
  }
  if (!std::is_sorted(order.begin(), order.end())) x = transpose(x, order);
  return reshape(x, shape);
}

void check_operands(std::string_view equation, const Terms& terms,
                    std::span<const ValueType> inputs) {
  const std::string* letters[] = {&terms.a, &terms.b};
  std::map<char, std::int64_t> sizes;
  for (std::size_t i = 0; i < 2; ++i) {
    const Shape& shape = inputs[i].shape;
    if (shape.rank() != letters[i]->size()) {
      refuse(equation, fmt::format("operand {} has shape {}, the term \"{}\" names {} dimensions",
                                   i + 1, to_string(shape), *letters[i], letters[i]->size()));
    }
    for (std::size_t dim = 0; dim < shape.rank(); ++dim) {
      const char letter = (*letters[i])[dim];
      const auto [known, added] = sizes.emplace(letter, shape[dim]);
      if (!added && known->second != shape[dim]) {
        refuse(equation,
               fmt::format("letter '{}' stands for {} and {} in {} and {}", letter, known->second,
                           shape[dim], to_string(inputs[0].shape), to_string(inputs[1].shape)));
      }
    }
  }
  if (inputs[0].dtype != inputs[1].dtype) {
    refuse(equation,
           fmt::format("operands are {} and {}: one dtype is expected",
                       tessera::name_of(inputs[0].dtype), tessera::name_of(inputs[1].dtype)));
  }
}

}  // namespace

EinsumOp::EinsumOp(std::string_view equation, DType result, Epilogue epilogue)
    : result_(result), epilogue_(epilogue) {
  Terms terms = parse(equation);
  for (const char letter : terms.a + terms.b) {
    const int count = static_cast<int>(has(terms.a, letter)) +
                      static_cast<int>(has(terms.b, letter)) +
                      static_cast<int>(has(terms.c, letter));
    if (count < 2) refuse(equation, fmt::format("letter '{}' stands in one term only", letter));
  }
  a_ = std::move(terms.a);
  b_ = std::move(terms.b);
  c_ = std::move(terms.c);
  check(!epilogue_.bias || !bias_letters().empty(), "einsum: no bias fits this product");
}

std::string EinsumOp::bias_letters() const {
  std::size_t columns = 0;
  for (const char letter : c_) columns += has(a_, letter) ? 0U : 1U;
  const std::string tail = c_.substr(c_.size() - columns);
  const bool all =
      std::none_of(tail.begin(), tail.end(), [this](char letter) { return has(a_, letter); });
  return all ? tail : "";
}

std::shared_ptr<const EinsumOp> EinsumOp::with(DType result, Epilogue epilogue) const {
  return std::make_shared<const EinsumOp>(equation(), result, epilogue);
}

std::shared_ptr<const graph::Op> EinsumOp::with_result(DType dtype) const {
  return with(dtype, epilogue_);
}

std::string EinsumOp::attributes() const {
  std::string text = fmt::format("{} {}", equation(), tessera::name_of(result_));
  if (epilogue_.bias) text += " + bias";
  if (epilogue_.activation) text += fmt::format(" {}", kernels::name_of(*epilogue_.activation));
  return text;
}

std::vector<ValueType> EinsumOp::infer(std::span<const ValueType> inputs) const {
  check_operands(equation(), {a_, b_, c_}, inputs);
  const auto size_of_letter = [&](char letter) {
    const std::size_t dim = a_.find(letter);
    return dim != std::string::npos ? inputs[0].shape[dim] : inputs[1].shape[b_.find(letter)];
  };
  Shape shape;
  for (const char letter : c_) shape.push_back(size_of_letter(letter));
  if (epilogue_.bias) {
    Shape expected;
    for (const char letter : bias_letters()) expected.push_back(size_of_letter(letter));
    check(inputs.size() == 3 && inputs[2].shape == expected, "einsum: the bias does not fit");
  }
  return {{shape, result_}};
}

graph::Rule EinsumOp::rule(std::span<const ValueType> inputs,
                           std::span<const ValueType> outputs) const {
  graph::Rule rule{{a_, b_}, {c_}, {}};
  if (epilogue_.bias) rule.operands.push_back(bias_letters());
  if (epilogue_.bias || epilogue_.activation) {
    // Parts of a sum must be added before the bias and the activation: summed letters stay whole.
    for (std::string* term : {&rule.operands[0], &rule.operands[1]}) {
      for (char& letter : *term) {
        if (!has(c_, letter)) letter = static_cast<char>(letter - 'a' + 'A');
      }
    }
    return rule;
  }
  const bool narrows = size_of(outputs[0].dtype) < size_of(inputs[0].dtype);
  if (!narrows) rule.linear = {0b01, 0b10};
  return rule;
}

std::vector<ValueId> EinsumOp::gradient(const graph::GradientCall& call) const {
  check(!epilogue_.bias && !epilogue_.activation,
        "gradients are taken before a product gets an epilogue");
  graph::Builder& builder = call.builder;
  const SymbolicTensor a = builder.wrap(call.inputs[0]);
  const SymbolicTensor b = builder.wrap(call.inputs[1]);
  const SymbolicTensor g = cast(builder.wrap(call.output_gradients[0]), a.dtype());
  std::vector<ValueId> gradients(2, kNoValue);
  if (call.wanted[0]) gradients[0] = einsum(c_ + "," + b_ + "->" + a_, g, b).id;
  if (call.wanted[1]) gradients[1] = einsum(a_ + "," + c_ + "->" + b_, a, g).id;
  return gradients;
}

double EinsumOp::flops(const LocalCall& call) const {
  double product = 2.0 * static_cast<double>(call.inputs[0].box.elements());
  for (std::size_t dim = 0; dim < b_.size(); ++dim) {
    if (!has(a_, b_[dim])) product *= static_cast<double>(call.inputs[1].box.size[dim]);
  }
  return product;
}

EinsumPlan plan_of(const EinsumOp& op, const LocalCall& call) {
  const auto term = [](const std::string& letters, const LocalTensor& tensor) -> EinsumTerm {
    return {letters, tensor.shape(), tensor.dtype};
  };
  std::optional<DType> bias;
  if (op.epilogue().bias) bias = call.inputs[2].dtype;
  return plan_einsum(term(op.a(), call.inputs[0]), term(op.b(), call.inputs[1]),
                     term(op.c(), call.outputs[0]), bias, op.epilogue().activation);
}

std::int64_t EinsumOp::workspace_bytes(const LocalCall& call) const {
  return plan_of(*this, call).workspace_bytes;
}

graph::Kernel EinsumOp::prepare(const LocalCall& call, const kernels::Device& device) const {
  return std::visit(
      [&](const auto& which) -> graph::Kernel {
        const EinsumPlan plan = plan_of(*this, call);
        kernels::MatmulKernel product = kernels::prepare_matmul(plan.product, which);
        const bool bias = epilogue_.bias;
        if (plan.workspace_bytes == 0) {
          return [product = std::move(product), bias, swapped = plan.swapped](
                     const void* const* in, void* const* out, void* /*workspace*/,
                     const graph::StepState& /*step*/) {
            product(in[swapped ? 1 : 0], in[swapped ? 0 : 1], bias ? in[2] : nullptr, out[0],
                    nullptr);
          };
        }
        return [product = std::move(product), bias, plan, which](const void* const* in,
                                                                 void* const* out, void* workspace,
                                                                 const graph::StepState& /*step*/) {
          auto* memory = static_cast<std::byte*>(workspace);
          const void* a = in[0];
          const void* b = in[1];
          if (plan.copy_a) {
            kernels::strided_copy(*plan.copy_a, a, memory + plan.place_a, which);
            a = memory + plan.place_a;
          }
          if (plan.copy_b) {
            kernels::strided_copy(*plan.copy_b, b, memory + plan.place_b, which);
            b = memory + plan.place_b;
          }
          if (plan.swapped) std::swap(a, b);
          void* c = plan.copy_c ? memory + plan.place_c : out[0];
          product(a, b, bias ? in[2] : nullptr, c, memory + plan.place_product);
          if (plan.copy_c) kernels::strided_copy(*plan.copy_c, c, out[0], which);
        };
      },
      device);
}

SymbolicTensor einsum(std::string_view equation, SymbolicTensor a, SymbolicTensor b, DType result) {
  const Terms given = parse(equation);
  const ValueType types[] = {{a.shape(), a.dtype()}, {b.shape(), b.dtype()}};
  check_operands(equation, given, types);
  Terms terms = canonical(given);
  a = sum_own(a, terms.a, terms.b, terms.c);
  b = sum_own(b, terms.b, terms.a, terms.c);
  const bool sums = std::any_of(terms.a.begin(), terms.a.end(),
                                [&](char letter) { return !has(terms.c, letter); });
  if (!sums) {
    // Nothing to add up: a product of broadcast operands.
    const DType wide = size_of(result) > size_of(a.dtype()) ? result : a.dtype();
    a = align(cast(a, wide), terms.a, terms.c);
    b = align(cast(b, wide), terms.b, terms.c);
    return cast(a * b, result);
  }
  return a.builder->add_one(
      std::make_shared<const EinsumOp>(terms.a + "," + terms.b + "->" + terms.c, result), {{a, b}});
}

SymbolicTensor einsum(std::string_view equation, SymbolicTensor a, SymbolicTensor b) {
  return einsum(equation, a, b, a.dtype());
}

SymbolicTensor matmul(SymbolicTensor x, SymbolicTensor w) {
  if (x.rank() < 1 || w.rank() != 2) {
    throw Error(Error::Kind::config,
                fmt::format("matmul of {} and {}: [..., k] and [k, n] are expected",
                            to_string(x.shape()), to_string(w.shape())));
  }
  std::string rows;
  for (std::size_t dim = 0; dim + 1 < x.rank(); ++dim) {
    rows.push_back(static_cast<char>('a' + static_cast<int>(dim)));
  }
  return einsum(rows + "y,yz->" + rows + "z", x, w);
}

}  // namespace tessera::ops
