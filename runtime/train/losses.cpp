// From a config's loss to its formula.
#include "runtime/train/losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "runtime/train/loss_base.h"

namespace tessera::train {
namespace {

class FormulaLoss final : public Loss {
 public:
  FormulaLoss(std::string name, Formula formula, Reduction reduction)
      : name_(std::move(name)), formula_(std::move(formula)), reduction_(reduction) {}

  const std::string& name() const override { return name_; }

  SymbolicTensor values(SymbolicTensor y_true, SymbolicTensor y_pred) const override {
    return formula_(y_true, y_pred).values;
  }

  SymbolicTensor operator()(SymbolicTensor y_true, SymbolicTensor y_pred, SymbolicTensor weight,
                            SymbolicTensor mask) const override {
    return reduce_loss(formula_(y_true, y_pred), weight, mask, reduction_);
  }

  std::int64_t classes(const Shape& prediction) const override {
    if (!formula_.function.class_axis) return 0;
    // Dimensions from the front count the batch, which a sample's shape lacks.
    const int axis = *formula_.function.class_axis;
    const int dim = axis < 0 ? axis + static_cast<int>(prediction.rank()) : axis - 1;
    const bool known = dim >= 0 && dim < static_cast<int>(prediction.rank());
    return known ? prediction[static_cast<std::size_t>(dim)] : 0;
  }

  std::optional<std::int64_t> ignored_class() const override {
    return formula_.function.ignored_class;
  }

 private:
  std::string name_;
  Formula formula_;
  Reduction reduction_;
};

struct NamedReduction {
  const char* name;
  Reduction reduction;
};
constexpr std::array kReductions = {
    NamedReduction{"sum_over_batch_size", Reduction::sum_over_batch_size},
    NamedReduction{"mean", Reduction::mean},
    NamedReduction{"mean_with_sample_weight", Reduction::mean_with_sample_weight},
    NamedReduction{"sum", Reduction::sum},
    NamedReduction{"none", Reduction::none},
};

// An explicit null is Keras's None: no reduction.
Reduction read_reduction(json::Arguments& arguments) {
  const json::Value* given = arguments.value("reduction");
  if (given != nullptr && given->is_null()) return Reduction::none;
  std::vector<std::string> names;
  for (const NamedReduction& known : kReductions) names.emplace_back(known.name);
  const std::string name = arguments.choice("reduction", names.front(), names);
  for (const NamedReduction& known : kReductions) {
    if (name == known.name) return known.reduction;
  }
  return Reduction::sum_over_batch_size;
}

std::string_view crossentropy_of(const OutputTypes& types) {
  switch (label_kind(types)) {
    case LabelKind::binary:
      return "binary_crossentropy";
    case LabelKind::sparse:
      return "sparse_categorical_crossentropy";
    case LabelKind::categorical:
      break;
  }
  return "categorical_crossentropy";
}

// All tables, one after another.
template <typename Visit>
void for_each_loss(Visit visit) {
  for (const auto table :
       {regression_losses(), classification_losses(), structured_losses(), sequence_losses()}) {
    for (const LossEntry& entry : table) visit(entry);
  }
}

}  // namespace

std::vector<std::string> loss_classes() {
  std::vector<std::string> names;
  for_each_loss([&](const LossEntry& entry) { names.emplace_back(entry.class_name); });
  return names;
}

const LossEntry* find_loss(std::string_view name) {
  const LossEntry* found = nullptr;
  for_each_loss([&](const LossEntry& entry) {
    if (name == entry.class_name || name == entry.function_name ||
        is_word_of(name, entry.aliases)) {
      found = &entry;
    }
  });
  return found;
}

std::vector<std::string> loss_names() {
  std::vector<std::string> names;
  for_each_loss([&](const LossEntry& entry) {
    names.emplace_back(entry.class_name);
    names.emplace_back(entry.function_name);
    for (std::string& alias : words_of(entry.aliases)) names.push_back(std::move(alias));
  });
  return names;
}

std::unique_ptr<Loss> make_loss(const json::Value& value, const std::string& path,
                                const OutputTypes& types, json::Problems& problems) {
  if (value.is_null()) return nullptr;
  const std::size_t before = problems.list().size();
  const json::Identifier identifier = json::read_identifier(value, path, problems);
  if (identifier.class_name.empty()) return nullptr;
  std::string lower = identifier.class_name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  const bool by_shape = value.is_string() && (lower == "crossentropy" || lower == "ce");
  const LossEntry* entry = find_loss(by_shape ? crossentropy_of(types) : identifier.class_name);
  if (entry == nullptr) {
    std::vector<std::string> names = loss_names();
    names.insert(names.end(), {"crossentropy", "ce"});
    add_problem(problems, *identifier.at, path,
                fmt::format("unknown loss \"{}\"{}", json::printable(identifier.class_name),
                            json::did_you_mean(identifier.class_name, names)));
    return nullptr;
  }
  json::Arguments arguments(*identifier.config, json::child_path(path, "config"), problems);
  arguments.ignore({"dtype"});
  std::string name = arguments.text("name", std::string(entry->default_name));
  const Reduction reduction = read_reduction(arguments);
  auto loss = std::make_unique<FormulaLoss>(
      std::move(name), Formula{entry->targets, entry->make(arguments)}, reduction);
  arguments.finish("argument");
  if (problems.list().size() != before) return nullptr;
  const bool good = fits(types, value, path, "loss", identifier.class_name, problems,
                         [&](graph::Builder&, SymbolicTensor y_true, SymbolicTensor y_pred) {
                           (*loss)(y_true, y_pred, {}, {});
                         });
  return good ? std::move(loss) : nullptr;
}

}  // namespace tessera::train
