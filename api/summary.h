// The table that model.summary() prints.
#pragma once

#include <string>
#include <vector>

#include "api/distribution.h"
#include "api/distribution_data.h"
#include "models/model.h"

namespace tessera {

/// Keras's table: layer (type), output shape, parameters, connections where there are several; then
/// totals, and the layout of every variable.
std::string summary_text(const std::string& name, const std::vector<models::LayerRow>& rows,
                         const graph::VariableTable& table,
                         const distribution::Distribution& distribution);

}  // namespace tessera
