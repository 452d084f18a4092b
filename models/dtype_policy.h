// Keras's dtype policies: the dtype a layer computes in and the one its variables have.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"

namespace tessera::models {

struct DTypePolicy {
  DType compute = DType::float32;
  DType variable = DType::float32;
};

/// "float32", "bfloat16", "mixed_bfloat16", ...; nullopt for names that are none of
/// `policy_names`.
std::optional<DTypePolicy> policy_from_name(std::string_view name);
const std::vector<std::string>& policy_names();

/// A layer's "dtype": null or absent (the fallback), a name, or a serialised DTypePolicy. Anything
/// else is a problem.
DTypePolicy read_policy(const json::Value* value, const std::string& path, DTypePolicy fallback,
                        json::Problems& problems);

/// The dtype of an input layer: a name or a policy (its compute dtype); float32 when absent.
DType read_input_dtype(const json::Value* value, const std::string& path, json::Problems& problems);

}  // namespace tessera::models
