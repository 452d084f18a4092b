// Functions that add ops to a graph: the vocabulary of layers, losses, metrics and optimizers.
// Shapes broadcast as in NumPy. Binary functions take operands of one dtype (cast first).
// Dimensions may be negative (from the end).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/builder.h"
#include "runtime/ops/map_codes.h"

namespace tessera::ops {

using graph::SymbolicTensor;

// ---- element-wise (runtime/ops/map.cpp; every function is one MapCode) ----
SymbolicTensor map_unary(MapCode code, SymbolicTensor x);
SymbolicTensor map_binary(MapCode code, SymbolicTensor a, SymbolicTensor b);
SymbolicTensor map_scalar(MapCode code, SymbolicTensor a, double b);  // b on the right
SymbolicTensor map_scalar(MapCode code, double a, SymbolicTensor b);  // a on the left

SymbolicTensor operator+(SymbolicTensor a, SymbolicTensor b);
SymbolicTensor operator-(SymbolicTensor a, SymbolicTensor b);
SymbolicTensor operator*(SymbolicTensor a, SymbolicTensor b);
SymbolicTensor operator/(SymbolicTensor a, SymbolicTensor b);
SymbolicTensor operator+(SymbolicTensor a, double b);
SymbolicTensor operator-(SymbolicTensor a, double b);
SymbolicTensor operator*(SymbolicTensor a, double b);
SymbolicTensor operator/(SymbolicTensor a, double b);
SymbolicTensor operator+(double a, SymbolicTensor b);
SymbolicTensor operator-(double a, SymbolicTensor b);
SymbolicTensor operator*(double a, SymbolicTensor b);
SymbolicTensor operator/(double a, SymbolicTensor b);
SymbolicTensor operator-(SymbolicTensor x);

SymbolicTensor abs(SymbolicTensor x);
SymbolicTensor sign(SymbolicTensor x);
SymbolicTensor exp(SymbolicTensor x);
SymbolicTensor expm1(SymbolicTensor x);
SymbolicTensor log(SymbolicTensor x);
SymbolicTensor log1p(SymbolicTensor x);
SymbolicTensor sqrt(SymbolicTensor x);
SymbolicTensor rsqrt(SymbolicTensor x);
SymbolicTensor square(SymbolicTensor x);
SymbolicTensor reciprocal(SymbolicTensor x);
SymbolicTensor sin(SymbolicTensor x);
SymbolicTensor cos(SymbolicTensor x);
SymbolicTensor tanh(SymbolicTensor x);
SymbolicTensor sigmoid(SymbolicTensor x);
SymbolicTensor softplus(SymbolicTensor x);  // log(1 + exp(x)), without overflow
SymbolicTensor erf(SymbolicTensor x);
SymbolicTensor floor(SymbolicTensor x);
SymbolicTensor ceil(SymbolicTensor x);
SymbolicTensor round(SymbolicTensor x);  // half to even
SymbolicTensor relu(SymbolicTensor x);   // max(x, 0); gradient from the result
SymbolicTensor gelu(SymbolicTensor x, bool approximate);
SymbolicTensor silu(SymbolicTensor x);
SymbolicTensor pow(SymbolicTensor a, SymbolicTensor b);
SymbolicTensor pow(SymbolicTensor a, double b);
SymbolicTensor pow(double a, SymbolicTensor b);
SymbolicTensor maximum(SymbolicTensor a, SymbolicTensor b);
SymbolicTensor maximum(SymbolicTensor a, double b);
SymbolicTensor minimum(SymbolicTensor a, SymbolicTensor b);
SymbolicTensor minimum(SymbolicTensor a, double b);
SymbolicTensor clip(SymbolicTensor x, double low, double high);  // gradient 0 outside
// Comparisons and logic give DType::boolean.
SymbolicTensor equal(SymbolicTensor a, SymbolicTensor b);
SymbolicTensor equal(SymbolicTensor a, double b);
SymbolicTensor not_equal(SymbolicTensor a, SymbolicTensor b);
SymbolicTensor not_equal(SymbolicTensor a, double b);
SymbolicTensor less(SymbolicTensor a, SymbolicTensor b);
SymbolicTensor less(SymbolicTensor a, double b);
SymbolicTensor less_equal(SymbolicTensor a, SymbolicTensor b);
SymbolicTensor less_equal(SymbolicTensor a, double b);
SymbolicTensor greater(SymbolicTensor a, SymbolicTensor b);
SymbolicTensor greater(SymbolicTensor a, double b);
SymbolicTensor greater_equal(SymbolicTensor a, SymbolicTensor b);
SymbolicTensor greater_equal(SymbolicTensor a, double b);
SymbolicTensor logical_and(SymbolicTensor a, SymbolicTensor b);
SymbolicTensor logical_or(SymbolicTensor a, SymbolicTensor b);
SymbolicTensor logical_not(SymbolicTensor x);
SymbolicTensor is_finite(SymbolicTensor x);
SymbolicTensor where(SymbolicTensor condition, SymbolicTensor a, SymbolicTensor b);
SymbolicTensor where(SymbolicTensor condition, SymbolicTensor a, double b);
SymbolicTensor where(SymbolicTensor condition, double a, SymbolicTensor b);
SymbolicTensor cast(SymbolicTensor x, DType dtype);  // float to int: towards zero; to bool: != 0
SymbolicTensor stop_gradient(SymbolicTensor x);

// ---- sources (runtime/ops/source.cpp): no operands ----
SymbolicTensor full(graph::Builder& builder, Shape shape, double value,
                    DType dtype = DType::float32);
/// Given values, row-major: for small tables (every rank holds all of them).
SymbolicTensor constant(graph::Builder& builder, Shape shape, const std::vector<double>& values,
                        DType dtype = DType::float32);
/// Index along `dim` of an otherwise constant tensor of this shape.
SymbolicTensor iota(graph::Builder& builder, Shape shape, int dim, DType dtype = DType::int32);
/// Draws keyed by (key, training step, global element index): see base/philox.h. `key` comes from
/// stream_key.
SymbolicTensor random_uniform(graph::Builder& builder, Shape shape, std::uint64_t key,
                              DType dtype = DType::float32);
SymbolicTensor random_normal(graph::Builder& builder, Shape shape, std::uint64_t key,
                             DType dtype = DType::float32);

// ---- contractions (runtime/ops/einsum.cpp) ----
/// Einstein sum of two operands: letters only, no repeated letter within an operand, e.g.
/// "abk,kn->abn". Accumulates in float32 (float64 for float64); `result` is the dtype of the
/// result, default that of the operands.
SymbolicTensor einsum(std::string_view equation, SymbolicTensor a, SymbolicTensor b);
SymbolicTensor einsum(std::string_view equation, SymbolicTensor a, SymbolicTensor b, DType result);
/// x[..., k] times w[k, n].
SymbolicTensor matmul(SymbolicTensor x, SymbolicTensor w);

// ---- reductions (runtime/ops/reduce.cpp); empty dims: all dimensions ----
SymbolicTensor sum(SymbolicTensor x, std::vector<int> dims = {}, bool keepdims = false);
SymbolicTensor mean(SymbolicTensor x, std::vector<int> dims = {},
                    bool keepdims = false);  // sum times 1 / global count
SymbolicTensor max(SymbolicTensor x, std::vector<int> dims = {}, bool keepdims = false);
SymbolicTensor min(SymbolicTensor x, std::vector<int> dims = {}, bool keepdims = false);
/// Index (int32) of the first largest element along `dim`.
SymbolicTensor argmax(SymbolicTensor x, int dim);
SymbolicTensor argmin(SymbolicTensor x, int dim);

// ---- movement (runtime/ops/reshape.cpp, movement.cpp) ----
SymbolicTensor reshape(SymbolicTensor x, Shape shape);  // one -1 allowed
SymbolicTensor transpose(SymbolicTensor x, std::vector<int> permutation);
SymbolicTensor broadcast_to(SymbolicTensor x, Shape shape);
SymbolicTensor expand_dims(SymbolicTensor x, int dim);
SymbolicTensor squeeze(SymbolicTensor x, int dim);
SymbolicTensor concat(const std::vector<SymbolicTensor>& parts, int dim);
/// Elements begin..begin+size-1 along `dim`.
SymbolicTensor slice(SymbolicTensor x, int dim, std::int64_t begin, std::int64_t size);
SymbolicTensor pad(SymbolicTensor x, int dim, std::int64_t before, std::int64_t after,
                   double value = 0.0);

// ---- look-ups (runtime/ops/embedding.cpp, pick.cpp) ----
/// Rows of table[v, d...] at integer ids[t...]: result [t..., d...]. Ids outside 0..v-1 give zero
/// rows.
SymbolicTensor embedding(SymbolicTensor ids, SymbolicTensor table);
/// x[..., ids[...]] along the last dimension of x: result has the shape of ids. Ids outside the
/// range give 0.
SymbolicTensor pick(SymbolicTensor x, SymbolicTensor ids);
/// 1 where the new last dimension equals ids.
SymbolicTensor one_hot(SymbolicTensor ids, std::int64_t depth, DType dtype = DType::float32);

// ---- fused (one file each) ----
SymbolicTensor softmax(SymbolicTensor x, int dim = -1);
SymbolicTensor log_softmax(SymbolicTensor x, int dim = -1);
/// (x - mean) / sqrt(variance + epsilon) over the last dimension, times gamma, plus beta (either
/// may be absent).
SymbolicTensor layer_norm(SymbolicTensor x, SymbolicTensor gamma, SymbolicTensor beta,
                          double epsilon);
/// x / sqrt(mean(x^2) + epsilon) over the last dimension, times scale (may be absent).
SymbolicTensor rms_norm(SymbolicTensor x, SymbolicTensor scale, double epsilon);
/// -log softmax(logits)[label] per row: logits [..., v], integer labels [...]: losses [...] in
/// float32 (float64 for float64). Never stores probabilities.
SymbolicTensor sparse_softmax_cross_entropy(SymbolicTensor logits, SymbolicTensor labels);

}  // namespace tessera::ops
