// Masks: where they go, where they end, how they are joined.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/unit/models_fixture.h"
#include "tests/unit/models_json.h"

using namespace tessera;
using namespace tessera::models::test;

namespace {

// The mask of a model's output, or nothing.
std::optional<Values> mask_of(const std::string& text, const std::vector<Values>& inputs) {
  Loaded loaded(text);
  Runner runner(loaded, size_of_batch(loaded, inputs.front()));
  runner(inputs);
  const graph::SymbolicTensor mask = runner.result().masks.front();
  if (!mask) return std::nullopt;
  CHECK(mask.dtype() == DType::boolean);
  return runner.value(mask);
}

}  // namespace

TEST_CASE("masks go through layers that keep them and end at those that do not") {
  const Values x{1, 0, 2, 0};  // two positions of two features... as [1, 4, 1]
  const std::pair<std::string, std::string> masking{"Masking", ""};
  CHECK(mask_of(model_of("[null, 4, 1]", {masking,
                                          {"Dense", R"("units": 2, "kernel_initializer": "ones")"},
                                          {"Dropout", "\"rate\": 0.5"},
                                          {"LayerNormalization", ""},
                                          {"Activation", "\"activation\": \"relu\""}}),
                {x}) == Values{1, 0, 1, 0});
  CHECK_FALSE(mask_of(model_of("[null, 4, 1]", {masking, {"Flatten", ""}}), {x}).has_value());
  CHECK_FALSE(
      mask_of(model_of("[null, 4, 1]", {{"Dense", R"("units": 2, "kernel_initializer": "ones")"}}),
              {x})
          .has_value());
  CHECK(mask_of(model_of("[null, 4]", {{"Embedding", R"("input_dim": 3, "output_dim": 2,
                                                       "mask_zero": true, "embeddings_initializer": "ones")"}},
                         "int32"),
                {x}) == Values{1, 0, 1, 0});
  // Position by position: any feature that differs from the value is enough.
  CHECK(mask_of(model_of("[null, 2, 2]", {{"Masking", "\"mask_value\": 0"}}), {{0, 3, 0, 0}}) ==
        Values{1, 0});
}

TEST_CASE("masks of several inputs are joined") {
  const auto text = [](bool both, const std::string& class_name, const std::string& config) {
    return R"({"class_name": "Functional", "config": {"name": "net", "layers": [
      {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 2, 1]}},
      {"class_name": "InputLayer", "config": {"name": "y", "batch_shape": [null, 2, 1]}},
      {"class_name": "Masking", "config": {"name": "a"}, "inbound_nodes": [[["x", 0, 0, {}]]]},
      {"class_name": ")" +
           std::string(both ? "Masking" : "Identity") +
           R"(", "config": {"name": "b"}, "inbound_nodes": [[["y", 0, 0, {}]]]},
      {"class_name": ")" +
           class_name + R"(", "config": {"name": "l")" + config +
           R"(}, "inbound_nodes": [[["a", 0, 0, {}], ["b", 0, 0, {}]]]}],
      "input_layers": [["x", 0, 0], ["y", 0, 0]], "output_layers": [["l", 0, 0]]}})";
  };
  const std::vector<Values> inputs{{1, 0, 0, 0}, {0, 0, 2, 0}};
  CHECK(mask_of(text(true, "Add", ""), inputs) == Values{1, 0, 1, 0});
  CHECK_FALSE(mask_of(text(false, "Add", ""), inputs).has_value());
  CHECK(mask_of(text(true, "Concatenate", ""), inputs) == Values{1, 0, 1, 0});
  CHECK(mask_of(text(false, "Concatenate", ""), inputs) == Values{1, 1, 1, 1});
  CHECK(mask_of(text(true, "Concatenate", ", \"axis\": 1"), inputs) ==
        Values{1, 0, 0, 0, 0, 0, 1, 0});
  CHECK(mask_of(text(false, "Concatenate", ", \"axis\": 1"), inputs) ==
        Values{1, 0, 1, 1, 0, 0, 1, 1});
  CHECK_FALSE(mask_of(text(true, "Dot", ", \"axes\": 1"), inputs).has_value());
}
