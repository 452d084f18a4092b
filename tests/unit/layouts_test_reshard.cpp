// Resharding, proved by moving real elements between simulated ranks for every pair of placements.
#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/philox.h"
#include "layouts/reshard.h"

using tessera::Box;
using tessera::Shape;
using namespace tessera::layouts;

namespace {

/// What one rank holds: a dense block of whole numbers.
struct Block {
  Shape size;
  std::vector<std::int64_t> values;
};

using Ranks = std::vector<Block>;

/// Calls f(index, position) for every element of a block, row-major.
template <typename F>
void for_each(const Shape& size, const F& f) {
  Shape index = size;
  for (std::size_t d = 0; d < size.rank(); ++d) index[d] = 0;
  const std::int64_t count = size.elements();
  for (std::int64_t position = 0; position < count; ++position) {
    f(index, static_cast<std::size_t>(position));
    for (std::size_t d = size.rank(); d-- > 0;) {
      if (++index[d] < size[d]) break;
      index[d] = 0;
    }
  }
}

std::size_t position_of(const Shape& index, const Shape& size) {
  std::int64_t position = 0;
  for (std::size_t d = 0; d < size.rank(); ++d) position = position * size[d] + index[d];
  return static_cast<std::size_t>(position);
}

Shape plus(Shape index, const Shape& begin) {
  for (std::size_t d = 0; d < index.rank(); ++d) index[d] += begin[d];
  return index;
}

/// Part of a block along one dimension.
Block part(const Block& block, std::size_t dim, std::int64_t begin, std::int64_t size) {
  Block result{block.size, {}};
  result.size[dim] = size;
  for_each(result.size, [&](Shape index, std::size_t) {
    index[dim] += begin;
    result.values.push_back(block.values[position_of(index, block.size)]);
  });
  return result;
}

Block joined(const std::vector<Block>& blocks, std::size_t dim) {
  Block result{blocks.front().size, {}};
  result.size[dim] = 0;
  for (const Block& block : blocks) result.size[dim] += block.size[dim];
  result.values.resize(static_cast<std::size_t>(result.size.elements()));
  std::int64_t begin = 0;
  for (const Block& block : blocks) {
    for_each(block.size, [&](Shape index, std::size_t position) {
      index[dim] += begin;
      result.values[position_of(index, result.size)] = block.values[position];
    });
    begin += block.size[dim];
  }
  return result;
}

Block sum_of(const Ranks& ranks, const std::vector<int>& group) {
  Block result = ranks[static_cast<std::size_t>(group.front())];
  for (std::size_t i = 1; i < group.size(); ++i) {
    const Block& term = ranks[static_cast<std::size_t>(group[i])];
    REQUIRE(term.size == result.size);
    for (std::size_t j = 0; j < term.values.size(); ++j) result.values[j] += term.values[j];
  }
  return result;
}

std::int64_t value_at(std::size_t position) {
  return static_cast<std::int64_t>(tessera::hash_bytes("value", position) % 1000) - 500;
}

/// Terms of a pending sum differ between ranks, and add up to the value.
std::int64_t term_at(std::size_t position, std::size_t term, std::size_t terms) {
  const auto other = [position](std::size_t i) {
    return static_cast<std::int64_t>(tessera::hash_bytes("term", position * 1000 + i) % 100) - 50;
  };
  if (term > 0) return other(term);
  std::int64_t first = value_at(position);
  for (std::size_t i = 1; i < terms; ++i) first -= other(i);
  return first;
}

Ranks distribute(const Shape& shape, const Placement& placement, const Mesh& mesh) {
  Ranks ranks;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const Box box = box_of(shape, placement, mesh, rank);
    const std::vector<int> group = mesh.group(rank, placement.pending);
    const auto term =
        static_cast<std::size_t>(std::find(group.begin(), group.end(), rank) - group.begin());
    Block block{box.size, {}};
    for_each(box.size, [&](const Shape& index, std::size_t) {
      block.values.push_back(
          term_at(position_of(plus(index, box.begin), shape), term, group.size()));
    });
    ranks.push_back(std::move(block));
  }
  return ranks;
}

/// Sizes along `dim` of what the group's members hold after the step: where the parts begin.
std::int64_t begin_of(const std::vector<int>& group, std::size_t member, std::size_t dim,
                      const Shape& shape, const ReshardStep& step, const Mesh& mesh) {
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < member; ++i) {
    begin += box_of(shape, step.to, mesh, group[i]).size[dim];
  }
  return begin;
}

Block after_step(const Ranks& ranks, int rank, const Shape& shape, const ReshardStep& step,
                 const Mesh& mesh) {
  const auto dim = static_cast<std::size_t>(step.dim);
  const auto to_dim = static_cast<std::size_t>(step.to_dim);
  const std::vector<int> group = mesh.group(rank, step.axes);
  const auto me =
      static_cast<std::size_t>(std::find(group.begin(), group.end(), rank) - group.begin());
  const Box box = box_of(shape, step.to, mesh, rank);
  switch (step.kind) {
    case ReshardKind::slice:
      return part(ranks[static_cast<std::size_t>(rank)], dim,
                  begin_of(group, me, dim, shape, step, mesh), box.size[dim]);
    case ReshardKind::all_gather: {
      std::vector<Block> blocks;
      for (const int member : group) blocks.push_back(ranks[static_cast<std::size_t>(member)]);
      return joined(blocks, dim);
    }
    case ReshardKind::all_reduce:
      return sum_of(ranks, group);
    case ReshardKind::reduce_scatter:
      return part(sum_of(ranks, group), dim, begin_of(group, me, dim, shape, step, mesh),
                  box.size[dim]);
    case ReshardKind::all_to_all: {
      std::vector<Block> blocks;
      for (const int member : group) {
        blocks.push_back(part(ranks[static_cast<std::size_t>(member)], to_dim,
                              begin_of(group, me, to_dim, shape, step, mesh), box.size[to_dim]));
      }
      return joined(blocks, dim);
    }
    case ReshardKind::owner: {
      Block block = ranks[static_cast<std::size_t>(rank)];
      if (me != 0) std::fill(block.values.begin(), block.values.end(), 0);
      return block;
    }
  }
  return {};
}

/// Runs the steps and compares with what `to` says each rank must hold.
void verify(const Shape& shape, const Placement& from, const Placement& to, const Mesh& mesh) {
  CAPTURE(to_string(shape), to_string(from, mesh), to_string(to, mesh), mesh.shape());
  const std::vector<ReshardStep> steps = plan_reshard(shape, 4, from, to, mesh);
  Ranks ranks = distribute(shape, from, mesh);
  Placement at = from;
  for (const ReshardStep& step : steps) {
    REQUIRE(same_placement(at, step.from, mesh));
    for (const int axis : step.axes) REQUIRE(mesh.axis_size(axis) > 1);
    Ranks next;
    for (int rank = 0; rank < mesh.size(); ++rank) {
      next.push_back(after_step(ranks, rank, shape, step, mesh));
      REQUIRE(next.back().size == box_of(shape, step.to, mesh, rank).size);
    }
    ranks = std::move(next);
    at = step.to;
  }
  REQUIRE(same_placement(at, to, mesh));
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const Box box = box_of(shape, to, mesh, rank);
    const Block total = sum_of(ranks, mesh.group(rank, to.pending));
    REQUIRE(total.size == box.size);
    for_each(box.size, [&](const Shape& index, std::size_t position) {
      REQUIRE(total.values[position] == value_at(position_of(plus(index, box.begin), shape)));
    });
  }
}

/// All placements of a tensor of `rank` dimensions: every axis is a copy, pending, or a cut; all
/// orders.
std::vector<Placement> all_placements(std::size_t rank, int axes) {
  std::vector<Placement> result{Placement::replicated(rank)};
  for (int axis = 0; axis < axes; ++axis) {
    std::vector<Placement> longer;
    for (const Placement& base : result) {
      longer.push_back(base);
      longer.push_back(base);
      longer.back().pending |= AxisSet{1} << axis;
      for (std::size_t dim = 0; dim < rank; ++dim) {
        for (std::size_t at = 0; at <= base.dims[dim].size(); ++at) {
          longer.push_back(base);
          AxisList& list = longer.back().dims[dim];
          list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), axis);
        }
      }
    }
    result = std::move(longer);
  }
  return result;
}

int collectives(const std::vector<ReshardStep>& steps) {
  return static_cast<int>(std::count_if(steps.begin(), steps.end(), [](const ReshardStep& step) {
    return step.kind != ReshardKind::slice && step.kind != ReshardKind::owner;
  }));
}

const Placement kWhole = Placement::replicated(2);
const Placement kRows{{{0}, {}}, 0};
const Placement kColumns{{{}, {0}}, 0};
const Placement kPending{{{}, {}}, 1};

}  // namespace

TEST_CASE("every pair of placements on one axis") {
  for (const int n : {1, 2, 3, 4, 5}) {
    const Mesh mesh({n}, {"a"});
    for (const Shape& shape : {Shape{12, 3}, Shape{13, 3}, Shape{14, 3}, Shape{3, 13}, Shape{1, 3},
                               Shape{0, 4}, Shape{5, 5}}) {
      for (const Placement& from : all_placements(2, 1)) {
        for (const Placement& to : all_placements(2, 1)) verify(shape, from, to, mesh);
      }
    }
  }
}

TEST_CASE("every pair of placements on two axes") {
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{2, 2}, {2, 3}, {3, 2}, {1, 2}}) {
    const Mesh mesh(sizes, {"a", "b"});
    for (const Shape& shape : {Shape{10, 5}, Shape{9, 5}, Shape{1, 3}, Shape{6, 0}}) {
      for (const Placement& from : all_placements(2, 2)) {
        for (const Placement& to : all_placements(2, 2)) verify(shape, from, to, mesh);
      }
    }
  }
}

TEST_CASE("some pairs on three axes and three dimensions") {
  const Mesh mesh({2, 3, 2}, {"a", "b", "c"});
  const std::vector<Placement> placements = all_placements(3, 3);
  for (std::uint64_t i = 0; i < 400; ++i) {
    const auto draw = [&](std::uint64_t stream) {
      return placements[tessera::hash_bytes("pair", 2 * i + stream) % placements.size()];
    };
    verify(Shape{5, 4, 3}, draw(0), draw(1), mesh);
  }
}

TEST_CASE("scalars and pending sums of them") {
  const Mesh mesh({2, 2}, {"a", "b"});
  for (AxisSet from = 0; from < 4; ++from) {
    for (AxisSet to = 0; to < 4; ++to) verify(Shape{}, {{}, from}, {{}, to}, mesh);
  }
}

TEST_CASE("many axes at once") {
  const Mesh mesh({2, 1, 2, 1, 2, 1, 2, 2}, {"a", "b", "c", "d", "e", "f", "g", "h"});
  verify({5, 6}, {{{0, 1, 2, 7}, {3, 4}}, 1U << 6U}, {{{6, 4}, {2, 5, 0}}, 0}, mesh);
  const Mesh wide(std::vector<std::int64_t>(8, 2), {"a", "b", "c", "d", "e", "f", "g", "h"});
  verify({9, 7}, {{{7, 6, 5, 4}, {3, 2}}, 3U}, {{{0, 1, 2, 3}, {4, 5}}, 1U << 6U}, wide);
}

TEST_CASE("one axis: the table of conversions and its bytes") {
  const Mesh mesh({4}, {"a"});
  const Shape shape{12, 8};
  const double bytes = 12 * 8 * 4;
  struct Case {
    Placement from, to;
    std::vector<ReshardKind> kinds;
    double sent;
  };
  const std::vector<Case> cases{
      {kWhole, kWhole, {}, 0},
      {kRows, kRows, {}, 0},
      {kPending, kPending, {}, 0},
      {kWhole, kRows, {ReshardKind::slice}, 0},
      {kRows, kWhole, {ReshardKind::all_gather}, bytes * 3 / 4},
      {kPending, kWhole, {ReshardKind::all_reduce}, 2 * bytes * 3 / 4},
      {kPending, kRows, {ReshardKind::reduce_scatter}, bytes * 3 / 4},
      {kRows, kColumns, {ReshardKind::all_to_all}, bytes * 3 / 16},
      {kWhole, kPending, {ReshardKind::owner}, 0},
      {kRows, kPending, {ReshardKind::all_gather, ReshardKind::owner}, bytes * 3 / 4},
  };
  for (const Case& c : cases) {
    CAPTURE(to_string(c.from, mesh), to_string(c.to, mesh));
    std::vector<ReshardKind> kinds;
    for (const ReshardStep& step : plan_reshard(shape, 4, c.from, c.to, mesh)) {
      kinds.push_back(step.kind);
    }
    CHECK(kinds == c.kinds);
    CHECK(reshard_bytes(shape, 4, c.from, c.to, mesh) == Approx(c.sent));
  }
}

TEST_CASE("two axes: numbers of collectives") {
  const Mesh mesh({2, 2}, {"a", "b"});
  const Shape shape{8, 8, 8};
  const auto count = [&](const Placement& from, const Placement& to) {
    return collectives(plan_reshard(shape, 4, from, to, mesh));
  };
  const Placement s0_s1{{{0}, {1}, {}}, 0};
  const Placement s1_s0{{{1}, {0}, {}}, 0};
  const Placement s0_s0{{{0, 1}, {}, {}}, 0};
  const Placement s1_s1{{{}, {0, 1}, {}}, 0};
  CHECK(count(s0_s1, s0_s0) == 1);
  CHECK(count(s0_s1, s1_s0) == 2);
  CHECK(count(s0_s0, s1_s1) == 1);
  CHECK(count({{{0}, {}, {1}}, 0}, s1_s0) == 2);
  CHECK(count(s1_s1, {{{}, {0}, {1}}, 0}) == 1);
}

TEST_CASE("several pending axes are reduced by one collective") {
  const Mesh mesh({2, 3}, {"a", "b"});
  const auto steps = plan_reshard({6, 6}, 4, {{{}, {}}, 3}, kWhole, mesh);
  REQUIRE(steps.size() == 1);
  CHECK(steps[0].kind == ReshardKind::all_reduce);
  CHECK(steps[0].axes == AxisList{0, 1});
  CHECK(steps[0].bytes_sent == Approx(2.0 * 5 / 6 * 144));

  const auto scatter = plan_reshard({6, 6}, 4, {{{}, {}}, 3}, {{{1, 0}, {}}, 0}, mesh);
  REQUIRE(scatter.size() == 1);
  CHECK(scatter[0].kind == ReshardKind::reduce_scatter);
  CHECK(scatter[0].axes == AxisList{1, 0});
}

TEST_CASE(
    "a pending sum is never sliced over its own axis, and an untouched axis stays untouched") {
  const Mesh mesh({2, 3}, {"a", "b"});
  for (const Placement& from : all_placements(2, 2)) {
    for (const Placement& to : all_placements(2, 2)) {
      for (const ReshardStep& step : plan_reshard({7, 5}, 4, from, to, mesh)) {
        for (const int axis : step.axes) {
          if (step.kind == ReshardKind::slice) CHECK((step.from.pending >> axis & 1U) == 0);
          const bool whole_in_both = from.dim_of(axis) < 0 && to.dim_of(axis) < 0 &&
                                     (from.pending >> axis & 1U) == 0 &&
                                     (to.pending >> axis & 1U) == 0;
          CHECK_FALSE(whole_in_both);
        }
      }
    }
  }
}

TEST_CASE("the outer of two cuts needs more than a gather of its own") {
  const Mesh mesh({2, 2}, {"a", "b"});
  const Placement both{{{0, 1}, {}}, 0};
  const auto inner = plan_reshard({8, 4}, 4, both, {{{0}, {}}, 0}, mesh);
  REQUIRE(inner.size() == 1);
  CHECK(inner[0].axes == AxisList{1});
  const auto outer = plan_reshard({8, 4}, 4, both, {{{1}, {}}, 0}, mesh);
  for (const ReshardStep& step : outer) {
    if (step.kind == ReshardKind::all_gather) CHECK(step.axes.back() == 1);
  }
  const auto whole = plan_reshard({8, 4}, 4, both, kWhole, mesh);
  REQUIRE(whole.size() == 1);
  CHECK(whole[0].axes == AxisList{0, 1});
  CHECK(whole[0].bytes_sent == Approx(96));
}

TEST_CASE("axes of size one are free") {
  const Mesh mesh({1, 4}, {"batch", "model"});
  const Placement same{{{}, {1}}, 0};
  CHECK(same_placement({{{0}, {1}}, 0}, same, mesh));
  CHECK(same_placement({{{}, {1}}, 1}, same, mesh));
  CHECK(plan_reshard({4, 4}, 4, {{{0}, {1}}, 0}, same, mesh).empty());
  CHECK(plan_reshard({4, 4}, 4, {{{0, 1}, {}}, 0}, {{{1, 0}, {}}, 0}, mesh).empty());
  CHECK_FALSE(same_placement({{{1}, {}}, 0}, same, mesh));
  const auto steps = plan_reshard({4, 4}, 4, {{{0}, {1}}, 0}, {{{}, {0}}, 0}, mesh);
  REQUIRE(steps.size() == 1);
  CHECK(steps[0].from == Placement{{{0}, {1}}, 0});
  CHECK(steps[0].to == Placement{{{}, {0}}, 0});
}

TEST_CASE("placements that do not fit are internal errors") {
  const Mesh mesh({2}, {"a"});
  CHECK_THROWS_AS(plan_reshard({4}, 4, kWhole, kWhole, mesh), tessera::Error);
  CHECK_THROWS_AS(plan_reshard({4, 4}, 4, {{{0}, {0}}, 0}, kWhole, mesh), tessera::Error);
  CHECK_THROWS_AS(plan_reshard({4, 4}, 4, {{{0}, {}}, 1}, kWhole, mesh), tessera::Error);
  CHECK_THROWS_AS(plan_reshard({4, 4}, 4, {{{1}, {}}, 0}, kWhole, mesh), tessera::Error);
  CHECK_THROWS_AS(plan_reshard({4, 4}, 4, {{{}, {}}, 2}, kWhole, mesh), tessera::Error);
}
