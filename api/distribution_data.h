// What the library's distribution types hold.
#pragma once

#include "api/distribution.h"
#include "layouts/distribution.h"

namespace tessera::distribution {

struct Distribution::Data {
  layouts::Distribution value;
  DeviceMesh mesh;
};

/// From the config's `distribution` section for a job (or a rehearsal) of `ranks` ranks; problems
/// are collected.
std::optional<Distribution> read_distribution(const json::Value* section, const std::string& path,
                                              int ranks, const std::string& folder,
                                              json::Problems& problems);
/// The distribution in force: the one that was set, else DataParallel over all devices.
Distribution current();

/// Axis names of a placement.
TensorLayout layout_of(const layouts::Placement& placement, const DeviceMesh& mesh);
layouts::Placement placement_of(const TensorLayout& layout, std::size_t rank);
layouts::Mesh mesh_of(const DeviceMesh& mesh);

}  // namespace tessera::distribution
