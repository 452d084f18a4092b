// Cases of ctc_loss, and its value against the sum over all alignments.
#include "runtime/ops/ctc.h"

#include <cmath>

#include "base/error.h"
#include "tests/ops/values.h"

namespace tessera::testing {
namespace {

Tensors loss(Builder&, const Tensors& x) { return {ops::ctc_loss(x[0], x[1])}; }

/// What an alignment reads as: repeats merged, then blanks removed.
std::vector<int> collapse(const std::vector<int>& alignment, int blank) {
  std::vector<int> read;
  int previous = -1;
  for (const int label : alignment) {
    if (label != previous && label != blank) read.push_back(label);
    previous = label;
  }
  return read;
}

/// -log of the probability of `labels`, by trying every alignment.
double by_enumeration(const std::vector<int>& labels, const std::vector<double>& logits, int frames,
                      int classes, int blank) {
  std::vector<double> probabilities;
  for (int t = 0; t < frames; ++t) {
    double sum = 0.0;
    for (int c = 0; c < classes; ++c) {
      sum += std::exp(logits[static_cast<std::size_t>(t * classes + c)]);
    }
    for (int c = 0; c < classes; ++c) {
      probabilities.push_back(std::exp(logits[static_cast<std::size_t>(t * classes + c)]) / sum);
    }
  }
  double total = 0.0;
  const int alignments = static_cast<int>(std::lround(std::pow(classes, frames)));
  for (int code = 0; code < alignments; ++code) {
    std::vector<int> alignment;
    double probability = 1.0;
    int rest = code;
    for (int t = 0; t < frames; ++t, rest /= classes) {
      alignment.push_back(rest % classes);
      probability *= probabilities[static_cast<std::size_t>(t * classes + rest % classes)];
    }
    if (collapse(alignment, blank) == labels) total += probability;
  }
  return -std::log(total);
}

TEST_CASE("ctc_loss") {
  Options options;
  options.tolerance = 1e-5;
  options.reason = "derivatives are no whole numbers, so splitting dloss rounds differently";
  check_op({{whole({6, 2}, 0, 2), real({6, 5, 3})},
            {whole({5, 3}, 0, 3, DType::int64), real({5, 4, 4})},
            {whole({1, 1}, 1, 1), real({1, 3, 2})},
            {whole({2, 3}, 1, 1), real({2, 6, 2})},
            {whole({2, 2}, 0, 0), real({2, 3, 3})},
            {whole({0, 2}, 0, 2), real({0, 3, 3})}},
           loss, options);
}

TEST_CASE("ctc_loss is the sum over all alignments") {
  const int frames = 5;
  const int classes = 4;
  const std::vector<std::vector<int>> rows{{1, 2, 3}, {1, 1, 2}, {3, 3}, {2}, {}};
  std::vector<double> logits;
  for (std::size_t i = 0; i < rows.size() * frames * classes; ++i) {
    logits.push_back(std::sin(static_cast<double>(i * i % 97)) * 2.0);
  }
  for (const int blank : {0, 3}) {
    std::vector<double> labels;
    std::vector<double> expected;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      std::vector<int> row = rows[r];
      for (int& label : row) label = blank == 0 ? label : label - 1;
      const auto begin = logits.begin() + static_cast<long>(r) * frames * classes;
      expected.push_back(
          by_enumeration(row, {begin, begin + frames * classes}, frames, classes, blank));
      row.resize(3, blank);
      labels.insert(labels.end(), row.begin(), row.end());
    }
    const auto build = [blank](Builder&, const Tensors& x) {
      return Tensors{ops::ctc_loss(x[0], x[1], blank)};
    };
    check_near(
        result_of({{{5, 3}, labels, DType::int32}, {{5, 5, 4}, logits, DType::float64}}, build),
        expected, 1e-12);
    check_near(result_of({{{5, 3}, labels}, {{5, 5, 4}, logits}}, build), expected, 1e-6);
  }
}

TEST_CASE("ctc_loss of labels that do not fit into the frames is large and finite") {
  const std::vector<double> found =
      result_of({{{1, 3}, {1, 1, 1}}, {{1, 2, 2}, {0, 0, 0, 0}}}, loss);
  CHECK(found[0] > 9e4);
  CHECK(std::isfinite(found[0]));
}

TEST_CASE("ctc_loss says what does not fit") {
  CHECK_THROWS_WITH(result_of({{{2, 3}, {}}, {{3, 4, 5}, {}}}, loss),
                    Catch::Contains("found [2, 3] and [3, 4, 5]"));
  const auto blank = [](Builder&, const Tensors& x) {
    return Tensors{ops::ctc_loss(x[0], x[1], 5)};
  };
  CHECK_THROWS_WITH(result_of({{{3, 3}, {}}, {{3, 4, 5}, {}}}, blank),
                    Catch::Contains("the blank 5 is none of 5 classes"));
}

TEST_CASE("ctc_loss does not depend on threads") {
  check_threads({whole({16, 6}, 0, 7), real({16, 30, 8})}, loss);
}

TEST_CASE("ctc_loss in all dtypes") { check_dtypes({whole({4, 3}, 0, 4), real({4, 8, 5})}, loss); }

}  // namespace
}  // namespace tessera::testing
