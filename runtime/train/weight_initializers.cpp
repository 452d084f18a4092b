// Initializers, resolved for a shape: the VarianceScaling family becomes a uniform or a normal
// distribution.
#include <cmath>

#include "runtime/train/named_entry.h"
#include "runtime/train/weight_rules.h"

namespace tessera::train {
namespace {

using graph::Initializer;

/// What an initializer's function gets.
struct Request {
  json::Arguments& arguments;
  const Shape& shape;
  FanAxes axes;
  const json::Value& at;  // where to report that the shape does not fit
  const std::string& path;
};

struct Fans {
  double in = 1.0;
  double out = 1.0;
};

/// Keras's compute_fans; with axes, the products over them.
Fans fans_of(const Shape& shape, const FanAxes& axes) {
  const auto product = [&shape](const std::vector<int>& dims) {
    double result = 1.0;
    for (const int dim : dims) {
      const int rank = static_cast<int>(shape.rank());
      const int index = dim < 0 ? dim + rank : dim;
      if (index >= 0 && index < rank) {
        result *= static_cast<double>(shape[static_cast<std::size_t>(index)]);
      }
    }
    return result;
  };
  if (!axes.input.empty() || !axes.output.empty()) {
    return {product(axes.input), product(axes.output)};
  }
  if (shape.rank() == 0) return {};
  if (shape.rank() == 1) return {product({0}), product({0})};
  double field = 1.0;
  for (std::size_t dim = 0; dim + 2 < shape.rank(); ++dim) {
    field *= static_cast<double>(shape[dim]);
  }
  return {field * product({-2}), field * product({-1})};
}

std::vector<int> read_axes(json::Arguments& arguments, std::string_view key,
                           std::vector<int> fallback) {
  const auto given = arguments.integers(key);
  if (!given) return fallback;
  std::vector<int> axes;
  for (const std::int64_t axis : *given) axes.push_back(static_cast<int>(axis));
  return axes;
}

Initializer scaled(Request& request, double scale, std::string_view mode,
                   std::string_view distribution) {
  FanAxes axes = request.axes;
  axes.input = read_axes(request.arguments, "input_axes", axes.input);
  axes.output = read_axes(request.arguments, "output_axes", axes.output);
  const Fans fans = fans_of(request.shape, axes);
  const double units = mode == "fan_in"    ? fans.in
                       : mode == "fan_out" ? fans.out
                                           : (fans.in + fans.out) / 2.0;
  const double variance = scale / std::max(1.0, units);
  Initializer result;
  if (distribution == "uniform") {
    const double limit = std::sqrt(3.0 * variance);
    result.kind = Initializer::Kind::random_uniform;
    result.a = -limit;
    result.b = limit;
  } else if (distribution == "untruncated_normal") {
    result.kind = Initializer::Kind::random_normal;
    result.b = std::sqrt(variance);
  } else {
    // The standard deviation of a standard normal cut at two is 0.8796...
    result.kind = Initializer::Kind::truncated_normal;
    result.b = std::sqrt(variance) / 0.87962566103423978;
  }
  return result;
}

Initializer variance_scaling(Request& request) {
  json::Arguments& arguments = request.arguments;
  double scale = arguments.number("scale", 1.0);
  if (!(scale > 0.0)) {
    arguments.problem(
        *arguments.object().find("scale"), "scale",
        fmt::format("Argument `scale` must be positive float. Received: scale={}", scale));
    scale = 1.0;
  }
  const std::string mode = arguments.choice("mode", "fan_in", {"fan_in", "fan_out", "fan_avg"});
  const std::string distribution =
      arguments.choice("distribution", "truncated_normal",
                       {"uniform", "truncated_normal", "untruncated_normal", "normal"});
  return scaled(request, scale, mode, distribution);
}

Initializer glorot_uniform(Request& request) { return scaled(request, 1.0, "fan_avg", "uniform"); }
Initializer glorot_normal(Request& request) { return scaled(request, 1.0, "fan_avg", "normal"); }
Initializer he_uniform(Request& request) { return scaled(request, 2.0, "fan_in", "uniform"); }
Initializer he_normal(Request& request) { return scaled(request, 2.0, "fan_in", "normal"); }
Initializer lecun_uniform(Request& request) { return scaled(request, 1.0, "fan_in", "uniform"); }
Initializer lecun_normal(Request& request) { return scaled(request, 1.0, "fan_in", "normal"); }

Initializer of(Initializer::Kind kind, double a, double b) {
  Initializer result;
  result.kind = kind;
  result.a = a;
  result.b = b;
  return result;
}

Initializer random_normal(Request& request) {
  const double mean = request.arguments.number("mean", 0.0);
  return of(Initializer::Kind::random_normal, mean, request.arguments.number("stddev", 0.05));
}
Initializer truncated_normal(Request& request) {
  const double mean = request.arguments.number("mean", 0.0);
  return of(Initializer::Kind::truncated_normal, mean, request.arguments.number("stddev", 0.05));
}
Initializer random_uniform(Request& request) {
  const double low = request.arguments.number("minval", -0.05);
  return of(Initializer::Kind::random_uniform, low, request.arguments.number("maxval", 0.05));
}
Initializer zeros(Request& /*request*/) { return of(Initializer::Kind::zeros, 0.0, 0.0); }
Initializer ones(Request& /*request*/) { return of(Initializer::Kind::ones, 0.0, 0.0); }

/// Appends the numbers of nested arrays; false where something else stands in them.
bool flatten(const json::Value& value, std::vector<float>& out) {
  if (value.is_number()) {
    out.push_back(static_cast<float>(value.number));
    return true;
  }
  if (!value.is_array()) return false;
  for (const json::Value& item : value.array) {
    if (!flatten(item, out)) return false;
  }
  return true;
}

Initializer constant(Request& request) {
  const json::Value* value = request.arguments.value("value");
  if (value == nullptr || !value->is_array()) {
    return of(Initializer::Kind::constant, request.arguments.number("value", 0.0), 0.0);
  }
  std::vector<float> values;
  if (!flatten(*value, values) ||
      static_cast<std::int64_t>(values.size()) != request.shape.elements()) {
    request.arguments.problem(
        *value, "value",
        fmt::format("expected a number or an array of the {} numbers of shape {}, got {}",
                    request.shape.elements(), to_string(request.shape), values.size()));
    return {};
  }
  Initializer result;
  result.kind = Initializer::Kind::values;
  result.values = std::make_shared<const std::vector<float>>(std::move(values));
  return result;
}

void require_rank(Request& request, bool good, std::string_view text) {
  if (good) return;
  request.arguments.problems().add(
      {request.at.file ? *request.at.file : "", request.at.position, request.path,
       fmt::format("{}; the weight has shape {}", text, to_string(request.shape))});
}

Initializer identity(Request& request) {
  require_rank(request, request.shape.rank() == 2,
               "Identity matrix initializer can only be used for 2D matrices");
  return of(Initializer::Kind::identity, request.arguments.number("gain", 1.0), 0.0);
}

Initializer orthogonal(Request& request) {
  require_rank(request, request.shape.rank() >= 2,
               "The tensor to initialize must be at least two-dimensional");
  return of(Initializer::Kind::orthogonal, request.arguments.number("gain", 1.0), 0.0);
}

struct Entry {
  const char* name;
  const char* alias;
  Initializer (*make)(Request&);
};
constexpr Entry kInitializers[] = {
    {"Zeros", "zeros", zeros},
    {"zero", nullptr, zeros},
    {"Ones", "ones", ones},
    {"one", nullptr, ones},
    {"Constant", "constant", constant},
    {"Identity", "identity", identity},
    {"IdentityInitializer", nullptr, identity},
    {"Orthogonal", "orthogonal", orthogonal},
    {"OrthogonalInitializer", nullptr, orthogonal},
    {"RandomNormal", "random_normal", random_normal},
    {"normal", nullptr, random_normal},
    {"RandomUniform", "random_uniform", random_uniform},
    {"uniform", nullptr, random_uniform},
    {"TruncatedNormal", "truncated_normal", truncated_normal},
    {"VarianceScaling", "variance_scaling", variance_scaling},
    {"GlorotUniform", "glorot_uniform", glorot_uniform},
    {"GlorotNormal", "glorot_normal", glorot_normal},
    {"HeUniform", "he_uniform", he_uniform},
    {"HeNormal", "he_normal", he_normal},
    {"LecunUniform", "lecun_uniform", lecun_uniform},
    {"LecunNormal", "lecun_normal", lecun_normal},
};

/// An integer, null, or a SeedGenerator object.
std::optional<std::uint64_t> read_seed(json::Arguments& arguments) {
  const json::Value* seed = arguments.value("seed");
  if (seed == nullptr || seed->is_null()) return std::nullopt;
  if (seed->is_object()) {
    const json::Value* config = seed->find("config");
    seed = config == nullptr ? nullptr : config->find("seed");
    if (seed == nullptr || seed->kind != json::Kind::integer) return std::nullopt;
    return static_cast<std::uint64_t>(seed->integer);
  }
  const std::optional<std::int64_t> number = arguments.optional_integer("seed");
  if (!number) return std::nullopt;
  return static_cast<std::uint64_t>(*number);
}

}  // namespace

Initializer make_initializer(const json::Value& value, const std::string& path, const Shape& shape,
                             json::Problems& problems, const FanAxes& axes) {
  const json::Identifier identifier = json::read_identifier(value, path, problems);
  const Entry* entry =
      find_entry(std::span<const Entry>(kInitializers), identifier, "initializer", path, problems);
  if (entry == nullptr) return {};
  json::Arguments arguments(*identifier.config, config_path(value, path), problems);
  Request request{arguments, shape, axes, *identifier.at, path};
  Initializer initializer = entry->make(request);
  initializer.seed = read_seed(arguments);
  // Written by Keras for the whole family, read only where fans are used; "dtype" by older
  // versions.
  arguments.ignore({"input_axes", "output_axes", "dtype"});
  arguments.finish("argument");
  return initializer;
}

}  // namespace tessera::train
