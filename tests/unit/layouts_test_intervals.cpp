// Laws of meshes and intervals: parts partition a dimension, stand in order, and can be inverted.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "base/error.h"
#include "layouts/placement.h"

using tessera::Box;
using tessera::Error;
using tessera::Shape;
using namespace tessera::layouts;

namespace {

/// All orders of all subsets of the axes.
std::vector<AxisList> axis_orders(int axes) {
  std::vector<AxisList> orders{{}};
  for (std::size_t i = 0; i < orders.size(); ++i) {
    for (int axis = 0; axis < axes; ++axis) {
      AxisList longer = orders[i];
      if (std::find(longer.begin(), longer.end(), axis) != longer.end()) continue;
      longer.push_back(axis);
      orders.push_back(std::move(longer));
    }
  }
  return orders;
}

}  // namespace

TEST_CASE("balanced parts give the first parts one element more") {
  const std::vector<std::int64_t> expected{4, 4, 3, 3, 3, 3};
  for (std::int64_t i = 0; i < 6; ++i) {
    CHECK(balanced_part(20, 6, i).size == expected[static_cast<std::size_t>(i)]);
  }
  for (std::int64_t size = 0; size < 40; ++size) {
    for (std::int64_t parts = 1; parts < 12; ++parts) {
      std::int64_t end = 0;
      for (std::int64_t i = 0; i < parts; ++i) {
        const Interval part = balanced_part(size, parts, i);
        CHECK(part.begin == end);
        CHECK((part.size == size / parts || part.size == size / parts + 1));
        if (i > 0) CHECK(part.size <= balanced_part(size, parts, i - 1).size);
        end += part.size;
      }
      CHECK(end == size);
    }
  }
  const std::int64_t huge = std::int64_t{1} << 60U;
  CHECK(balanced_part(huge + 1, 3, 2).begin + balanced_part(huge + 1, 3, 2).size == huge + 1);
}

TEST_CASE("intervals partition the dimension in the order of the group") {
  const std::vector<Mesh> meshes{Mesh({4}, {"a"}), Mesh({2, 3}, {"a", "b"}),
                                 Mesh({3, 1, 2}, {"a", "b", "c"}),
                                 Mesh({2, 2, 2}, {"a", "b", "c"})};
  for (const Mesh& mesh : meshes) {
    for (const AxisList& axes : axis_orders(mesh.axes())) {
      for (std::int64_t size = 0; size < 30; ++size) {
        for (int rank = 0; rank < mesh.size(); ++rank) {
          std::int64_t end = 0;
          std::int64_t owners = 0;
          const std::vector<int> group = mesh.group(rank, axes);
          for (const int member : group) {
            const Interval part = interval_of(size, axes, mesh, member);
            REQUIRE(part.begin == end);
            REQUIRE(part.size >= 0);
            end += part.size;
            if (member == rank) ++owners;
          }
          REQUIRE(end == size);
          REQUIRE(owners == 1);
        }
      }
    }
  }
}

TEST_CASE("nested cuts are cuts of cuts, and differ from flat ones") {
  const Mesh mesh({2, 3}, {"a", "b"});
  // 8 over a: 4, 4; each over b: 2, 1, 1. Flat over 6: 2, 2, 1, 1, 1, 1.
  std::vector<std::int64_t> nested;
  for (int rank = 0; rank < 6; ++rank) nested.push_back(interval_of(8, {0, 1}, mesh, rank).size);
  CHECK(nested == std::vector<std::int64_t>{2, 1, 1, 2, 1, 1});
  // The other order: 8 over b: 3, 3, 2; each over a: 2+1, 2+1, 1+1.
  std::vector<std::int64_t> other;
  for (int rank = 0; rank < 6; ++rank) other.push_back(interval_of(8, {1, 0}, mesh, rank).size);
  CHECK(other == std::vector<std::int64_t>{2, 2, 1, 1, 1, 1});
}

TEST_CASE("five elements cut by two axes, in both orders") {
  const Mesh mesh({2, 2}, {"fsdp", "tp"});
  const std::vector<int> values{0, 1, 2, 3, 4};
  for (const AxisList& axes : {AxisList{0, 1}, AxisList{1, 0}}) {
    std::vector<int> gathered;
    for (const int rank : mesh.group(3, axes)) {
      const Interval part = interval_of(5, axes, mesh, rank);
      for (std::int64_t i = 0; i < part.size; ++i) {
        gathered.push_back(values[static_cast<std::size_t>(part.begin + i)]);
      }
    }
    CHECK(gathered == values);
  }
}

TEST_CASE("boxes of all ranks cover every element equally often") {
  const Mesh mesh({2, 3}, {"a", "b"});
  for (const Shape& shape : {Shape{5, 7}, Shape{1, 3}, Shape{0, 4}, Shape{6, 6}}) {
    for (const auto& dims : std::vector<std::vector<AxisList>>{
             {{0}, {1}}, {{1}, {0}}, {{0, 1}, {}}, {{1, 0}, {}}, {{}, {0}}, {{}, {}}}) {
      const Placement placement{dims, 0};
      std::vector<int> count(static_cast<std::size_t>(shape.elements()), 0);
      for (int rank = 0; rank < mesh.size(); ++rank) {
        const Box box = box_of(shape, placement, mesh, rank);
        for (std::int64_t i = 0; i < box.size[0]; ++i) {
          for (std::int64_t j = 0; j < box.size[1]; ++j) {
            ++count[static_cast<std::size_t>((box.begin[0] + i) * shape[1] + box.begin[1] + j)];
          }
        }
      }
      const int copies = mesh.size() / mesh.group_size(placement.cut_axes());
      CHECK(std::all_of(count.begin(), count.end(), [&](int n) { return n == copies; }));
    }
  }
}

TEST_CASE("ranks fill the mesh in row-major order") {
  const Mesh mesh({4, 2}, {"batch", "model"});
  CHECK(mesh.size() == 8);
  CHECK(mesh.coordinate(5, 0) == 2);
  CHECK(mesh.coordinate(5, 1) == 1);
  CHECK(mesh.group(5, AxisSet{1}) == std::vector<int>{1, 3, 5, 7});
  CHECK(mesh.group(5, AxisSet{2}) == std::vector<int>{4, 5});
  CHECK(mesh.group(5, AxisSet{3}) == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(mesh.group(5, std::vector<int>{1, 0}) == std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7});
  CHECK(mesh.group(5, AxisSet{0}) == std::vector<int>{5});
  CHECK(mesh.group_size(3) == 8);
  CHECK(mesh.names_of(2) == std::vector<std::string>{"model"});
  CHECK(mesh.find_axis("model") == 1);
  CHECK_FALSE(mesh.find_axis("modle"));
  CHECK(Mesh().size() == 1);
}

TEST_CASE("meshes that cannot be are refused") {
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(Mesh({4}, {}), Contains("Shape and axis_names cannot be empty"));
  CHECK_THROWS_WITH(Mesh({}, {}), Contains("Shape and axis_names cannot be empty"));
  CHECK_THROWS_WITH(Mesh({4, 2}, {"batch"}), Contains("should have same size"));
  CHECK_THROWS_WITH(Mesh({4, 0}, {"a", "b"}), Contains("at least 1"));
  CHECK_THROWS_WITH(Mesh({4, -1}, {"a", "b"}), Contains("at least 1"));
  CHECK_THROWS_WITH(Mesh({2, 2}, {"a", "a"}), Contains("twice"));
  CHECK_THROWS_WITH(Mesh({2, 2}, {"a", ""}), Contains("empty"));
  CHECK_THROWS_WITH(Mesh({1 << 20, 1 << 20}, {"a", "b"}), Contains("more ranks"));
  CHECK_THROWS_AS(Mesh(std::vector<std::int64_t>(17, 1), std::vector<std::string>(17, "a")), Error);
}

TEST_CASE("placements say what they are") {
  const Mesh mesh({2, 3}, {"batch", "model"});
  const Placement placement{{{1, 0}, {}}, 0};
  CHECK(to_string(placement, mesh) == "[[model, batch], null]");
  CHECK(to_string(Placement{{{}}, 2}, mesh) == "[null] pending over model");
  CHECK(placement.dim_of(0) == 0);
  CHECK(Placement{{{}, {1}}, 0}.dim_of(1) == 1);
  CHECK(Placement{{{}, {1}}, 0}.dim_of(0) == -1);
  CHECK(placement.cut_axes() == 3U);
  CHECK(Placement::replicated(3).is_replicated());
  CHECK_FALSE(Placement{{{}}, 1}.is_replicated());
}
