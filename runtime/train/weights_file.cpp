#include "runtime/train/weights_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "runtime/exec/whole_tensor.h"
#include "runtime/io/array_file.h"
#include "runtime/io/safetensors.h"

namespace tessera::train {
namespace {

using graph::VariableId;

std::vector<VariableId> weights_of(const graph::VariableTable& table) {
  std::vector<VariableId> ids;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[static_cast<VariableId>(i)].role == graph::Role::weight)
      ids.push_back(static_cast<VariableId>(i));
  }
  return ids;
}

/// Reads the rank's box of an array, run by run along the last dimensions that are whole.
void read_box(const io::ArrayFile& file, int array, const Shape& shape, const Box& box, DType dtype,
              std::byte* out) {
  if (box.elements() == 0) return;
  std::size_t inner = shape.rank();  // dimensions from `inner` on are whole: one run covers them
  std::int64_t run = 1;
  while (inner > 0 && box.size[inner - 1] == shape[inner - 1]) run *= shape[--inner];
  if (inner > 0) run *= box.size[--inner];
  const Shape strides = shape.strides();
  Shape index = Shape(box.begin.sizes());
  const std::size_t run_bytes = static_cast<std::size_t>(run) * size_of(dtype);
  while (true) {
    std::int64_t first = 0;
    for (std::size_t d = 0; d < shape.rank(); ++d) first += index[d] * strides[d];
    file.read(array, first, run, out, dtype);
    out += run_bytes;
    std::size_t d = inner;
    while (d > 0 && ++index[d - 1] == box.begin[d - 1] + box.size[d - 1]) {
      index[d - 1] = box.begin[d - 1];
      --d;
    }
    if (d == 0) return;
  }
}

/// Arrays of a file that fit variables, and a line for each array or variable that does not.
struct Matched {
  std::vector<std::pair<VariableId, int>> fitting;
  std::vector<std::string> rest;
};

Matched match_weights(const graph::VariableTable& table, const io::ArrayFile& file) {
  Matched matched;
  std::vector<std::string> known;
  std::vector<std::string> in_file;
  for (const io::ArrayInfo& info : file.arrays()) in_file.push_back(info.name);
  for (const VariableId id : weights_of(table)) {
    const graph::Variable& variable = table[id];
    known.push_back(variable.path);
    const int array = file.find(variable.path);
    if (array < 0) {
      matched.rest.push_back(fmt::format("lacks \"{}\" {}{}", variable.path,
                                         to_string(variable.shape),
                                         json::did_you_mean(variable.path, in_file)));
      continue;
    }
    const io::ArrayInfo& info = file.arrays()[static_cast<std::size_t>(array)];
    if (!(info.shape == variable.shape)) {
      matched.rest.push_back(fmt::format("\"{}\" has the shape {}, the model's is {}",
                                         variable.path, to_string(info.shape),
                                         to_string(variable.shape)));
    } else if (!io::is_floating(info.type) && is_floating(variable.dtype)) {
      matched.rest.push_back(fmt::format("\"{}\" holds {}, floating-point numbers were expected",
                                         variable.path, name_of(info.type)));
    } else {
      matched.fitting.emplace_back(id, array);
    }
  }
  for (const io::ArrayInfo& info : file.arrays()) {
    if (std::find(known.begin(), known.end(), info.name) == known.end()) {
      matched.rest.push_back(fmt::format("holds \"{}\" {}, which the model has not{}", info.name,
                                         to_string(info.shape),
                                         json::did_you_mean(info.name, known)));
    }
  }
  return matched;
}

/// Throws weights unless everything fits or `partial` allows that it does not.
Matched matched_or_error(const graph::VariableTable& table, const io::ArrayFile& file,
                         const std::string& path, bool partial) {
  Matched matched = match_weights(table, file);
  if (matched.rest.empty() || partial) return matched;
  std::string message;
  for (const std::string& line : matched.rest)
    message += fmt::format("{}{}: {}", message.empty() ? "" : "\n", path, line);
  throw Error(Error::Kind::weights, message);
}

std::unique_ptr<io::ArrayFile> open_weights(const std::string& path) {
  if (path.ends_with(".h5") || path.ends_with(".keras")) {
    throw Error(Error::Kind::weights,
                fmt::format("{}: weights are read from .safetensors and .npz; in Python: "
                            "np.savez(\"weights.npz\", **{{v.path: v.numpy() for v in "
                            "model.variables}})",
                            path));
  }
  return io::open_array_file(path, Error::Kind::weights);
}

}  // namespace

void read_variable(const io::ArrayFile& file, int array, exec::Storage& storage, VariableId id) {
  const graph::Variable& variable = storage.table()[id];
  read_box(file, array, variable.shape, storage.box(id), variable.dtype,
           static_cast<std::byte*>(storage.data(id)));
}

void check_weights(const graph::VariableTable& table, const std::string& path, bool partial) {
  matched_or_error(table, *open_weights(path), path, partial);
}

std::vector<std::string> load_weights(exec::Storage& storage, const std::string& path,
                                      bool partial) {
  const auto file = open_weights(path);
  Matched matched = matched_or_error(storage.table(), *file, path, partial);
  for (const auto& [id, array] : matched.fitting) read_variable(*file, array, storage, id);
  return std::move(matched.rest);
}

void save_weights(exec::Storage& storage, comm::World& world, const std::string& path) {
  const graph::VariableTable& table = storage.table();
  const std::vector<VariableId> ids = weights_of(table);
  std::vector<io::ArrayInfo> tensors;
  for (const VariableId id : ids)
    tensors.push_back({table[id].path, io::FileType::float32, table[id].shape});
  std::unique_ptr<io::SafetensorsWriter> writer;
  std::string failure;
  const auto guarded = [&](const auto& action) {
    if (world.rank() != 0 || !failure.empty()) return;
    try {
      action();
    } catch (const Error& error) {
      failure = error.what();
    }
  };
  guarded([&] { writer = std::make_unique<io::SafetensorsWriter>(path, tensors); });
  std::vector<float> converted;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const DType dtype = table[ids[i]].dtype;
    exec::gather_slabs(
        storage, ids[i], world, [&](std::int64_t first, std::span<const std::byte> bytes) {
          guarded([&] {
            if (dtype == DType::float32) {
              writer->write(i, first * 4, bytes);
              return;
            }
            const auto count = static_cast<std::int64_t>(bytes.size() / size_of(dtype));
            converted.resize(static_cast<std::size_t>(count));
            io::convert(io::file_type_of(dtype), bytes.data(), DType::float32, converted.data(),
                        count);
            writer->write(i, first * 4, std::as_bytes(std::span(converted)));
          });
        });
  }
  guarded([&] { writer->finish(); });
  // Every rank must know, or some would go on as if the file were there.
  const std::vector<std::string> failures = comm::gather_texts(world.all(), failure);
  for (const std::string& text : failures) {
    if (!text.empty()) throw Error(Error::Kind::internal, text);
  }
}

}  // namespace tessera::train
