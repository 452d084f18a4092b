// Storage, first values and whole tensors on meshes: the same numbers whatever the mesh.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/philox.h"
#include "comm/communicator.h"
#include "runtime/exec/boxes.h"
#include "runtime/exec/elements.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/threads.h"
#include "runtime/exec/whole_tensor.h"
#include "tests/support/buffer.h"

namespace tessera::exec {
namespace {

using graph::Initializer;
using graph::Variable;
using graph::VariableId;
using graph::VariableTable;
using Kind = graph::Initializer::Kind;
using layouts::Mesh;
using layouts::Placement;

Variable variable_of(std::string path, Shape shape, Placement placement,
                     Initializer initializer = {}, DType dtype = DType::float32) {
  Variable variable;
  variable.path = std::move(path);
  variable.shape = shape;
  variable.dtype = dtype;
  variable.initializer = std::move(initializer);
  variable.storage = std::move(placement);
  return variable;
}

Initializer initializer_of(Kind kind, double a = 0.0, double b = 0.0) {
  Initializer initializer;
  initializer.kind = kind;
  initializer.a = a;
  initializer.b = b;
  return initializer;
}

struct MeshCase {
  Mesh mesh;
  Placement matrix;  // for [n, m]
};

/// Even, uneven and empty parts: cut by rows, by columns, by both, by two axes at once.
std::vector<MeshCase> mesh_cases() {
  const Mesh two({2}, {"a"});
  const Mesh grid({2, 3}, {"a", "b"});
  const Mesh eight({8}, {"a"});
  return {{Mesh(), Placement::replicated(2)},
          {two, Placement::replicated(2)},
          {two, {{{0}, {}}, 0}},
          {two, {{{}, {0}}, 0}},
          {grid, {{{0}, {1}}, 0}},
          {grid, {{{1}, {0}}, 0}},
          {grid, {{{1, 0}, {}}, 0}},
          {grid, {{{}, {1}}, 0}},
          {eight, {{{0}, {}}, 0}},
          {eight, {{{}, {0}}, 0}}};
}

/// The whole of a variable after `fill` on every rank, as rank 0 sees it through slabs of a few
/// elements; checks that slabs follow each other without gap.
std::vector<double> gathered(const Mesh& mesh, const Variable& variable,
                             const std::function<void(Storage&, VariableId)>& fill,
                             std::int64_t slab_bytes) {
  std::vector<double> whole_value(static_cast<std::size_t>(variable.shape.elements()), -77.0);
  comm::run_as_threads(mesh.size(), [&](comm::World& world) {
    VariableTable table;
    const VariableId id = table.declare(variable);
    Storage storage(table, mesh, world.rank());
    fill(storage, id);
    std::int64_t expected_first = 0;
    gather_slabs(
        storage, id, world,
        [&](std::int64_t first, std::span<const std::byte> bytes) {
          check(world.rank() == 0, "slabs arrive on rank 0");
          check(first == expected_first, "slabs follow each other");
          const auto count = static_cast<std::int64_t>(bytes.size() / size_of(variable.dtype));
          load_elements(variable.dtype, bytes.data(), whole_value.data() + first, count);
          expected_first += count;
        },
        slab_bytes);
    check(world.rank() != 0 || expected_first == variable.shape.elements(), "all slabs arrive");
  });
  return whole_value;
}

std::vector<double> initialized(const Mesh& mesh, const Variable& variable,
                                std::uint64_t seed = 42) {
  return gathered(
      mesh, variable, [&](Storage& storage, VariableId id) { initialize(storage, id, seed); },
      1 << 20);
}

TEST_CASE("initial values are the same bits on every mesh") {
  const std::vector<std::pair<std::string, Initializer>> kinds{
      {"zeros", initializer_of(Kind::zeros)},
      {"ones", initializer_of(Kind::ones)},
      {"constant", initializer_of(Kind::constant, 2.5)},
      {"normal", initializer_of(Kind::random_normal, 0.5, 2.0)},
      {"uniform", initializer_of(Kind::random_uniform, -0.25, 0.75)},
      {"truncated", initializer_of(Kind::truncated_normal, 1.0, 0.1)},
      {"identity", initializer_of(Kind::identity, 3.0)},
      {"orthogonal", initializer_of(Kind::orthogonal, 1.5)}};
  for (const auto& [name, initializer] : kinds) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      const Shape shape{7, 5};
      std::vector<double> reference;
      for (const MeshCase& each : mesh_cases()) {
        const Variable variable =
            variable_of("dense/kernel", shape, each.matrix, initializer, dtype);
        const std::vector<double> values = initialized(each.mesh, variable);
        if (reference.empty()) reference = values;
        INFO(name << " " << name_of(dtype) << " " << to_string(each.matrix, each.mesh));
        CHECK(values == reference);
      }
    }
  }
}

TEST_CASE("draws are those of the stream of the variable's path, by global index") {
  const std::uint64_t key = stream_key(42, "initializer", "dense/kernel");
  const Mesh one;
  const Shape shape{100, 30};
  const auto values_of = [&](Initializer initializer, std::uint64_t seed) {
    return initialized(
        one, variable_of("dense/kernel", shape, Placement::replicated(2), std::move(initializer)),
        seed);
  };
  const std::vector<double> normal = values_of(initializer_of(Kind::random_normal, 0.5, 2.0), 42);
  const std::vector<double> uniform =
      values_of(initializer_of(Kind::random_uniform, -0.25, 0.75), 42);
  const std::vector<double> truncated =
      values_of(initializer_of(Kind::truncated_normal, 0.0, 0.1), 42);
  for (std::uint64_t i = 0; i < normal.size(); ++i) {
    const auto rounded = [](double value) {
      return static_cast<double>(static_cast<float>(value));
    };
    CHECK(normal[i] == rounded(0.5 + 2.0 * static_cast<double>(random_normal(key, 0, i))));
    CHECK(uniform[i] == rounded(-0.25 + static_cast<double>(random_uniform(key, 0, i))));
    CHECK(truncated[i] == rounded(0.1 * static_cast<double>(random_truncated_normal(key, 0, i))));
  }
  Initializer with_seed = initializer_of(Kind::random_normal, 0.5, 2.0);
  with_seed.seed = 42;
  CHECK(values_of(with_seed, 7) == normal);
  CHECK(values_of(initializer_of(Kind::random_normal, 0.5, 2.0), 7) != normal);
}

TEST_CASE("orthogonal matrices are orthonormal in rows or columns, whatever the shape") {
  const Mesh one;
  for (const Shape& shape :
       {Shape{6, 4}, Shape{4, 6}, Shape{5, 5}, Shape{2, 3, 4}, Shape{1, 1}, Shape{300, 200}}) {
    const double gain = 2.0;
    Variable variable = variable_of("w", shape, Placement::replicated(shape.rank()),
                                    initializer_of(Kind::orthogonal, gain), DType::float64);
    const std::vector<double> w = initialized(one, variable);
    const auto columns = static_cast<std::size_t>(shape.back());
    const std::size_t rows = w.size() / columns;
    const bool tall = rows >= columns;
    const std::size_t vectors = std::min(rows, columns);
    const std::size_t length = std::max(rows, columns);
    const auto element = [&](std::size_t vector, std::size_t i) {
      return tall ? w[i * columns + vector] : w[vector * columns + i];
    };
    double worst = 0.0;
    for (std::size_t a = 0; a < vectors; ++a) {
      for (std::size_t b = 0; b <= a; ++b) {
        double product = 0.0;
        for (std::size_t i = 0; i < length; ++i) product += element(a, i) * element(b, i);
        worst = std::max(worst, std::abs(product - (a == b ? gain * gain : 0.0)));
      }
    }
    INFO(to_string(shape));
    CHECK(worst < 1e-12);
  }
  Variable vector =
      variable_of("w", Shape{4}, Placement::replicated(1), initializer_of(Kind::orthogonal, 1.0));
  CHECK_THROWS_WITH(initialized(one, vector), Catch::Contains("at least two dimensions"));
  vector.initializer = initializer_of(Kind::identity, 1.0);
  CHECK_THROWS_WITH(initialized(one, vector), Catch::Contains("needs a matrix"));
}

TEST_CASE("given values are cut, and memory that was in use becomes zero again") {
  const Mesh grid({2, 3}, {"a", "b"});
  Initializer given = initializer_of(Kind::values);
  std::vector<float> numbers(35);
  std::iota(numbers.begin(), numbers.end(), 1.0F);
  given.values = std::make_shared<std::vector<float>>(numbers);
  const Variable variable = variable_of("w", Shape{7, 5}, {{{0}, {1}}, 0}, given);
  CHECK(initialized(grid, variable) == std::vector<double>(numbers.begin(), numbers.end()));
  const Variable zero = variable_of("w", Shape{7, 5}, {{{0}, {1}}, 0});
  const std::vector<double> cleared = gathered(
      grid, zero,
      [](Storage& storage, VariableId id) {
        const std::vector<double> ones(35, 1.0);
        write_whole(storage, id, ones);
        initialize(storage, id, 1);
      },
      1 << 20);
  CHECK(cleared == std::vector<double>(35, 0.0));
}

TEST_CASE("a variable much larger than a slab is filled by all threads alike") {
  const Mesh two({2}, {"a"});
  const Variable variable = variable_of("w", Shape{1000, 333}, {{{}, {0}}, 0},
                                        initializer_of(Kind::random_uniform, 0.0, 1.0));
  const std::vector<double> values = initialized(two, variable);
  const std::uint64_t key = stream_key(42, "initializer", "w");
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != static_cast<double>(random_uniform(key, 0, i))) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("whole tensors go in and out through slabs of any size, for every dtype") {
  for (const MeshCase& each : mesh_cases()) {
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::int64, DType::boolean}) {
      for (const std::int64_t slab_bytes : {1, 16, 40, 1 << 20}) {
        const Variable variable = variable_of("w", Shape{6, 7}, each.matrix, {}, dtype);
        std::vector<double> expected(42);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          expected[i] = dtype == DType::boolean ? static_cast<double>(i % 3 == 0)
                                                : static_cast<double>(i) - 20.0;
        }
        const auto fill = [&](Storage& storage, VariableId id) {
          fill_from_slabs(
              storage, id,
              [&](const Box& box, std::span<std::byte> to) {
                const std::vector<double> part = testing::cut(expected, Shape{6, 7}, box);
                check(to.size() == part.size() * size_of(dtype), "bytes asked for");
                store_elements(dtype, part.data(), to.data(),
                               static_cast<std::int64_t>(part.size()));
              },
              slab_bytes);
        };
        INFO(name_of(dtype) << " " << slab_bytes << " " << to_string(each.matrix, each.mesh));
        CHECK(gathered(each.mesh, variable, fill, slab_bytes) == expected);
      }
    }
  }
}

TEST_CASE("scalars and tensors without elements are whole tensors too") {
  const Mesh two({2}, {"a"});
  const Variable scalar =
      variable_of("iteration", Shape{}, Placement::replicated(0), {}, DType::int64);
  const auto write = [](Storage& storage, VariableId id) {
    write_whole(storage, id, std::vector<double>{12345.0});
  };
  CHECK(gathered(two, scalar, write, 1) == std::vector<double>{12345.0});
  const Variable empty = variable_of("empty", Shape{0, 3}, Placement::replicated(2));
  CHECK(gathered(
            two, empty, [](Storage&, VariableId) {}, 1)
            .empty());
}

TEST_CASE(
    "metric totals are added over pending axes, in the order of the ranks, and written once") {
  const Mesh grid({2, 3}, {"a", "b"});
  for (const layouts::AxisSet pending : {0U, 1U, 2U, 3U}) {
    comm::run_as_threads(6, [&](comm::World& world) {
      VariableTable table;
      Placement placement = Placement::replicated(1);
      placement.pending = pending;
      const VariableId id = table.declare(variable_of("loss/total", Shape{3}, placement));
      Storage storage(table, grid, world.rank());
      auto* local = static_cast<float*>(storage.data(id));
      const int a = grid.coordinate(world.rank(), 0);
      const int b = grid.coordinate(world.rank(), 1);
      // Terms differ along pending axes only: along the others every rank has a copy.
      for (int i = 0; i < 3; ++i) {
        local[i] = static_cast<float>(i + ((pending & 1U) != 0 ? 10 * a : 0) +
                                      ((pending & 2U) != 0 ? 100 * b : 0));
      }
      const int terms_a = (pending & 1U) != 0 ? 2 : 1;
      const int terms_b = (pending & 2U) != 0 ? 3 : 1;
      const double sum_a = terms_a == 2 ? 10.0 * terms_b : 0.0;
      const double sum_b = terms_b == 3 ? 300.0 * terms_a : 0.0;
      const std::vector<double> total = read_whole(storage, id, world);
      for (int i = 0; i < 3; ++i) {
        check(total[static_cast<std::size_t>(i)] == i * terms_a * terms_b + sum_a + sum_b, "total");
      }
      write_whole(storage, id, std::vector<double>{7.0, 8.0, 9.0});
      check(read_whole(storage, id, world) == std::vector<double>{7.0, 8.0, 9.0}, "written once");
      initialize(storage, id, 1);
      check(read_whole(storage, id, world) == std::vector<double>{0.0, 0.0, 0.0}, "cleared");
    });
  }
}

TEST_CASE("storage grows with the table and says what has no memory") {
  VariableTable table;
  const Mesh two({2}, {"a"});
  const VariableId first = table.declare(variable_of("w", Shape{5}, {{{0}}, 0}));
  Storage storage(table, two, 1);
  CHECK(storage.box(first) == Box{Shape{3}, Shape{2}});
  CHECK(storage.local_bytes() == 8);
  void* before = storage.data(first);
  Variable later = variable_of("total", Shape{4}, Placement::replicated(1));
  later.storage.reset();
  const VariableId second = table.declare(later);
  CHECK_THROWS_WITH(storage.data(second), Catch::Contains("variable total has no memory"));
  storage.extend();
  CHECK_THROWS_WITH(storage.box(second), Catch::Contains("variable total has no memory"));
  table[second].storage = Placement::replicated(1);
  storage.extend();
  CHECK(storage.data(first) == before);
  CHECK(storage.local_bytes() == 24);
  CHECK(static_cast<const float*>(storage.data(second))[3] == 0.0F);
  CHECK_THROWS_AS(storage.data(99), Error);
}

TEST_CASE("regions are copied between boxes whose runs differ") {
  const Shape shape{4, 5, 6};
  std::vector<float> source(120);
  std::iota(source.begin(), source.end(), 0.0F);
  const Box all = whole(shape);
  const Box target{Shape{1, 0, 2}, Shape{3, 5, 3}};
  const Box region = overlap(target, Box{Shape{0, 1, 0}, Shape{3, 3, 4}});
  CHECK(region == Box{Shape{1, 1, 2}, Shape{2, 3, 2}});
  std::vector<float> to(45, -1.0F);
  copy_region(reinterpret_cast<const std::byte*>(source.data()), all,
              reinterpret_cast<std::byte*>(to.data()), target, region, 4);
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 5; ++j) {
      for (std::int64_t k = 0; k < 3; ++k) {
        const bool inside = i < 2 && j >= 1 && j < 4 && k < 2;
        const auto value = static_cast<float>((i + 1) * 30 + j * 6 + k + 2);
        CHECK(to[static_cast<std::size_t>(i * 15 + j * 3 + k)] == (inside ? value : -1.0F));
      }
    }
  }
}

TEST_CASE("elements saturate and round by dtype") {
  const double values[] = {3e9, -3e9, std::nan(""), 2.75, 300.0};
  std::int32_t ints[5];
  store_elements(DType::int32, values, ints, 5);
  CHECK(ints[0] == 2147483647);
  CHECK(ints[1] == -2147483647 - 1);
  CHECK(ints[2] == 0);
  CHECK(ints[3] == 2);
  std::uint8_t bytes[5];
  store_elements(DType::uint8, values, bytes, 5);
  CHECK(bytes[4] == 255);
  store_elements(DType::boolean, values, bytes, 5);
  CHECK(bytes[3] == 1);
  const double huge = 9.3e18;
  std::int64_t wide = 0;
  store_elements(DType::int64, &huge, &wide, 1);
  CHECK(wide == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("ranks of a node divide its cores") {
  const std::vector<int> cores{0, 2, 4, 6, 8};
  CHECK(share_of_cores(cores, 0, 2) == std::vector<int>{0, 2, 4});
  CHECK(share_of_cores(cores, 1, 2) == std::vector<int>{6, 8});
  CHECK(share_of_cores(cores, 4, 5) == std::vector<int>{8});
  CHECK(share_of_cores(cores, 3, 6) == cores);
  comm::run_as_threads(3, [](comm::World& world) {
    // Threads of one process share all its cores, so each gets a part of them.
    const int threads = std::get<kernels::CpuDevice>(cpu_device(world)).threads;
    check(threads >= 1, "one thread at least");
    check(std::get<kernels::CpuDevice>(cpu_device(world, 5)).threads == 5, "as asked for");
  });
}

}  // namespace
}  // namespace tessera::exec
