// The words and tables of the reference page.
#include "trainer/config_reference.h"

#include <fmt/format.h>

#include "api/checks.h"
#include "trainer/config_table.h"

namespace tessera::trainer {
namespace {

constexpr std::string_view kIntroduction =
    R"(# Config reference

Made by `trainer schema --format markdown` from the table that parses a config. `trainer schema` prints a JSON Schema
of the same table for editors.

A config is JSON in UTF-8; `//` comments are allowed. Paths that are read start at the folder of the config, paths that
are written at the working folder. What Keras serialises (optimizers, losses, metrics, schedules, callbacks,
initializers) is written as Keras writes it: a name (`"adam"`), or `{"class_name": "Adam", "config": {...}}`; what is
absent in `config` has Keras's default. `compile` may be what `model.get_compile_config()` returns.

)";

constexpr std::string_view kDataIntroduction = R"(
## Data sets

Keys of `data.train`, `data.validation` and `data.test`, by `"format"`. The first dimension of an array counts samples.
A model with several inputs or outputs takes objects from their names to arrays.

)";

constexpr std::string_view kDistributionIntroduction = R"(
## Distributions

Keys of `distribution.config`, by `class_name`; [distribution.md](distribution.md) explains them.

)";

std::string nested_table(std::string_view first_column, const std::vector<NestedKey>& keys) {
  std::string text =
      fmt::format("| {} | key | example | default | meaning |\n| --- | --- | --- | --- | --- |\n",
                  first_column);
  for (const NestedKey& key : keys) {
    text += fmt::format("| `{}` | `{}` | `{}` | {} | {} |\n", key.of, key.key, key.example,
                        key.fallback.empty() ? "required" : key.fallback, key.about);
  }
  return text;
}

std::string names_table() {
  std::string text =
      "\n## Names\n\nOptimizers, losses and metrics may also be written in lower case as Keras's "
      "strings (`\"adamw\"`, `\"mse\"`,\n`\"sparse_categorical_crossentropy\"`, "
      "`\"accuracy\"`).\n\n"
      "| what | classes |\n| --- | --- |\n";
  for (const auto& [what, names] : known_classes())
    text += fmt::format("| {} | {} |\n", what, fmt::join(names, ", "));
  return text;
}

}  // namespace

const std::vector<NestedKey>& data_keys() {
  static const std::vector<NestedKey> kKeys{
      {"npz", "path", R"("train.npz")", "", "Archive of arrays, as numpy.savez writes it."},
      {"npz", "x", R"("images")", "`\"x\"`", "Array of inputs."},
      {"npz", "y", R"("labels")", "`\"y\"`", "Array of targets."},
      {"npz", "sample_weight", R"("weights")", "none", "Array of sample weights."},
      {"safetensors", "path", R"("train.safetensors")", "", "File of arrays."},
      {"safetensors", "x", R"("images")", "`\"x\"`", "Array of inputs."},
      {"safetensors", "y", R"("labels")", "`\"y\"`", "Array of targets."},
      {"safetensors", "sample_weight", R"("weights")", "none", "Array of sample weights."},
      {"npy", "x", R"("images.npy")", "`\"x.npy\"`", "File of inputs."},
      {"npy", "y", R"("labels.npy")", "none", "File of targets."},
      {"npy", "sample_weight", R"("weights.npy")", "none", "File of sample weights."},
      {"csv", "path", R"("train.csv")", "", "Table of numbers; fields may be quoted."},
      {"csv", "x", R"(["width", "height"])", "all other columns", "Columns of the input."},
      {"csv", "y", R"("price")", "none", "Column of the target, or a list of columns."},
      {"csv", "header", "false", "`true`",
       "The first line names the columns; else they are \"0\", \"1\", ..."},
      {"csv", "separator", R"(";")", "`\",\"`", "One character between fields."},
      {"idx", "x", R"("train-images-idx3-ubyte.gz")", "`\"x.idx\"`",
       "File of inputs in MNIST's format, plain or gzip."},
      {"idx", "y", R"("train-labels-idx1-ubyte.gz")", "`\"y.idx\"`", "File of targets."},
      {"tokens", "path", R"("shard_0.bin")", "", "Shard of token ids with llm.c's header."},
      {"tokens", "paths", R"(["shard_0.bin", "shard_1.bin"])", "none",
       "Several shards instead of `path`."},
      {"tokens", "sequence_length", "128", "",
       "Tokens of a sample; the target is the window one token later."},
      {"tokens", "raw", R"("uint16")", "with a header",
       "`\"uint16\"` or `\"uint32\"`: shards without a header."},
      {"text", "path", R"("book.txt")", "", "Text in UTF-8."},
      {"text", "tokenizer", R"("byte")", "`\"char\"`",
       "`\"char\"`: ids by position in the sorted list of the file's characters; `\"byte\"`."},
      {"text", "sequence_length", "64", "",
       "Tokens of a sample; the target is the window one token later."},
      {"text", "split", "[0.0, 0.9]", "all", "Share of the text that is kept: begin and end."},
      {"synthetic", "samples", "1024", "", "Number of samples."},
      {"synthetic", "x", R"({"shape": [4], "distribution": "uniform"})", "",
       "Shape of one sample; `\"normal\"` (default), `\"uniform\"` or `\"integers\"`."},
      {"synthetic", "y", R"({"shape": [1], "distribution": "integers", "high": 10})", "none",
       "The same for targets; `high` (default 2) bounds integers from above."},
  };
  return kKeys;
}

const std::vector<NestedKey>& distribution_keys() {
  static const std::vector<NestedKey> kKeys{
      {"DataParallel", "device_mesh", R"({"shape": [-1], "axis_names": ["data"]})",
       "one axis `\"batch\"` over all ranks", "The batch is cut over the first axis."},
      {"DataParallel", "zero", R"({"stage": 1, "axis": "data"})", "none",
       "ZeRO stage 1, 2 or 3 over an axis (default: the batch axis)."},
      {"ModelParallel", "device_mesh", R"({"shape": [-1, 2], "axis_names": ["batch", "model"]})",
       "", "Sizes and names of axes; one size may be -1."},
      {"ModelParallel", "layout_map", R"({".*kernel": [null, "model"]})", "",
       "Layouts by variable path, or the path of a file that holds them."},
      {"ModelParallel", "batch_dim_name", R"("batch")", "the first axis",
       "Axis over which the batch is cut."},
      {"ModelParallel", "match", R"("search")", "`\"fullmatch\"`",
       "`\"fullmatch\"`, `\"search\"` or `\"first\"`."},
      {"ModelParallel", "allow_unused_rules", "true", "`false`",
       "Rules that match nothing are warnings, not errors."},
      {"ModelParallel", "require_divisible", "true", "`false`",
       "Dimensions that do not divide by their axes are errors, as in Keras."},
      {"ModelParallel", "zero", R"({"stage": 3, "axis": "batch"})", "none",
       "ZeRO stage 1, 2 or 3 over an axis (default: the batch axis)."},
  };
  return kKeys;
}

std::string config_reference() {
  std::string text(kIntroduction);
  text += "| key | type | default | meaning |\n| --- | --- | --- | --- |\n";
  for (const Row& row : config_table()) {
    text += fmt::format(
        "| `{}` | {} | {} | {} |\n", row.path, accepted_by(row),
        row.fallback.empty() || row.section ? "" : fmt::format("`{}`", row.fallback), row.about);
  }
  text += std::string(kDataIntroduction) + nested_table("format", data_keys());
  text += std::string(kDistributionIntroduction) + nested_table("class", distribution_keys());
  return text + names_table();
}

}  // namespace tessera::trainer
