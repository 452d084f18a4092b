// The table of callbacks.
#include "runtime/train/callbacks.h"

#include <fmt/format.h>

#include <array>

#include "base/arguments.h"
#include "runtime/train/callback_families.h"
#include "runtime/train/named_entry.h"

namespace tessera::train {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Callback> (*make)(json::Arguments& arguments);
};

constexpr std::array<Entry, 6> kCallbacks{{
    {"BackupAndRestore", make_backup_and_restore},
    {"CSVLogger", make_csv_logger},
    {"EarlyStopping", make_early_stopping},
    {"ModelCheckpoint", make_model_checkpoint},
    {"ReduceLROnPlateau", make_reduce_lr_on_plateau},
    {"TerminateOnNaN", make_terminate_on_nan},
}};

}  // namespace

std::vector<std::string> callback_classes() { return class_names<Entry>(kCallbacks); }

std::unique_ptr<Callback> make_callback(const json::Value& value, const std::string& path,
                                        json::Problems& problems) {
  const json::Identifier identifier = json::read_identifier(value, path, problems);
  if (identifier.class_name.empty()) return nullptr;
  for (const Entry& entry : kCallbacks) {
    if (entry.name != identifier.class_name) continue;
    const std::size_t before = problems.list().size();
    json::Arguments arguments(*identifier.config, path + ".config", problems);
    std::unique_ptr<Callback> callback = entry.make(arguments);
    arguments.finish();
    if (callback) callback->set_class_name(entry.name);
    return problems.list().size() == before ? std::move(callback) : nullptr;
  }
  const std::vector<std::string> names = callback_classes();
  problems.add(
      {identifier.at->file ? *identifier.at->file : "", identifier.at->position, path,
       fmt::format("unknown callback \"{}\"{}; there are {}", identifier.class_name,
                   json::did_you_mean(identifier.class_name, names), fmt::join(names, ", "))});
  return nullptr;
}

}  // namespace tessera::train
