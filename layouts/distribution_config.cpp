// Reading a config's `distribution` section.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/arguments.h"
#include "layouts/distribution.h"

namespace tessera::layouts {
namespace {

using json::Arguments;
using json::Problems;
using json::Value;

const std::vector<std::string>& class_names() {
  static const std::vector<std::string> names{"DataParallel", "ModelParallel"};
  return names;
}

/// Fills in one -1 and compares with the number of ranks.
std::optional<std::vector<std::int64_t>> fit_shape(std::vector<std::int64_t> shape, int ranks,
                                                   const Value& at, Arguments& arguments) {
  std::int64_t known = 1;
  std::ptrdiff_t open = 0;
  for (const std::int64_t size : shape) {
    if (size == -1) {
      ++open;
    } else if (size < 1 || size > std::int64_t{1} << 31U) {
      arguments.problem(at, "shape",
                        fmt::format("mesh size {} is out of range: expected at least 1, or one -1 "
                                    "to be filled in",
                                    size));
      return std::nullopt;
    } else if (__builtin_mul_overflow(known, size, &known)) {
      arguments.problem(at, "shape", "the product of the mesh sizes is out of range");
      return std::nullopt;
    }
  }
  if (open > 1) {
    arguments.problem(at, "shape", "only one size of the mesh can be -1");
    return std::nullopt;
  }
  if (open == 1) {
    if (ranks % known != 0) {
      arguments.problem(
          at, "shape",
          fmt::format("Shape does not match the number of devices: {} ranks cannot be "
                      "divided by {}, the product of the other sizes of [{}]",
                      ranks, known, fmt::join(shape, ", ")));
      return std::nullopt;
    }
    std::replace(shape.begin(), shape.end(), std::int64_t{-1}, ranks / known);
    known = ranks;
  }
  if (known != ranks && !shape.empty()) {
    arguments.problem(at, "shape",
                      fmt::format("Shape does not match the number of devices: mesh [{}] needs {} "
                                  "ranks, the job has {}",
                                  fmt::join(shape, ", "), known, ranks));
    return std::nullopt;
  }
  return shape;
}

std::optional<Mesh> read_mesh(const Value& value, const std::string& path, int ranks,
                              Problems& problems) {
  if (!value.is_object()) {
    problems.add({value.file ? *value.file : "", value.position, path,
                  "expected an object with \"shape\" and \"axis_names\""});
    return std::nullopt;
  }
  Arguments arguments(value, path, problems);
  const Value* shape_value = arguments.required("shape");
  const auto shape = arguments.integers("shape");
  const Value* names_value = arguments.required("axis_names");
  const auto names = arguments.texts("axis_names");
  arguments.finish();
  if (shape_value != nullptr && shape_value->is_null()) {
    arguments.problem(*shape_value, "shape", "expected an array of integers, got null");
  }
  if (names_value != nullptr && names_value->is_null()) {
    arguments.problem(*names_value, "axis_names", "expected an array of strings, got null");
  }
  if (!shape || !names) return std::nullopt;
  try {
    // Everything but the number of ranks, so that a -1 does not hide other faults.
    std::vector<std::int64_t> filled = *shape;
    std::replace(filled.begin(), filled.end(), std::int64_t{-1}, std::int64_t{1});
    static_cast<void>(Mesh(filled, *names));
  } catch (const Error& error) {
    problems.add({value.file ? *value.file : "", value.position, path, error.what()});
    return std::nullopt;
  }
  auto fitted = fit_shape(*shape, ranks, *shape_value, arguments);
  if (!fitted) return std::nullopt;
  return Mesh(*std::move(fitted), *names);
}

Zero read_zero(const Value& value, const std::string& path, const Mesh& mesh, int batch_axis,
               Problems& problems) {
  Arguments arguments(value, path, problems);
  Zero zero;
  zero.axis = batch_axis;
  arguments.required("stage");
  zero.stage = static_cast<int>(arguments.integer("stage", 0, 1, 3));
  if (const auto name = arguments.optional_text("axis")) {
    const std::optional<int> axis = mesh.find_axis(*name);
    if (!axis) {
      arguments.problem(*value.find("axis"), "axis", unknown_axis(*name, mesh));
    }
    zero.axis = axis.value_or(batch_axis);
  }
  arguments.finish();
  return zero;
}

void read_map_file(const Value& value, const std::string& path, const std::string& folder,
                   LayoutMap& map, Problems& problems) {
  std::filesystem::path file(value.string);
  if (file.is_relative() && !folder.empty()) file = std::filesystem::path(folder) / file;
  std::string text;
  try {
    text = json::read_text_file(file.string(), Error::Kind::config);
  } catch (const Error& error) {
    problems.add({value.file ? *value.file : "", value.position, path, error.what()});
    return;
  }
  const std::size_t before = problems.list().size();
  const Value object = json::parse(text, file.string(), problems);
  if (problems.list().size() != before && !object.is_object()) return;
  if (!object.is_object()) {
    problems.add(
        {file.string(), object.position, "", "expected an object that maps keys to layouts"});
    return;
  }
  read_rules(object, "", map, problems);
}

void read_map(const Value& value, const std::string& path, const std::string& folder,
              LayoutMap& map, Problems& problems) {
  if (value.is_object()) {
    read_rules(value, path, map, problems);
  } else if (value.is_string()) {
    read_map_file(value, path, folder, map, problems);
  } else {
    problems.add({value.file ? *value.file : "", value.position, path,
                  "expected an object that maps keys to layouts, or the path of a JSON file that "
                  "holds one"});
  }
}

Mesh all_ranks(int ranks) { return Mesh({ranks}, {"batch"}); }

Distribution read_data_parallel(Arguments& arguments, int ranks) {
  Problems& problems = arguments.problems();
  std::optional<Mesh> mesh = all_ranks(ranks);
  if (const Value* value = arguments.value("device_mesh"); value != nullptr && !value->is_null()) {
    mesh = read_mesh(*value, arguments.path_of("device_mesh"), ranks, problems);
  }
  const Value* zero = arguments.value("zero");
  arguments.finish();
  if (!mesh) return {};
  Zero cut;
  if (zero != nullptr && !zero->is_null()) {
    cut = read_zero(*zero, arguments.path_of("zero"), *mesh, 0, problems);
  }
  return Distribution::data_parallel(*std::move(mesh), cut);
}

Distribution read_model_parallel(Arguments& arguments, int ranks, const std::string& folder) {
  Problems& problems = arguments.problems();
  const Value* mesh_value = arguments.required("device_mesh");
  const Value* map_value = arguments.required("layout_map");
  const auto batch_name = arguments.optional_text("batch_dim_name");
  const std::string match = arguments.choice("match", "fullmatch", match_names());
  const bool allow_unused = arguments.boolean("allow_unused_rules", false);
  const bool divisible = arguments.boolean("require_divisible", false);
  const Value* zero = arguments.value("zero");
  arguments.finish();
  if (mesh_value == nullptr) return {};
  const auto mesh = read_mesh(*mesh_value, arguments.path_of("device_mesh"), ranks, problems);
  if (!mesh) return {};
  LayoutMap map(*mesh, *match_from_name(match));
  if (map_value != nullptr) {
    read_map(*map_value, arguments.path_of("layout_map"), folder, map, problems);
  }
  int batch_axis = 0;
  if (batch_name) {
    const std::optional<int> axis = mesh->find_axis(*batch_name);
    if (!axis) {
      arguments.problem(*arguments.value("batch_dim_name"), "batch_dim_name",
                        unknown_axis(*batch_name, *mesh));
    }
    batch_axis = axis.value_or(0);
  }
  Zero cut;
  if (zero != nullptr && !zero->is_null()) {
    cut = read_zero(*zero, arguments.path_of("zero"), *mesh, batch_axis, problems);
  }
  Distribution result = Distribution::model_parallel(
      std::move(map), mesh->axis_names()[static_cast<std::size_t>(batch_axis)], cut);
  result.allow_unused_rules = allow_unused;
  result.require_divisible = divisible;
  return result;
}

}  // namespace

Distribution read_distribution(const Value* section, const std::string& path, int ranks,
                               const std::string& folder, Problems& problems) {
  if (section == nullptr || section->is_null())
    return Distribution::data_parallel(all_ranks(ranks));
  const std::size_t known_problems = problems.list().size();
  const json::Identifier identifier = json::read_identifier(*section, path, problems);
  if (problems.list().size() != known_problems) return {};
  Arguments arguments(*identifier.config,
                      section->is_object() ? json::child_path(path, "config") : path, problems);
  if (identifier.class_name == "DataParallel") return read_data_parallel(arguments, ranks);
  if (identifier.class_name == "ModelParallel") {
    if (section->is_string()) {
      problems.add({section->file ? *section->file : "", section->position, path,
                    "ModelParallel needs a device_mesh and a layout_map: write {\"class_name\": "
                    "\"ModelParallel\", \"config\": {\"device_mesh\": ..., \"layout_map\": ...}}"});
      return {};
    }
    if (section->find("config") == nullptr) {
      problems.add({section->file ? *section->file : "", section->position, path,
                    "missing key \"config\" with \"device_mesh\" and \"layout_map\""});
      return {};
    }
    return read_model_parallel(arguments, ranks, folder);
  }
  const bool is_name = section->is_string();
  problems.add({identifier.at->file ? *identifier.at->file : "", identifier.at->position,
                is_name ? path : json::child_path(path, "class_name"),
                fmt::format("unknown distribution \"{}\"{}; expected DataParallel or ModelParallel",
                            identifier.class_name,
                            json::did_you_mean(identifier.class_name, class_names()))});
  return {};
}

}  // namespace tessera::layouts
