// What layers compute where no acceptance case looks: variants, statistics, shapes.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/unit/models_fixture.h"
#include "tests/unit/models_json.h"

using namespace tessera;
using namespace tessera::models::test;

TEST_CASE("BatchNormalization takes batch statistics in training and moves its own") {
  Loaded loaded(
      model_of("[null, 2]", {{"BatchNormalization", R"("momentum": 0.9, "epsilon": 0)"}}));
  Runner runner(loaded, 2, true);
  check_near(runner({{1, 10, 3, 30}}), {-1, -1, 1, 1});
  check_near(runner.interpreter().variable(loaded.id("m/l0/moving_mean")), {0.2, 2});
  check_near(runner.interpreter().variable(loaded.id("m/l0/moving_variance")), {1, 0.9 + 10});
  Runner inference(loaded, 1);
  check_near(inference({{1, 10}}), {1, 10});
  CHECK(inference.graph().assignments.empty());
}

TEST_CASE("BatchNormalization leaves masked positions out of its statistics") {
  Loaded loaded(
      model_of("[null, 3, 1]", {{"Masking", "\"mask_value\": -1"},
                                {"BatchNormalization", R"("momentum": 0.5, "epsilon": 0)"}}));
  Runner runner(loaded, 1, true);
  const Values y = runner({{1, 3, -1}});
  CHECK(y[0] == Approx(-1).epsilon(1e-4));
  CHECK(y[1] == Approx(1).epsilon(1e-4));
  check_near(runner.interpreter().variable(loaded.id("m/l1/moving_mean")), {1.0}, 1e-5);
  check_near(runner.interpreter().variable(loaded.id("m/l1/moving_variance")), {1.0}, 1e-5);
}

TEST_CASE("a BatchNormalization that is called twice moves twice") {
  Loaded loaded(R"({"class_name": "Functional", "config": {"name": "net", "layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 1]}},
    {"class_name": "BatchNormalization", "config": {"name": "n", "momentum": 0.5},
     "inbound_nodes": [[["x", 0, 0, {}]], [["x", 0, 0, {}]]]}],
    "input_layers": [["x", 0, 0]], "output_layers": [["n", 0, 0], ["n", 1, 0]]}})");
  Runner runner(loaded, 2, true);
  runner({{1, 3}});
  check_near(runner.interpreter().variable(loaded.id("n/moving_mean")), {1.5});
}

TEST_CASE("normalisations in their variants") {
  const Values x{1, 2, 3, 4, 5, 7, 9, 11};
  SECTION("LayerNormalization over the last axis, over all, by deviation only") {
    check_near(apply("LayerNormalization", "\"epsilon\": 0", "[null, 2]", {1, 3, 4, 10}),
               {-1, 1, -1, 1});
    check_near(apply("LayerNormalization", R"("axis": [1, 2], "epsilon": 0)", "[null, 2, 2]",
                     {1, 1, 3, 3}),
               {-1, -1, 1, 1});
    check_near(apply("LayerNormalization", R"("rms_scaling": true, "epsilon": 0)", "[null, 2]",
                     {1, 3, 4, 10}),
               {1, 3, 4.0 / 3, 10.0 / 3});
  }
  SECTION("weights of LayerNormalization") {
    Loaded scale(model_of("[null, 3]", {{"LayerNormalization", "\"center\": false"}}));
    CHECK(scale.paths() == std::vector<std::string>{"m/l0/gamma"});
    Loaded rms(model_of("[null, 2, 3]",
                        {{"LayerNormalization", R"("axis": [1, 2], "rms_scaling": true)"}}));
    CHECK(rms.paths() == std::vector<std::string>{"m/l0/gamma"});
    CHECK(rms.table[rms.id("m/l0/gamma")].shape == Shape{2, 3});
  }
  SECTION("RMSNormalization along another axis") {
    check_near(
        apply("RMSNormalization", R"("axis": 1, "epsilon": 0)", "[null, 2, 1]", {3, 4, 1, 1}),
        {3 / std::sqrt(12.5), 4 / std::sqrt(12.5), 1, 1});
  }
  SECTION("GroupNormalization: instances, one group, channels first") {
    check_near(apply("GroupNormalization", R"("groups": -1, "epsilon": 0)", "[null, 2, 2]",
                     {1, 10, 3, 20}),
               {-1, -1, 1, 1});
    check_near(apply("GroupNormalization", R"("groups": 1, "axis": 1, "epsilon": 0)",
                     "[null, 2, 2]", {1, 1, 3, 3}),
               {-1, -1, 1, 1});
  }
  SECTION("UnitNormalization, also of zeros") {
    check_near(apply("UnitNormalization", "", "[null, 2]", {3, 4, 0, 0}), {0.6, 0.8, 0, 0});
    check_near(apply("UnitNormalization", "\"axis\": [1, 2]", "[null, 2, 2]", {1, 1, 1, 1}),
               {0.5, 0.5, 0.5, 0.5});
  }
}

TEST_CASE("Normalization with given and with stored statistics") {
  check_near(apply("Normalization", R"("mean": [1, 2], "variance": [4, 9])", "[null, 2]", {3, 8}),
             {1, 2});
  check_near(apply("Normalization", R"("mean": [1, 2], "variance": [4, 9], "invert": true)",
                   "[null, 2]", {1, 2}),
             {3, 8});
  check_near(
      apply("Normalization", R"("axis": null, "mean": 1.0, "variance": 4.0)", "[null, 2]", {3, 8}),
      {1, 3.5});
  check_near(apply("Normalization", R"("axis": 1, "mean": [1, 2], "variance": [4, 9])",
                   "[null, 2, 2]", {3, 5, 8, 11}),
             {1, 2, 2, 3});
  Loaded loaded(model_of("[null, 2]", {{"Normalization", ""}}));
  CHECK(loaded.paths() == std::vector<std::string>{"m/l0/mean", "m/l0/variance", "m/l0/count"});
  CHECK(loaded.table[loaded.id("m/l0/count")].dtype == DType::int32);
  Runner runner(loaded, 1);
  runner.interpreter().set_variable(loaded.id("m/l0/mean"), {1, 2});
  runner.interpreter().set_variable(loaded.id("m/l0/variance"), {4, 9});
  check_near(runner({{3, 8}}), {1, 2});
}

TEST_CASE("Rescaling by numbers and by arrays, of whole numbers too") {
  check_near(apply("Rescaling", R"("scale": [1, 10], "offset": [0, 5])", "[null, 2]", {3, 8}),
             {3, 85});
  Loaded loaded(model_of("[null, 2]", {{"Rescaling", "\"scale\": 0.5"}}, "int32"));
  Runner runner(loaded, 1);
  check_near(runner({{3, 8}}), {1.5, 4});
}

TEST_CASE("shapes: Flatten, Reshape, Permute, RepeatVector, Identity") {
  const Values x{1, 2, 3, 4, 5, 6};
  CHECK(apply("Flatten", "\"data_format\": \"channels_first\"", "[null, 2, 3]", x) ==
        Values{1, 4, 2, 5, 3, 6});
  CHECK(apply("Permute", "\"dims\": [2, 1]", "[null, 2, 3]", x) == Values{1, 4, 2, 5, 3, 6});
  CHECK(apply("RepeatVector", "\"n\": 2", "[null, 3]", x) ==
        Values{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6});
  CHECK(apply("Identity", "", "[null, 3]", x) == x);
  Loaded loaded(model_of("[null, 2, 3]", {{"Reshape", "\"target_shape\": [-1, 1]"}}));
  CHECK(loaded.model->outputs().front().sample_shape == Shape{6, 1});
  Loaded scalar(model_of("[null]", {{"Flatten", ""}}));
  CHECK(scalar.model->outputs().front().sample_shape == Shape{1});
}

namespace {

// A Functional model on inputs "x" and "y" whose last layer takes both as a list.
std::string merged(const std::string& shape_x, const std::string& shape_y,
                   const std::string& class_name, const std::string& config) {
  return R"({"class_name": "Functional", "config": {"name": "net", "layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": )" +
         shape_x + R"(}},
    {"class_name": "InputLayer", "config": {"name": "y", "batch_shape": )" +
         shape_y + R"(}},
    {"class_name": ")" +
         class_name + R"(", "config": {"name": "l")" + (config.empty() ? "" : ", " + config) +
         R"(}, "inbound_nodes": [[["x", 0, 0, {}], ["y", 0, 0, {}]]]}],
    "input_layers": [["x", 0, 0], ["y", 0, 0]], "output_layers": [["l", 0, 0]]}})";
}

Values merge(const std::string& shape_x, const std::string& shape_y, const std::string& class_name,
             const std::string& config, const Values& x, const Values& y) {
  Loaded loaded(merged(shape_x, shape_y, class_name, config));
  Runner runner(loaded, size_of_batch(loaded, x));
  return runner({x, y});
}

}  // namespace

TEST_CASE("merging layers broadcast") {
  CHECK(merge("[null, 2, 2]", "[null, 1, 2]", "Add", "", {1, 2, 3, 4}, {10, 20}) ==
        Values{11, 22, 13, 24});
  CHECK(merge("[null, 2, 2]", "[null, 2]", "Multiply", "", {1, 2, 3, 4}, {10, 20}) ==
        Values{10, 40, 30, 80});
  CHECK(merge("[null, 2]", "[null, 2]", "Average", "", {1, 2}, {3, 6}) == Values{2, 4});
  CHECK(merge("[null, 2]", "[null, 2]", "Minimum", "", {1, 7}, {3, 6}) == Values{1, 6});
}

TEST_CASE("Dot contracts, of vectors too, and normalises") {
  CHECK(merge("[null, 2]", "[null, 2]", "Dot", "\"axes\": 1", {1, 2, 3, 4}, {5, 6, 7, 8}) ==
        Values{17, 53});
  CHECK(merge("[null, 1, 2]", "[null, 2, 2]", "Dot", "\"axes\": [2, 1]", {1, 2}, {1, 2, 3, 4}) ==
        Values{7, 10});
  check_near(
      merge("[null, 2]", "[null, 2]", "Dot", R"("axes": -1, "normalize": true)", {3, 4}, {6, 8}),
      {1});
}

TEST_CASE("EinsumDense with an ellipsis at either end") {
  Loaded front(model_of("[null, 2, 3]", {{"EinsumDense",
                                          R"("equation": "...x,xy->...y", "output_shape": 4,
                                          "bias_axes": "y")"}}));
  CHECK(front.table[front.id("m/l0/kernel")].shape == Shape{3, 4});
  CHECK(front.table[front.id("m/l0/bias")].shape == Shape{4});
  CHECK(front.model->outputs().front().sample_shape == Shape{2, 4});
  Loaded back(model_of("[null, 2, 3]", {{"EinsumDense",
                                         R"("equation": "ab...,bc->ac...",
                                         "output_shape": [5, null], "bias_axes": "c")"}}));
  CHECK(back.table[back.id("m/l0/kernel")].shape == Shape{2, 5});
  CHECK(back.table[back.id("m/l0/bias")].shape == Shape{5, 1});
  CHECK(back.model->outputs().front().sample_shape == Shape{5, 3});
  Loaded middle(model_of("[null, 2, 3]", {{"EinsumDense",
                                           R"("equation": "abc,cde->abde",
                                           "output_shape": [2, 4, 5], "bias_axes": "d")"}}));
  CHECK(middle.table[middle.id("m/l0/bias")].shape == Shape{4, 1});
}

TEST_CASE("ReversibleEmbedding goes both ways") {
  const auto text = [](const std::string& config) {
    return R"({"class_name": "Functional", "config": {"name": "net", "layers": [
      {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 1],
       "dtype": "int32"}},
      {"class_name": "ReversibleEmbedding", "config": {"name": "e", "input_dim": 3,
       "output_dim": 2)" +
           config + R"(}, "inbound_nodes": [[["x", 0, 0, {}]], [["e", 0, 0, {"reverse": true}]]]}],
      "input_layers": [["x", 0, 0]], "output_layers": [["e", 1, 0]]}})";
  };
  Loaded tied(text(""));
  Runner runner(tied, 1);
  runner.interpreter().set_variable(tied.id("e/embeddings"), {1, 0, 0, 1, 2, 3});
  check_near(runner({{2}}), {2, 3, 13});
  Loaded untied(text(R"(, "tie_weights": false, "logit_soft_cap": 2.0)"));
  CHECK(untied.table[untied.id("e/reverse_embeddings")].shape == Shape{2, 3});
  Runner capped(untied, 1);
  capped.interpreter().set_variable(untied.id("e/embeddings"), {1, 0, 0, 1, 2, 3});
  capped.interpreter().set_variable(untied.id("e/reverse_embeddings"), {1, 0, 0, 0, 1, 0});
  check_near(capped({{2}}), {2 * std::tanh(1.0), 2 * std::tanh(1.5), 0});
}
