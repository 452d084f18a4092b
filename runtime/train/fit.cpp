#include "runtime/train/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "runtime/train/callback_history.h"
#include "runtime/train/progress.h"

namespace tessera::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// History comes after the callbacks that add to logs and before those that save its state.
std::vector<Callback*> with_history(std::vector<Callback*> callbacks, HistoryCallback& history) {
  const auto saver = std::ranges::find_if(
      callbacks, [](const Callback* callback) { return callback->saves_state(); });
  callbacks.insert(saver, &history);
  return callbacks;
}

/// One run of fit: what the epochs share.
class Fit {
 public:
  Fit(Session& session, const data::Dataset& train, const data::Dataset* validation,
      const FitOptions& options, const std::vector<Callback*>& callbacks)
      : session_(session),
        train_(train),
        validation_(validation),
        options_(options),
        callbacks_(with_history(callbacks, history_)),
        feeds_(train, true, session.model()),
        types_(session.types_id(types_of(train))),
        context_{session, options.epochs, 0, {}, callbacks_, false, train.rows, ""} {
    batch_ = batch_size_of(options, train.rows);
    context_.steps = options.steps_per_epoch.value_or((train.rows + batch_ - 1) / batch_);
    for (const Callback* callback : callbacks_)
      with_loss_ = with_loss_ || callback->needs_batch_loss();
  }

  History run() {
    context_.position.epoch = options_.initial_epoch;
    // Compiled before callbacks begin: totals that a callback restores have their place then.
    use_program(std::min(batch_, train_.rows));
    for (Callback* callback : callbacks_) callback->on_train_begin(context_);
    Logs logs;
    while (context_.position.epoch < options_.epochs && !context_.stop) {
      logs = run_epoch();
    }
    session_.finish();
    for (Callback* callback : callbacks_) callback->on_train_end(context_, logs);
    if (!context_.stop_error.empty()) throw Error(Error::Kind::numbers, context_.stop_error);
    return history_.history();
  }

 private:
  Logs run_epoch() {
    FitPosition& at = context_.position;
    const std::int64_t epoch = at.epoch;
    if (options_.epochs > 1 && options_.verbose != 0) {
      context_.print(fmt::format("Epoch {}/{}", epoch + 1, options_.epochs));
    }
    if (at.batch == 0) session_.reset_metrics();
    for (Callback* callback : callbacks_) callback->on_epoch_begin(context_, epoch);
    const Clock::time_point began = Clock::now();
    ProgressBar bar(context_.steps, [](const std::string& text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    });
    const bool drawing = options_.verbose == 1 && options_.terminal;
    while (at.batch < context_.steps && !context_.stop) {
      if (!run_batch()) break;
      if (drawing && at.batch < context_.steps && due(bar, at.batch, seconds_since(began))) {
        const Logs running = session_.read_metrics();
        if (session_.is_first_rank()) bar.update(at.batch, seconds_since(began), running);
      }
    }
    const std::int64_t done = at.batch;
    ++at.epoch;
    at.batch = 0;
    if (!options_.steps_per_epoch) {
      at.sample = 0;
      at.pass = at.epoch;
    }
    Logs logs = session_.read_metrics();
    if (validates(epoch)) add_validation(logs);
    for (Callback* callback : callbacks_) callback->on_epoch_end(context_, epoch, logs);
    if (drawing && session_.is_first_rank()) {
      bar.update(done, seconds_since(began), logs, true);
    } else if (options_.verbose != 0) {
      context_.print(epoch_line(context_.steps, seconds_since(began), logs));
    }
    return logs;
  }

  /// The first rank's clock decides, so that all ranks take part in reading the totals.
  bool due(const ProgressBar& bar, std::int64_t done, double now) {
    std::int32_t yes = session_.is_first_rank() && bar.due(done, now) ? 1 : 0;
    if (session_.world().size() > 1)
      session_.world().all().broadcast(&yes, 1, DType::int32, 0, "progress bar");
    return yes != 0;
  }

  void use_program(std::int64_t rows) {
    if (prepared_rows_ == rows) return;
    prepared_ = &session_.prepare(StepKind::train, rows, types_, with_loss_);
    prepared_rows_ = rows;
  }

  /// False when the data ran out.
  bool run_batch() {
    const Clock::time_point began = Clock::now();
    FitPosition& at = context_.position;
    if (!options_.steps_per_epoch) {
      at.pass = at.epoch;
    } else if (at.sample >= train_.rows) {
      if (session_.is_first_rank()) {
        fmt::print(
            stderr,
            "warning: ran out of data after {} batches of epoch {}: steps_per_epoch asks for "
            "more batches than the data holds\n",
            at.batch, at.epoch + 1);
      }
      at.sample = 0;
      ++at.pass;
      return false;
    }
    if (!order_ || at.pass != order_pass_) {
      order_.emplace(train_.rows, options_.shuffle, batch_, session_.seed(), at.pass);
      order_pass_ = at.pass;
    }
    const std::int64_t rows = std::min(batch_, train_.rows - at.sample);
    use_program(rows);
    prepared_->executor->run(feeds_.load(prepared_->program, *order_, at.sample), {session_.step});
    ++session_.step;
    at.sample += rows;
    BatchEvent event{at.epoch, at.batch, static_cast<std::int64_t>(session_.step), 0.0, 0.0};
    ++at.batch;
    if (with_loss_) event.loss = *static_cast<const float*>(prepared_->executor->output("loss"));
    event.seconds = seconds_since(began);
    for (Callback* callback : callbacks_) callback->on_batch_end(context_, event);
    return true;
  }

  bool validates(std::int64_t epoch) const {
    if (validation_ == nullptr) return false;
    const std::vector<std::int64_t>& list = options_.validation_epochs;
    if (!list.empty()) return std::find(list.begin(), list.end(), epoch + 1) != list.end();
    return (epoch + 1) % options_.validation_freq == 0;
  }

  void add_validation(Logs& logs) {
    const std::int64_t batch =
        options_.validation_batch_size > 0 ? options_.validation_batch_size : batch_;
    for (auto& [name, value] : session_.evaluate(*validation_, batch, options_.validation_steps)) {
      logs.emplace_back("val_" + name, value);
    }
  }

  Session& session_;
  const data::Dataset& train_;
  const data::Dataset* validation_;
  const FitOptions& options_;
  HistoryCallback history_;
  std::vector<Callback*> callbacks_;
  Feeds feeds_;
  int types_;
  FitContext context_;
  std::int64_t batch_ = 0;
  bool with_loss_ = false;
  std::optional<data::Order> order_;
  std::int64_t order_pass_ = -1;
  Session::Prepared* prepared_ = nullptr;
  std::int64_t prepared_rows_ = -1;
};

}  // namespace

void FitContext::print(const std::string& line) const {
  if (!session.is_first_rank()) return;
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

void History::add(std::int64_t epoch, const Logs& logs) {
  epochs.push_back(epoch);
  for (const auto& [name, value] : logs) {
    const auto found =
        std::find_if(values.begin(), values.end(),
                     [&name = name](const auto& entry) { return entry.first == name; });
    if (found == values.end()) {
      values.emplace_back(name, std::vector<double>{value});
    } else {
      found->second.push_back(value);
    }
  }
}

std::int64_t batch_size_of(const FitOptions& options, std::int64_t rows) {
  if (options.batch_size > 0) return options.batch_size;
  return options.steps_per_epoch ? (rows + *options.steps_per_epoch - 1) / *options.steps_per_epoch
                                 : 32;
}

History fit(Session& session, const data::Dataset& train, const data::Dataset* validation,
            const FitOptions& options, const std::vector<Callback*>& callbacks) {
  return Fit(session, train, validation, options, callbacks).run();
}

}  // namespace tessera::train
