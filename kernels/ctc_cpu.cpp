// Connectionist temporal classification on the CPU: samples over threads, one recursion over frames
// per sample.
#include <algorithm>
#include <cmath>

#include "kernels/ctc.h"
#include "kernels/dispatch.h"
#include "kernels/index.h"
#include "kernels/parallel.h"

namespace tessera::kernels {
namespace {

/// Log of the weight of transitions that are not allowed, and of states that cannot be reached.
constexpr double kForbidden = -1e5;

double log_add(double a, double b) {
  const double larger = std::max(a, b);
  const double smaller = std::min(a, b);
  return larger + std::log1p(std::exp(smaller - larger));
}

/// The recursion of one sample. After each frame: blank[n], n = 0..L: n labels are done and the
/// last frame was blank (or nothing came yet); emit[n], n = 0..L-1: the last frame was label n.
class Sample {
 public:
  /// Doubles of scratch for one sample.
  static std::int64_t scratch_size(const CtcArgs& args) {
    const std::int64_t states = 2 * args.max_labels + 1;
    return 2 * args.max_labels + args.frames * (args.max_labels + 2) + (args.frames + 1) * states +
           3 * states;
  }

  Sample(const CtcArgs& args, const void* labels, std::int64_t index, double* scratch)
      : args_(args), most_(args.max_labels), states_(2 * args.max_labels + 1) {
    label_ = scratch;
    repeat_ = label_ + most_;
    blank_log_ = repeat_ + most_;
    normaliser_ = blank_log_ + args.frames;
    label_log_ = normaliser_ + args.frames;
    alpha_ = label_log_ + args.frames * most_;
    work_ = alpha_ + (args.frames + 1) * states_;
    std::int64_t previous = 0;
    for (std::int64_t n = 0; n < most_; ++n) {
      const std::int64_t label = index_at(labels, args.labels_dtype, index * most_ + n);
      if (label != args.blank) ++length_;
      label_[n] = static_cast<double>(label);
      repeat_[n] = 0.0;
      if (n > 0) repeat_[n - 1] = label == previous ? 1.0 : 0.0;
      previous = label;
    }
  }

  template <typename T>
  double loss(const T* logits) {
    take_logs(logits);
    double* first = alpha_;
    std::fill_n(first, states_, kForbidden);
    first[0] = 0.0;
    for (std::int64_t t = 0; t < args_.frames; ++t) step(t);
    const double* last = alpha_ + args_.frames * states_;
    if (length_ == 0) return -last[0];
    return -log_add(last[length_], last[emit(length_ - 1)]);
  }

  /// After `loss`: dlogits = dloss times its derivative.
  template <typename T>
  void gradient(const T* logits, double dloss, T* dlogits) {
    double* d_state = work_;
    double* d_before = work_ + states_;
    std::fill_n(d_state, states_, 0.0);
    const double* last = alpha_ + args_.frames * states_;
    if (length_ == 0) {
      d_state[0] = -dloss;
    } else {
      const double total = log_add(last[length_], last[emit(length_ - 1)]);
      d_state[length_] = -dloss * std::exp(last[length_] - total);
      d_state[emit(length_ - 1)] = -dloss * std::exp(last[emit(length_ - 1)] - total);
    }
    for (std::int64_t t = args_.frames; t-- > 0;) {
      const double d_blank = step_back(t, d_state, d_before);
      store_frame(logits + t * args_.classes, t, d_blank, d_state, dlogits + t * args_.classes);
      std::swap(d_state, d_before);
    }
  }

 private:
  std::int64_t emit(std::int64_t n) const { return most_ + 1 + n; }

  template <typename T>
  void take_logs(const T* logits) {
    for (std::int64_t t = 0; t < args_.frames; ++t) {
      const T* frame = logits + t * args_.classes;
      double largest = static_cast<double>(widen(frame[0]));
      for (std::int64_t c = 1; c < args_.classes; ++c) {
        largest = std::max(largest, static_cast<double>(widen(frame[c])));
      }
      double sum = 0.0;
      for (std::int64_t c = 0; c < args_.classes; ++c) {
        sum += std::exp(static_cast<double>(widen(frame[c])) - largest);
      }
      normaliser_[t] = largest + std::log(sum);
      blank_log_[t] = static_cast<double>(widen(frame[args_.blank])) - normaliser_[t];
      for (std::int64_t n = 0; n < length_; ++n) {
        const auto label = static_cast<std::int64_t>(label_[n]);
        const bool known = label >= 0 && label < args_.classes;
        label_log_[t * most_ + n] =
            known ? static_cast<double>(widen(frame[label])) - normaliser_[t] : 0.0;
      }
    }
  }

  /// blank[n] before the frame, with label n-1 just ended without a blank after it (not before a
  /// repeat).
  double joined(const double* before, std::int64_t n) const {
    if (n == 0) return before[0];
    return log_add(before[n], before[emit(n - 1)] + kForbidden * repeat_[n - 1]);
  }

  void step(std::int64_t t) {
    const double* before = alpha_ + t * states_;
    double* after = alpha_ + (t + 1) * states_;
    const double* logs = label_log_ + t * most_;
    after[0] = before[0] + blank_log_[t];
    for (std::int64_t n = 0; n < length_; ++n) {
      const double ended = before[emit(n)] + kForbidden * (1.0 - repeat_[n]);
      after[n + 1] = log_add(joined(before, n + 1), ended) + blank_log_[t];
      after[emit(n)] = log_add(joined(before, n), before[emit(n)]) + logs[n];
    }
  }

  /// From the derivatives after frame t to those before it. Returns the derivative of the blank's
  /// log probability; those of the labels are the derivatives of their states after the frame.
  double step_back(std::int64_t t, const double* d_after, double* d_before) {
    const double* before = alpha_ + t * states_;
    double* d_joined = work_ + 2 * states_;
    std::fill_n(d_before, states_, 0.0);
    std::fill_n(d_joined, length_ + 1, 0.0);
    double d_blank = d_after[0];
    d_joined[0] += d_after[0];
    for (std::int64_t n = 0; n < length_; ++n) {
      const double into_blank = joined(before, n + 1);
      const double ended = before[emit(n)] + kForbidden * (1.0 - repeat_[n]);
      const double total = log_add(into_blank, ended);
      d_joined[n + 1] += d_after[n + 1] * std::exp(into_blank - total);
      d_before[emit(n)] += d_after[n + 1] * std::exp(ended - total);
      d_blank += d_after[n + 1];
      const double into_label = joined(before, n);
      const double emitted = log_add(into_label, before[emit(n)]);
      d_joined[n] += d_after[emit(n)] * std::exp(into_label - emitted);
      d_before[emit(n)] += d_after[emit(n)] * std::exp(before[emit(n)] - emitted);
    }
    d_before[0] += d_joined[0];
    for (std::int64_t n = 1; n <= length_; ++n) {
      const double total = joined(before, n);
      const double ended = before[emit(n - 1)] + kForbidden * repeat_[n - 1];
      d_before[n] += d_joined[n] * std::exp(before[n] - total);
      d_before[emit(n - 1)] += d_joined[n] * std::exp(ended - total);
    }
    return d_blank;
  }

  /// dlogits = d log probability - probability * (sum of d log probability). A class may stand for
  /// several labels, so they are added up in float64 first: for 16-bit logits class by class.
  template <typename T>
  void store_frame(const T* logits, std::int64_t t, double d_blank, const double* d_after,
                   T* dlogits) const {
    double sum = d_blank;
    for (std::int64_t n = 0; n < length_; ++n) {
      if (is_known(label_[n])) sum += d_after[emit(n)];
    }
    const auto derivative = [&](std::int64_t c, double d_log) {
      const double probability = std::exp(static_cast<double>(widen(logits[c])) - normaliser_[t]);
      return narrow<T>(static_cast<SumOf<T>>(d_log - probability * sum));
    };
    for (std::int64_t c = 0; c < args_.classes; ++c) dlogits[c] = derivative(c, 0.0);
    dlogits[args_.blank] = derivative(args_.blank, d_blank + label_sum(args_.blank, d_after));
    for (std::int64_t n = 0; n < length_; ++n) {
      const auto label = static_cast<std::int64_t>(label_[n]);
      if (!is_known(label_[n]) || label == args_.blank) continue;
      dlogits[label] = derivative(label, label_sum(label, d_after));
    }
  }

  double label_sum(std::int64_t label, const double* d_after) const {
    double sum = 0.0;
    for (std::int64_t n = 0; n < length_; ++n) {
      if (label_[n] == static_cast<double>(label)) sum += d_after[emit(n)];
    }
    return sum;
  }

  bool is_known(double label) const {
    return label >= 0.0 && label < static_cast<double>(args_.classes);
  }

  const CtcArgs& args_;
  std::int64_t most_;
  std::int64_t states_;
  std::int64_t length_ = 0;
  double* label_ = nullptr;       // [max_labels]
  double* repeat_ = nullptr;      // [max_labels]: 1 where the next label is the same
  double* blank_log_ = nullptr;   // [frames]
  double* normaliser_ = nullptr;  // [frames]: log of the sum of the exponentials
  double* label_log_ = nullptr;   // [frames, max_labels]
  double* alpha_ = nullptr;  // [frames + 1, states]: blank[0..max_labels], emit[0..max_labels-1]
  double* work_ = nullptr;   // [3, states]
};

std::int64_t work_of(const CtcArgs& args) {
  return 16 * args.frames * (args.classes + 4 * args.max_labels);
}

}  // namespace

std::int64_t ctc_workspace(const CtcArgs& args) {
  return args.batch * Sample::scratch_size(args) * static_cast<std::int64_t>(sizeof(double));
}

void ctc_loss(const CtcArgs& args, const void* labels, const void* logits, void* loss,
              void* workspace, const CpuDevice& device) {
  with_floating(args.dtype, [&](auto element) {
    using T = decltype(element);
    parallel_rows(
        args.batch, work_of(args), device.threads, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            Sample sample(args, labels, i,
                          static_cast<double*>(workspace) + i * Sample::scratch_size(args));
            static_cast<SumOf<T>*>(loss)[i] = static_cast<SumOf<T>>(
                sample.loss(static_cast<const T*>(logits) + i * args.frames * args.classes));
          }
        });
  });
}

void ctc_gradient(const CtcArgs& args, const void* labels, const void* logits, const void* dloss,
                  void* dlogits, void* workspace, const CpuDevice& device) {
  with_floating(args.dtype, [&](auto element) {
    using T = decltype(element);
    parallel_rows(
        args.batch, 3 * work_of(args), device.threads, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t offset = i * args.frames * args.classes;
            const T* x = static_cast<const T*>(logits) + offset;
            Sample sample(args, labels, i,
                          static_cast<double*>(workspace) + i * Sample::scratch_size(args));
            sample.loss(x);
            sample.gradient(x, static_cast<double>(static_cast<const SumOf<T>*>(dloss)[i]),
                            static_cast<T*>(dlogits) + offset);
          }
        });
  });
}

}  // namespace tessera::kernels
