#include "api/tensor.h"

#include <fmt/format.h>

#include <cstring>

#include "api/distribution_data.h"
#include "api/job.h"
#include "api/tensor_data.h"
#include "runtime/io/array_file.h"

namespace tessera {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(Error::Kind::config, message); }

/// Calls `run(offset in the whole, offset in the part, elements)` for every row of a box.
template <typename Run>
void for_each_row(const Shape& shape, const Box& box, const Run& run) {
  if (box.elements() == 0) return;
  const std::size_t rank = shape.rank();
  const std::int64_t length = rank == 0 ? 1 : box.size[rank - 1];
  const Shape strides = shape.strides();
  Shape index = box.begin;
  for (std::int64_t inside = 0; inside < box.elements(); inside += length) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < rank; ++d) offset += index[d] * strides[d];
    run(offset, inside, length);
    for (std::size_t d = rank; d-- > 1;) {  // the last dimension is the row itself
      if (++index[d - 1] < box.begin[d - 1] + box.size[d - 1]) break;
      index[d - 1] = box.begin[d - 1];
    }
  }
}

template <typename T>
Tensor from_values(std::span<const T> values, std::vector<std::int64_t> shape, DType dtype) {
  const std::int64_t elements = checked_elements(shape);
  if (static_cast<std::int64_t>(values.size()) != elements) {
    refuse(
        fmt::format("{} values do not fill the shape [{}]", values.size(), fmt::join(shape, ", ")));
  }
  std::vector<std::byte> bytes(values.size_bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  distribution::TensorLayout layout = whole_layout(shape.size());
  return make_tensor(std::move(shape), dtype, std::move(layout), std::move(bytes));
}

std::vector<float> to_floats(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / size_of(dtype));
  io::convert(io::file_type_of(dtype), bytes.data(), DType::float32, values.data(),
              static_cast<std::int64_t>(values.size()));
  return values;
}

/// All bytes of a tensor, on every rank: each rank's part is sent once, by the first rank that
/// holds it.
std::vector<std::byte> whole_bytes(const Tensor::Data& data) {
  const Shape shape(data.shape);
  const layouts::Mesh mesh = distribution::mesh_of(*data.layout.device_mesh());
  const layouts::Placement placement = distribution::placement_of(data.layout, shape.rank());
  // Decided alike on every rank: one rank may hold all of a tensor that is cut.
  if (placement.cut_axes() == 0) return data.bytes;
  comm::World& world = job();
  const auto width = static_cast<std::int64_t>(size_of(data.dtype));
  std::vector<std::int64_t> counts;
  std::vector<Box> boxes;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    boxes.push_back(layouts::box_of(shape, placement, mesh, rank));
    bool first = true;
    for (int other = 0; other < rank; ++other)
      first = first && !(boxes[static_cast<std::size_t>(other)] == boxes.back());
    counts.push_back(first ? boxes.back().elements() * width : 0);
  }
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  std::vector<std::byte> gathered(static_cast<std::size_t>(total));
  comm::Communicator& all = world.all();
  all.wait(all.start_all_gather(data.bytes.data(), gathered.data(), counts, DType::uint8,
                                "Tensor::to_host"));
  std::vector<std::byte> whole(static_cast<std::size_t>(shape.elements() * width));
  const std::byte* part = gathered.data();
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] == 0) continue;
    for_each_row(shape, boxes[rank],
                 [&](std::int64_t offset, std::int64_t inside, std::int64_t length) {
                   std::memcpy(whole.data() + offset * width, part + inside * width,
                               static_cast<std::size_t>(length * width));
                 });
    part += counts[rank];
  }
  return whole;
}

}  // namespace

distribution::TensorLayout whole_layout(std::size_t rank) {
  const auto count = static_cast<std::int64_t>(distribution::get_device_count());
  return {std::vector<distribution::Axes>(rank), distribution::DeviceMesh({count}, {"batch"})};
}

Tensor make_tensor(std::vector<std::int64_t> shape, DType dtype, distribution::TensorLayout layout,
                   std::vector<std::byte> local) {
  const Shape whole(shape);
  const layouts::Placement placement = distribution::placement_of(layout, whole.rank());
  const Box box =
      layouts::box_of(whole, placement, distribution::mesh_of(*layout.device_mesh()), job().rank());
  return Tensor(std::make_shared<Tensor::Data>(
      Tensor::Data{std::move(shape), dtype, std::move(layout), box, std::move(local)}));
}

Tensor Tensor::from(std::span<const float> values, std::vector<std::int64_t> shape) {
  return from_values(values, std::move(shape), DType::float32);
}
Tensor Tensor::from(std::span<const double> values, std::vector<std::int64_t> shape) {
  return from_values(values, std::move(shape), DType::float64);
}
Tensor Tensor::from(std::span<const std::int32_t> values, std::vector<std::int64_t> shape) {
  return from_values(values, std::move(shape), DType::int32);
}
Tensor Tensor::from(std::span<const std::int64_t> values, std::vector<std::int64_t> shape) {
  return from_values(values, std::move(shape), DType::int64);
}
Tensor Tensor::from(std::span<const std::uint8_t> values, std::vector<std::int64_t> shape) {
  return from_values(values, std::move(shape), DType::uint8);
}

Tensor Tensor::from_local(std::span<const float> values, std::vector<std::int64_t> shape,
                          distribution::TensorLayout layout) {
  checked_elements(shape);
  std::vector<std::byte> bytes(values.size_bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  Tensor tensor =
      make_tensor(std::move(shape), DType::float32, std::move(layout), std::move(bytes));
  if (static_cast<std::int64_t>(values.size()) != tensor.data().box.elements()) {
    refuse(fmt::format("{} values do not fill this rank's part {} of the shape [{}]", values.size(),
                       to_string(tensor.data().box.size), fmt::join(tensor.shape(), ", ")));
  }
  return tensor;
}

const std::vector<std::int64_t>& Tensor::shape() const { return data_->shape; }
DType Tensor::dtype() const { return data_->dtype; }
const distribution::TensorLayout& Tensor::layout() const { return data_->layout; }
std::vector<std::int64_t> Tensor::local_shape() const {
  return {data_->box.size.begin(), data_->box.size.end()};
}
std::vector<std::int64_t> Tensor::offset() const {
  return {data_->box.begin.begin(), data_->box.begin.end()};
}
std::vector<float> Tensor::local() const { return to_floats(data_->bytes, data_->dtype); }
std::vector<float> Tensor::to_host() const { return to_floats(whole_bytes(*data_), data_->dtype); }

Tensor distribution::distribute_tensor(const Tensor& tensor, const TensorLayout& layout) {
  const Tensor::Data& data = tensor.data();
  const Shape shape(data.shape);
  const layouts::Placement placement = placement_of(layout, shape.rank());
  const layouts::Mesh mesh = mesh_of(*layout.device_mesh());
  if (mesh.size() != job().size()) {
    refuse(fmt::format("the layout's mesh has {} devices, the job {} ranks", mesh.size(),
                       job().size()));
  }
  const Box box = layouts::box_of(shape, placement, mesh, job().rank());
  const std::vector<std::byte> whole = whole_bytes(data);
  const auto width = static_cast<std::int64_t>(size_of(data.dtype));
  std::vector<std::byte> local(static_cast<std::size_t>(box.elements() * width));
  for_each_row(shape, box, [&](std::int64_t offset, std::int64_t inside, std::int64_t length) {
    std::memcpy(local.data() + inside * width, whole.data() + offset * width,
                static_cast<std::size_t>(length * width));
  });
  return make_tensor(data.shape, data.dtype, layout, std::move(local));
}

}  // namespace tessera
