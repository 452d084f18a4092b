// Who holds what follows from placements alone, so no rank needs to ask another.
#include "runtime/exec/whole_tensor.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "layouts/placement.h"
#include "runtime/exec/boxes.h"
#include "runtime/exec/elements.h"
#include "runtime/exec/holders.h"

namespace tessera::exec {
namespace {

using graph::Variable;
using graph::VariableId;
using Sink = std::function<void(std::int64_t, std::span<const std::byte>)>;

std::int64_t sum(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// Brings one variable to rank 0, slab by slab.
class Gathering {
 public:
  Gathering(Storage& storage, VariableId id, comm::World& world)
      : storage_(storage),
        id_(id),
        variable_(storage.table()[id]),
        world_(world),
        element_bytes_(static_cast<std::int64_t>(size_of(variable_.dtype))),
        holders_(holders_of(variable_, storage.mesh())),
        send_counts_(static_cast<std::size_t>(world.size()), 0),
        receive_counts_(static_cast<std::size_t>(world.size()), 0) {}

  void run(std::int64_t slab_bytes, const Sink& sink) {
    const bool here = holders_.size() == 1 && holders_.front().rank == 0;
    if (here && world_.rank() != 0) return;
    const std::int64_t most = std::max(slab_bytes / element_bytes_, std::int64_t{1});
    for_each_slab(variable_.shape, most, [&](const Box& slab, std::int64_t first) {
      if (here) {
        const auto* data = static_cast<const std::byte*>(storage_.data(id_));
        sink(first, {data + first * element_bytes_,
                     static_cast<std::size_t>(slab.elements() * element_bytes_)});
        return;
      }
      exchange(slab);
      if (world_.rank() != 0) return;
      unpack(slab);
      sink(first, whole_);
    });
  }

 private:
  void exchange(const Box& slab) {
    std::ranges::fill(receive_counts_, 0);
    send_counts_[0] = 0;
    for (const Holder& holder : holders_) {
      const Box part = overlap(holder.box, slab);
      const std::int64_t bytes = part.elements() * element_bytes_;
      if (world_.rank() == 0) receive_counts_[static_cast<std::size_t>(holder.rank)] = bytes;
      if (world_.rank() == holder.rank) {
        send_counts_[0] = bytes;
        packed_.resize(static_cast<std::size_t>(bytes));
        copy_region(static_cast<const std::byte*>(storage_.data(id_)), holder.box, packed_.data(),
                    part, part, element_bytes_);
      }
    }
    received_.resize(static_cast<std::size_t>(sum(receive_counts_)));
    comm::Communicator& all = world_.all();
    all.wait(all.start_all_to_all(packed_.data(), send_counts_, received_.data(), receive_counts_,
                                  DType::uint8, variable_.path.c_str()));
  }

  void unpack(const Box& slab) {
    whole_.resize(static_cast<std::size_t>(slab.elements() * element_bytes_));
    const std::byte* from = received_.data();
    // Parts arrive in the order of the ranks, as do the holders.
    for (const Holder& holder : holders_) {
      const Box part = overlap(holder.box, slab);
      copy_region(from, part, whole_.data(), slab, part, element_bytes_);
      from += part.elements() * element_bytes_;
    }
  }

  Storage& storage_;
  VariableId id_;
  const Variable& variable_;
  comm::World& world_;
  std::int64_t element_bytes_;
  std::vector<Holder> holders_;
  std::vector<std::int64_t> send_counts_, receive_counts_;
  std::vector<std::byte> packed_, received_, whole_;
};

}  // namespace

std::vector<Holder> holders_of(const Variable& variable, const layouts::Mesh& mesh) {
  check(variable.storage.has_value(), "whole tensor: the variable has no placement");
  const layouts::Placement& placement = *variable.storage;
  const layouts::AxisSet differing = placement.cut_axes() | placement.pending;
  std::vector<Holder> holders;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    bool first_copy = true;
    for (int axis = 0; axis < mesh.axes(); ++axis) {
      if ((differing >> axis & 1U) == 0 && mesh.coordinate(rank, axis) != 0) first_copy = false;
    }
    if (first_copy) {
      holders.push_back({rank, layouts::box_of(variable.shape, placement, mesh, rank)});
    }
  }
  return holders;
}

bool keeps_pending_value(const Variable& variable, const layouts::Mesh& mesh, int rank) {
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    if ((variable.storage->pending >> axis & 1U) != 0 && mesh.coordinate(rank, axis) != 0) {
      return false;
    }
  }
  return true;
}

void gather_slabs(Storage& storage, VariableId id, comm::World& world, const Sink& on_rank_0,
                  std::int64_t slab_bytes) {
  const Variable& variable = storage.table()[id];
  check(variable.storage.has_value(), "whole tensor: the variable has no placement");
  if (variable.storage->pending == 0)
    return Gathering(storage, id, world).run(slab_bytes, on_rank_0);
  // Totals of metrics: a few numbers.
  const std::vector<double> values = read_whole(storage, id, world);
  if (world.rank() != 0 || values.empty()) return;
  std::vector<std::byte> bytes(values.size() * size_of(variable.dtype));
  store_elements(variable.dtype, values.data(), bytes.data(),
                 static_cast<std::int64_t>(values.size()));
  on_rank_0(0, bytes);
}

void fill_from_slabs(Storage& storage, VariableId id,
                     const std::function<void(const Box&, std::span<std::byte>)>& read,
                     std::int64_t slab_bytes) {
  const Variable& variable = storage.table()[id];
  const Box& mine = storage.box(id);
  auto* data = static_cast<std::byte*>(storage.data(id));
  const auto element_bytes = static_cast<std::int64_t>(size_of(variable.dtype));
  if (!keeps_pending_value(variable, storage.mesh(), storage.rank())) {
    std::fill_n(data, mine.elements() * element_bytes, std::byte{0});
    return;
  }
  const std::int64_t most = std::max(slab_bytes / element_bytes, std::int64_t{1});
  for_each_slab(mine.size, most, [&](const Box& slab, std::int64_t first) {
    Box box = slab;
    for (std::size_t dim = 0; dim < box.begin.rank(); ++dim) box.begin[dim] += mine.begin[dim];
    read(box,
         {data + first * element_bytes, static_cast<std::size_t>(box.elements() * element_bytes)});
  });
}

std::vector<double> read_whole(Storage& storage, VariableId id, comm::World& world) {
  const Variable& variable = storage.table()[id];
  const std::vector<Holder> holders = holders_of(variable, storage.mesh());
  std::vector<std::int64_t> counts(static_cast<std::size_t>(world.size()), 0);
  std::vector<double> mine;
  for (const Holder& holder : holders) {
    counts[static_cast<std::size_t>(holder.rank)] = holder.box.elements();
    if (holder.rank != world.rank()) continue;
    mine.resize(static_cast<std::size_t>(holder.box.elements()));
    load_elements(variable.dtype, storage.data(id), mine.data(), holder.box.elements());
  }
  std::vector<double> all(static_cast<std::size_t>(sum(counts)));
  comm::Communicator& everyone = world.all();
  everyone.wait(everyone.start_all_gather(mine.data(), all.data(), counts, DType::float64,
                                          variable.path.c_str()));
  std::vector<double> values(static_cast<std::size_t>(variable.shape.elements()), 0.0);
  const double* terms = all.data();
  for (const Holder& holder : holders) {
    for_each_run(whole(variable.shape), holder.box,
                 [&](std::int64_t to, std::int64_t from, std::int64_t count) {
                   for (std::int64_t i = 0; i < count; ++i) {
                     values[static_cast<std::size_t>(to + i)] += terms[from + i];
                   }
                 });
    terms += holder.box.elements();
  }
  return values;
}

void write_whole(Storage& storage, VariableId id, std::span<const double> values) {
  const Variable& variable = storage.table()[id];
  check(static_cast<std::int64_t>(values.size()) == variable.shape.elements(),
        "write_whole: the number of values is not that of the variable's elements");
  const Box& mine = storage.box(id);
  auto* data = static_cast<std::byte*>(storage.data(id));
  const auto element_bytes = static_cast<std::int64_t>(size_of(variable.dtype));
  if (!keeps_pending_value(variable, storage.mesh(), storage.rank())) {
    std::fill_n(data, mine.elements() * element_bytes, std::byte{0});
    return;
  }
  for_each_run(
      whole(variable.shape), mine, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
        store_elements(variable.dtype, values.data() + from, data + to * element_bytes, count);
      });
}

}  // namespace tessera::exec
