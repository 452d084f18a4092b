// Keras's learning-rate schedules. Each is written once, as a formula that works on a graph value
// and on a double.
#include "runtime/train/schedules.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "base/arguments.h"
#include "runtime/ops/ops.h"
#include "runtime/train/named_entry.h"

namespace tessera::train {
namespace {

using json::Arguments;

// Counterparts of the ops on doubles, so that a formula can be instantiated for both. They round
// to float32 nowhere: the host's value is for logs.
double floor(double x) { return std::floor(x); }
double ceil(double x) { return std::ceil(x); }
double cos(double x) { return std::cos(x); }
double log(double x) { return std::log(x); }
double pow(double a, double b) { return std::pow(a, b); }
double minimum(double a, double b) { return std::min(a, b); }
double maximum(double a, double b) { return std::max(a, b); }
bool less(double a, double b) { return a < b; }
bool less_equal(double a, double b) { return a <= b; }
double where(bool condition, double a, double b) { return condition ? a : b; }

using ops::ceil;
using ops::cos;
using ops::floor;
using ops::less;
using ops::less_equal;
using ops::log;
using ops::maximum;
using ops::minimum;
using ops::pow;
using ops::where;
using ops::operator+;
using ops::operator-;
using ops::operator*;
using ops::operator/;

template <typename Formula>
class FormulaSchedule final : public Schedule {
 public:
  explicit FormulaSchedule(Formula formula) : formula_(std::move(formula)) {}
  SymbolicTensor at(SymbolicTensor step) const override { return formula_(step); }
  double at(double step) const override { return formula_(step); }

 private:
  Formula formula_;
};

template <typename Formula>
std::unique_ptr<Schedule> schedule_of(Formula formula) {
  return std::make_unique<FormulaSchedule<Formula>>(std::move(formula));
}

double required_number(Arguments& arguments, std::string_view key) {
  arguments.required(key);
  return arguments.number(key, 0.0);
}

/// A count of steps: Keras's `Argument `decay_steps` must be > 0`.
double required_steps(Arguments& arguments, std::string_view key) {
  const json::Value* value = arguments.required(key);
  const std::optional<double> steps = arguments.optional_number(key);
  if (steps && !(*steps > 0.0)) {
    arguments.problem(*value, key,
                      fmt::format("Argument `{}` must be > 0. Received: {}={}", key, key, *steps));
  }
  return steps && *steps > 0.0 ? *steps : 1.0;
}

std::unique_ptr<Schedule> exponential_decay(Arguments& arguments) {
  const double initial = required_number(arguments, "initial_learning_rate");
  const double steps = required_steps(arguments, "decay_steps");
  const double rate = required_number(arguments, "decay_rate");
  const bool staircase = arguments.boolean("staircase", false);
  return schedule_of([=](auto step) {
    const auto periods = step / steps;
    return initial * pow(rate, staircase ? floor(periods) : periods);
  });
}

std::unique_ptr<Schedule> inverse_time_decay(Arguments& arguments) {
  const double initial = required_number(arguments, "initial_learning_rate");
  const double steps = required_steps(arguments, "decay_steps");
  const double rate = required_number(arguments, "decay_rate");
  const bool staircase = arguments.boolean("staircase", false);
  return schedule_of([=](auto step) {
    const auto periods = step / steps;
    return initial / (1.0 + rate * (staircase ? floor(periods) : periods));
  });
}

std::unique_ptr<Schedule> piecewise_constant_decay(Arguments& arguments) {
  const json::Value* place = arguments.required("boundaries");
  arguments.required("values");
  std::vector<double> boundaries = arguments.numbers("boundaries").value_or(std::vector<double>{});
  std::vector<double> values = arguments.numbers("values").value_or(std::vector<double>{});
  if (values.size() != boundaries.size() + 1) {
    if (place != nullptr && arguments.has("values")) {
      arguments.problem(
          *place, "boundaries",
          fmt::format("The length of boundaries should be 1 less than the length of values. "
                      "Received: {} boundaries and {} values",
                      boundaries.size(), values.size()));
    }
    boundaries.clear();
    values.assign(1, 0.0);
  }
  return schedule_of([=](auto step) {
    // Without boundaries a constant, still of the step's kind.
    auto result = step * 0.0 + values.back();
    for (std::size_t i = boundaries.size(); i-- > 0;) {
      result = where(less_equal(step, boundaries[i]), step * 0.0 + values[i], result);
    }
    return result;
  });
}

std::unique_ptr<Schedule> polynomial_decay(Arguments& arguments) {
  const double initial = required_number(arguments, "initial_learning_rate");
  const double steps = required_steps(arguments, "decay_steps");
  const double end = arguments.number("end_learning_rate", 1e-4);
  const double power = arguments.number("power", 1.0);
  const bool cycle = arguments.boolean("cycle", false);
  return schedule_of([=](auto step) {
    // At step 0 the cycle has its first length, not the length 0.
    const auto done =
        cycle ? step / (steps * maximum(ceil(step / steps), 1.0)) : minimum(step, steps) / steps;
    return (initial - end) * pow(1.0 - done, power) + end;
  });
}

template <typename T>
T cosine(T fraction, double scale, double alpha) {
  const T wave = 0.5 * (1.0 + cos(std::numbers::pi * fraction));
  return scale * ((1.0 - alpha) * wave + alpha);
}

std::unique_ptr<Schedule> cosine_decay(Arguments& arguments) {
  const double initial = required_number(arguments, "initial_learning_rate");
  const double steps = required_steps(arguments, "decay_steps");
  const double alpha = arguments.number("alpha", 0.0);
  const std::optional<double> target = arguments.optional_number("warmup_target");
  const double warmup = arguments.number("warmup_steps", 0.0, 0.0);
  if (!target) {
    return schedule_of(
        [=](auto step) { return cosine(minimum(step, steps) / steps, initial, alpha); });
  }
  if (warmup == 0.0) {
    return schedule_of(
        [=](auto step) { return cosine(minimum(step, steps) / steps, *target, alpha); });
  }
  return schedule_of([=](auto step) {
    const auto now = minimum(step, steps + warmup);
    return where(less(now, warmup), (*target - initial) * (now / warmup) + initial,
                 cosine((now - warmup) / steps, *target, alpha));
  });
}

std::unique_ptr<Schedule> cosine_decay_restarts(Arguments& arguments) {
  const double initial = required_number(arguments, "initial_learning_rate");
  const double steps = required_steps(arguments, "first_decay_steps");
  const double t_mul = arguments.number("t_mul", 2.0, 0.0);
  const double m_mul = arguments.number("m_mul", 1.0);
  const double alpha = arguments.number("alpha", 0.0);
  if (t_mul == 1.0) {
    return schedule_of([=](auto step) {
      const auto done = step / steps;
      const auto restarts = floor(done);
      const auto wave =
          pow(m_mul, restarts) * (0.5 * (1.0 + cos(std::numbers::pi * (done - restarts))));
      return initial * ((1.0 - alpha) * wave + alpha);
    });
  }
  return schedule_of([=](auto step) {
    const auto done = step / steps;
    // Length of the first i periods, in units of the first one.
    const auto length = [t_mul](auto i) { return (1.0 - pow(t_mul, i)) / (1.0 - t_mul); };
    // The logarithm may round to the wrong side of a whole number: corrected by the exact lengths.
    const auto guess = floor(log(1.0 - done * (1.0 - t_mul)) / std::log(t_mul));
    const auto raised = where(less_equal(length(guess + 1.0), done), guess + 1.0, guess);
    const auto restarts = where(less(done, length(raised)), raised - 1.0, raised);
    const auto fraction = (done - length(restarts)) / pow(t_mul, restarts);
    const auto wave = pow(m_mul, restarts) * (0.5 * (1.0 + cos(std::numbers::pi * fraction)));
    return initial * ((1.0 - alpha) * wave + alpha);
  });
}

struct Entry {
  const char* name;
  const char* alias;
  std::unique_ptr<Schedule> (*make)(Arguments&);
};
constexpr Entry kSchedules[] = {
    {"ExponentialDecay", nullptr, exponential_decay},
    {"PiecewiseConstantDecay", nullptr, piecewise_constant_decay},
    {"PolynomialDecay", nullptr, polynomial_decay},
    {"InverseTimeDecay", nullptr, inverse_time_decay},
    {"CosineDecay", nullptr, cosine_decay},
    {"CosineDecayRestarts", nullptr, cosine_decay_restarts},
};

}  // namespace

std::vector<std::string> schedule_classes() { return class_names<Entry>(kSchedules); }

std::unique_ptr<Schedule> make_schedule(const json::Value& value, const std::string& path,
                                        json::Problems& problems) {
  const json::Identifier identifier = json::read_identifier(value, path, problems);
  const Entry* entry = find_entry(std::span<const Entry>(kSchedules), identifier,
                                  "learning-rate schedule", path, problems);
  if (entry == nullptr) return nullptr;
  Arguments arguments(*identifier.config, config_path(value, path), problems);
  std::unique_ptr<Schedule> schedule = entry->make(arguments);
  arguments.ignore({"name"});
  arguments.finish("argument");
  return schedule;
}

}  // namespace tessera::train
