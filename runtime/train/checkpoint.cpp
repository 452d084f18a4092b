#include "runtime/train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "runtime/exec/whole_tensor.h"
#include "runtime/io/array_file.h"
#include "runtime/io/safetensors.h"
#include "runtime/io/write_file.h"
#include "runtime/train/callback_monitor.h"
#include "runtime/train/weights_file.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;
using graph::VariableId;

constexpr const char* kState = "state.safetensors";
constexpr const char* kTraining = "training.json";

/// Totals are written in double: where they are pending sums, their terms are added so, and the
/// file must not tell on which mesh they were.
bool is_total(const graph::Variable& variable) {
  return variable.role == graph::Role::metric ||
         (variable.storage && variable.storage->pending != 0);
}

/// A variable, or a weight that a callback keeps aside.
struct Saved {
  std::string name;
  VariableId id = -1;
  std::size_t callback = 0;  // 1 + index; 0: the variable itself
};

std::string kept_name(std::size_t callback, const std::string& path) {
  return fmt::format("callbacks/{}/{}", callback, path);
}

std::vector<Saved> saved_of(const FitContext& context) {
  const graph::VariableTable& table = context.session.table();
  std::vector<Saved> list;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto id = static_cast<VariableId>(i);
    if (table[id].storage) list.push_back({table[id].path, id, 0});
  }
  for (std::size_t c = 0; c < context.callbacks.size(); ++c) {
    const WeightsCopy* kept = context.callbacks[c]->kept_weights();
    if (kept == nullptr || kept->empty()) continue;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const auto id = static_cast<VariableId>(i);
      if (table[id].role == graph::Role::weight)
        list.push_back({kept_name(c, table[id].path), id, c + 1});
    }
  }
  return list;
}

io::FileType file_type(const graph::Variable& variable) {
  return is_total(variable) ? io::FileType::float64 : io::file_type_of(variable.dtype);
}

/// Runs on rank 0 alone; a failure is kept and told to all by `agree`.
class FirstRank {
 public:
  explicit FirstRank(Session& session) : session_(session) {}
  template <typename Action>
  void run(const Action& action) {
    if (!session_.is_first_rank() || !failure_.empty()) return;
    try {
      action();
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
  }
  /// Throws on every rank when the first one failed.
  void agree() {
    for (const std::string& text : comm::gather_texts(session_.world().all(), failure_)) {
      if (!text.empty()) throw Error(Error::Kind::internal, text);
    }
  }

 private:
  Session& session_;
  std::string failure_;
};

void write_state(const fs::path& folder, FitContext& context, FirstRank& first) {
  Session& session = context.session;
  const graph::VariableTable& table = session.table();
  const std::vector<Saved> saved = saved_of(context);
  std::vector<io::ArrayInfo> tensors;
  for (const Saved& entry : saved)
    tensors.push_back({entry.name, file_type(table[entry.id]), table[entry.id].shape});
  std::unique_ptr<io::SafetensorsWriter> writer;
  first.run([&] {
    writer = std::make_unique<io::SafetensorsWriter>((folder / kState).string(), tensors);
  });
  WeightsCopy current;
  std::size_t in_memory =
      0;  // whose weights lie in the session: the run's own, or 1 + a callback's
  for (std::size_t i = 0; i < saved.size(); ++i) {
    if (saved[i].callback != in_memory) {
      if (current.empty()) current.take(session);
      context.callbacks[saved[i].callback - 1]->kept_weights()->put_back(session);
      in_memory = saved[i].callback;
    }
    if (is_total(table[saved[i].id])) {
      const std::vector<double> whole =
          exec::read_whole(session.storage(), saved[i].id, session.world());
      first.run([&] { writer->write(i, 0, std::as_bytes(std::span(whole))); });
      continue;
    }
    const auto width = static_cast<std::int64_t>(size_of(table[saved[i].id].dtype));
    exec::gather_slabs(session.storage(), saved[i].id, session.world(),
                       [&](std::int64_t at, std::span<const std::byte> bytes) {
                         first.run([&] { writer->write(i, at * width, bytes); });
                       });
  }
  if (!current.empty()) current.put_back(session);
  first.run([&] { writer->finish(); });
}

json::Value training_json(const FitContext& context) {
  std::vector<json::Value> callbacks;
  for (const Callback* callback : context.callbacks) {
    callbacks.push_back(json::make_object(
        {{"class_name", json::make(callback->class_name())}, {"state", callback->state()}}));
  }
  const FitPosition& at = context.position;
  return json::make_object({{"format", json::make("tessera-checkpoint")},
                            {"version", json::make(std::int64_t{1})},
                            {"step", json::make(static_cast<std::int64_t>(context.session.step))},
                            {"seed", json::make(static_cast<std::int64_t>(context.session.seed()))},
                            {"epoch", json::make(at.epoch)},
                            {"batch", json::make(at.batch)},
                            {"sample", json::make(at.sample)},
                            {"pass", json::make(at.pass)},
                            {"stop", json::make(context.stop)},
                            {"callbacks", json::make_array(std::move(callbacks))}});
}

json::Value read_training(const fs::path& folder) {
  const std::string file = (folder / kTraining).string();
  json::Problems problems;
  json::Value training =
      json::parse(json::read_text_file(file, Error::Kind::weights), file, problems);
  problems.throw_if_any(Error::Kind::weights);
  const json::Value* format = training.find("format");
  if (format == nullptr || format->string != "tessera-checkpoint" ||
      integer_from(training, "version") != 1) {
    throw Error(Error::Kind::weights,
                fmt::format("{}: is not the state of a checkpoint of version 1", file));
  }
  for (const char* key : {"step", "seed", "epoch", "batch", "sample", "pass"}) {
    const json::Value* count = training.find(key);
    if (count == nullptr || count->kind != json::Kind::integer || count->integer < 0) {
      throw Error(Error::Kind::weights,
                  fmt::format("{}: \"{}\" is missing or no whole number of at least 0", file, key));
    }
  }
  const json::Value* stop = training.find("stop");
  const json::Value* callbacks = training.find("callbacks");
  if (stop == nullptr || stop->kind != json::Kind::boolean || callbacks == nullptr ||
      !callbacks->is_array()) {
    throw Error(Error::Kind::weights,
                fmt::format("{}: \"stop\" or \"callbacks\" is missing or of the wrong type", file));
  }
  return training;
}

void read_state(const fs::path& folder, FitContext& context) {
  Session& session = context.session;
  const graph::VariableTable& table = session.table();
  const auto file =
      io::open_array_file((folder / kState).string(), Error::Kind::weights, "safetensors");
  const auto find = [&](const std::string& name, const graph::Variable& variable) {
    const int array = file->find(name);
    if (array < 0)
      throw Error(Error::Kind::weights,
                  fmt::format("{}: lacks \"{}\": it is of another run", file->path(), name));
    const Shape& shape = file->arrays()[static_cast<std::size_t>(array)].shape;
    if (!(shape == variable.shape)) {
      throw Error(Error::Kind::weights,
                  fmt::format("{}: \"{}\" has the shape {}, this run's is {}", file->path(), name,
                              to_string(shape), to_string(variable.shape)));
    }
    return array;
  };
  for (std::size_t c = 0; c < context.callbacks.size(); ++c) {
    WeightsCopy* kept = context.callbacks[c]->kept_weights();
    if (kept == nullptr) continue;
    std::vector<VariableId> weights;
    bool any = false;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const auto id = static_cast<VariableId>(i);
      if (table[id].role != graph::Role::weight) continue;
      weights.push_back(id);
      any = any || file->find(kept_name(c, table[id].path)) >= 0;
    }
    if (!any) continue;  // it kept none yet
    for (const VariableId id : weights)
      read_variable(*file, find(kept_name(c, table[id].path), table[id]), session.storage(), id);
    kept->take(session);
  }
  std::vector<double> whole;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto id = static_cast<VariableId>(i);
    if (!table[id].storage) continue;
    const int array = find(table[id].path, table[id]);
    if (!is_total(table[id])) {
      read_variable(*file, array, session.storage(), id);
      continue;
    }
    whole.resize(static_cast<std::size_t>(table[id].shape.elements()));
    file->read(array, 0, table[id].shape.elements(), whole.data(), DType::float64);
    exec::write_whole(session.storage(), id, whole);
  }
}

}  // namespace

void save_checkpoint(const std::string& folder, FitContext& context) {
  FirstRank first(context.session);
  const fs::path target(folder);
  const fs::path temporary = fmt::format("{}.{:08x}.tmp", folder, std::random_device{}());
  first.run([&] { fs::create_directories(temporary); });
  first.agree();
  write_state(temporary, context, first);
  first.run([&] {
    io::write_text_file((temporary / kTraining).string(),
                        json::dump(training_json(context), 2, 17) + "\n");
    io::sync_folder(temporary.string());
    fs::remove_all(target);
    fs::rename(temporary, target);
    io::sync_folder(target.parent_path().empty() ? "." : target.parent_path().string());
  });
  if (context.session.is_first_rank()) {
    std::error_code gone;
    fs::remove_all(temporary, gone);
  }
  first.agree();
}

void load_checkpoint(const std::string& folder, FitContext& context) {
  const json::Value training = read_training(folder);
  const std::string file = (fs::path(folder) / kTraining).string();
  if (integer_from(training, "seed") != static_cast<std::int64_t>(context.session.seed())) {
    throw Error(Error::Kind::weights,
                fmt::format("{}: was made with seed {}, this run has seed {}", file,
                            integer_from(training, "seed"), context.session.seed()));
  }
  const std::vector<json::Value>& states = training.find("callbacks")->array;
  if (states.size() != context.callbacks.size()) {
    throw Error(Error::Kind::weights,
                fmt::format("{}: holds the state of {} callbacks, this run has {}", file,
                            states.size(), context.callbacks.size()));
  }
  for (std::size_t i = 0; i < states.size(); ++i) {
    const json::Value* saved = states[i].find("class_name");
    const std::string& name = context.callbacks[i]->class_name();
    if (saved == nullptr || saved->kind != json::Kind::string ||
        states[i].find("state") == nullptr) {
      throw Error(Error::Kind::weights,
                  fmt::format("{}: callback {}: \"class_name\" or \"state\" is missing or of the "
                              "wrong type",
                              file, i));
    }
    if (saved->string != name) {
      throw Error(
          Error::Kind::weights,
          fmt::format("{}: callback {} is \"{}\", in this run it is \"{}\": resume with the "
                      "callbacks of the run that was cut",
                      file, i, saved->string, name));
    }
  }
  const std::int64_t sample = integer_from(training, "sample");
  if (sample > context.samples) {
    throw Error(Error::Kind::weights,
                fmt::format("{}: {} samples of a pass are done, the data has {}", file, sample,
                            context.samples));
  }
  read_state(folder, context);
  context.session.step = static_cast<std::uint64_t>(integer_from(training, "step"));
  context.position = {integer_from(training, "epoch"), integer_from(training, "batch"), sample,
                      integer_from(training, "pass")};
  context.stop = training.find("stop")->boolean;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const json::Value& state = *states[i].find("state");
    if (!state.is_null()) context.callbacks[i]->restore(state);
  }
}

std::vector<std::string> list_checkpoints(const std::string& parent) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  std::error_code missing;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, missing)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step_")) continue;
    std::int64_t step = 0;
    const char* end = name.data() + name.size();
    const auto [next, error] = std::from_chars(name.data() + 5, end, step);
    if (error != std::errc() || next != end || !fs::exists(entry.path() / kTraining)) continue;
    found.emplace_back(step, entry.path().string());
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> folders;
  for (auto& [step, path] : found) folders.push_back(path);
  return folders;
}

void remove_checkpoints(const std::string& parent) {
  for (const std::string& folder : list_checkpoints(parent)) fs::remove_all(folder);
}

namespace {

/// The newest checkpoint whose files can be read, or "".
std::string newest_readable(const std::string& parent) {
  for (const std::string& folder : list_checkpoints(parent)) {
    try {
      read_training(folder);
      io::open_array_file((fs::path(folder) / kState).string(), Error::Kind::weights,
                          "safetensors");
      return folder;
    } catch (const Error& error) {
      fmt::print(stderr, "warning: {} is passed over: {}\n", folder, error.what());
    }
  }
  return "";
}

/// Removes what a process that was killed while it saved has left.
void remove_unfinished(const fs::path& parent) {
  std::error_code missing;
  std::vector<fs::path> unfinished;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, missing)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step_") && name.ends_with(".tmp")) unfinished.push_back(entry.path());
  }
  for (const fs::path& folder : unfinished) fs::remove_all(folder, missing);
}

}  // namespace

Checkpoints::Checkpoints(std::string folder, Options options)
    : folder_(std::move(folder)), options_(std::move(options)) {}

void Checkpoints::on_train_begin(FitContext& context) {
  if (context.session.is_first_rank()) remove_unfinished(folder_);
  if (options_.resume.empty()) return;
  std::string from = options_.resume;
  if (from == "auto") {
    // The first rank looks, so that all ranks take the same one.
    const std::string newest = context.session.is_first_rank() ? newest_readable(folder_) : "";
    from = comm::gather_texts(context.session.world().all(), newest).front();
    if (from.empty()) return;
  }
  load_checkpoint(from, context);
  context.print(fmt::format("Resuming from {} (step {})", from, context.session.step));
}

void Checkpoints::on_batch_end(FitContext& context, const BatchEvent& event) {
  if (options_.every_steps > 0 && event.step % options_.every_steps == 0) save(context);
}

void Checkpoints::on_epoch_end(FitContext& context, std::int64_t epoch, Logs& /*logs*/) {
  if (options_.every_epochs > 0 && (epoch + 1) % options_.every_epochs == 0) save(context);
}

void Checkpoints::save(FitContext& context) {
  const std::string made =
      (fs::path(folder_) / fmt::format("step_{}", context.session.step)).string();
  save_checkpoint(made, context);
  if (!context.session.is_first_rank()) return;
  const std::vector<std::string> known = list_checkpoints(folder_);
  // Newer ones are damaged, or of a course of training that this one has left: neither may take
  // the place of what was just saved.
  const auto saved = std::ranges::find(known, made);
  if (saved == known.end()) return;  // another process took it away
  const auto kept = std::min(options_.keep, static_cast<std::int64_t>(known.end() - saved));
  std::for_each(saved + kept, known.end(), [](const std::string& old) { fs::remove_all(old); });
  std::for_each(known.begin(), saved, [](const std::string& left) { fs::remove_all(left); });
}

}  // namespace tessera::train
