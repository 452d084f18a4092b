// A matrix product and the element-wise program that reads it, rows by rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ops/einsum.h"
#include "runtime/ops/map.h"

namespace tessera::ops {

/// Operands: those of the product, then those of the map without the product's result. Results:
/// those of the map. Some rows of the product at a time are made and used while they are in cache,
/// so that a large product that is needed once (the gradient of a kernel, for its update) neither
/// takes memory nor travels to it and back. Made by the compiler after sharding and
/// differentiation.
class ProductMapOp final : public graph::Op {
 public:
  /// `operand`: which operand of `map` is the product. `panel_bytes`: how much of the product is
  /// made at a time.
  ProductMapOp(std::shared_ptr<const EinsumOp> product, std::shared_ptr<const MapOp> map,
               std::size_t operand, std::int64_t panel_bytes);

  /// Can rows of this product be made by themselves, at no cost but more calls?
  static bool has_panels(const EinsumOp& product, const graph::LocalCall& call);

  std::string_view name() const override { return "product_map"; }
  std::string attributes() const override;
  std::vector<graph::ValueType> infer(std::span<const graph::ValueType> inputs) const override;
  /// Nothing may be cut: placements are decided before this op is made.
  graph::Rule rule(std::span<const graph::ValueType> inputs,
                   std::span<const graph::ValueType> outputs) const override;
  /// Throws internal.
  std::vector<graph::ValueId> gradient(const graph::GradientCall& call) const override;
  double flops(const graph::LocalCall& call) const override;
  std::int64_t workspace_bytes(const graph::LocalCall& call) const override;
  /// As the map: each panel reads and writes the same rows of both.
  bool may_overwrite(std::size_t output, std::size_t input) const override;
  graph::Kernel prepare(const graph::LocalCall& call, const kernels::Device& device) const override;

 private:
  /// The calls of the two ops on this rank's whole parts.
  struct Calls {
    graph::LocalCall product;
    graph::LocalCall map;
  };
  /// How many rows a panel has: all where the product has no panels.
  struct Panels {
    std::int64_t rows = 0;   // of the product's first dimension
    std::int64_t panel = 0;  // rows of all panels but the last
    bool whole = true;
    std::int64_t panel_bytes = 0;      // of a panel of the product
    std::int64_t workspace_bytes = 0;  // what the product needs beside its panel
  };
  struct Run;

  std::size_t product_operands() const { return product_->epilogue().bias ? 3 : 2; }
  Calls calls_of(const graph::LocalCall& call) const;
  Panels panels_of(const Calls& calls) const;

  std::shared_ptr<const EinsumOp> product_;
  std::shared_ptr<const MapOp> map_;
  std::size_t operand_;
  std::int64_t panel_bytes_;
};

}  // namespace tessera::ops
