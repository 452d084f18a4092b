// The order of samples and what a rank loads of it; class weights; forbidden values.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/data/batches.h"
#include "runtime/data/dataset.h"

using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using namespace tessera;
using namespace tessera::data;

namespace {

using Rows = std::vector<std::int64_t>;

Rows all_of(const Order& order, std::int64_t rows) {
  Rows result;
  for (std::int64_t i = 0; i < rows; ++i) result.push_back(order.at(i));
  return result;
}

Rows counting(std::int64_t rows) {
  Rows result(static_cast<std::size_t>(rows));
  std::iota(result.begin(), result.end(), std::int64_t{0});
  return result;
}

/// Row i holds 10 i and 10 i + 1, and counts how often rows are read.
class CountedSource : public Source {
 public:
  explicit CountedSource(std::int64_t rows) {
    rows_ = rows;
    sample_shape_ = {2};
  }
  void read(std::span<const std::int64_t> rows, DType to, void* out) const override {
    REQUIRE(to == DType::float32);
    ++reads;
    auto* values = static_cast<float*>(out);
    for (const std::int64_t row : rows) {
      REQUIRE((row >= 0 && row < rows_));
      *values++ = static_cast<float>(10 * row);
      *values++ = static_cast<float>(10 * row + 1);
    }
  }
  std::string place(std::int64_t /*row*/, std::int64_t /*element*/) const override { return ""; }
  std::string shown() const override { return ""; }
  mutable int reads = 0;
};

std::vector<float> loaded(InputFeed& feed, const Order& order, std::int64_t first,
                          std::int64_t count) {
  const auto* values = static_cast<const float*>(feed.load(order, first, count));
  return {values, values + 2 * count};
}

std::shared_ptr<MemorySource> memory(std::vector<float> values, const Shape& shape,
                                     bool integral = false) {
  const auto rows = static_cast<std::int64_t>(values.size()) / shape.elements();
  return std::make_shared<MemorySource>(std::move(values), rows, shape, integral, "m");
}

template <typename T>
std::vector<T> read(const Source& source, DType type) {
  std::vector<T> values(static_cast<std::size_t>(source.rows() * source.sample_elements()));
  source.read(counting(source.rows()), type, values.data());
  return values;
}

}  // namespace

TEST_CASE("an epoch visits every sample once, in an order of its own") {
  for (const std::int64_t rows : {1, 2, 3, 5, 17, 64, 1000}) {
    CAPTURE(rows);
    for (const Shuffle shuffle : {Shuffle::none, Shuffle::samples, Shuffle::within_batches}) {
      Rows order = all_of(Order(rows, shuffle, 8, 1, 0), rows);
      if (shuffle != Shuffle::none && rows > 8) CHECK(order != counting(rows));
      std::sort(order.begin(), order.end());
      CHECK(order == counting(rows));
    }
  }
  const auto order = [](std::uint64_t seed, std::int64_t epoch) {
    return all_of(Order(1000, Shuffle::samples, 8, seed, epoch), 1000);
  };
  CHECK(order(1, 0) == order(1, 0));
  CHECK(order(1, 0) != order(1, 1));
  CHECK(order(1, 0) != order(2, 0));
  CHECK(all_of(Order(9, Shuffle::none, 8, 1, 0), 9) == counting(9));
  // The batch size does not change the order of whole epochs.
  CHECK(all_of(Order(1000, Shuffle::samples, 7, 1, 0), 1000) == order(1, 0));
}

TEST_CASE("shuffled batches keep their samples; the last one is short") {
  const Rows order = all_of(Order(21, Shuffle::within_batches, 8, 3, 2), 21);
  for (std::int64_t begin = 0; begin < 21; begin += 8) {
    const std::int64_t end = std::min<std::int64_t>(begin + 8, 21);
    Rows batch(order.begin() + begin, order.begin() + end);
    std::sort(batch.begin(), batch.end());
    for (std::int64_t i = begin; i < end; ++i)
      CHECK(batch[static_cast<std::size_t>(i - begin)] == i);
  }
  // No two batches are shuffled alike.
  CHECK(Rows(order.begin(), order.begin() + 8) != counting(8));
  Rows second(order.begin() + 8, order.begin() + 16);
  for (std::int64_t& row : second) row -= 8;
  CHECK(second != Rows(order.begin(), order.begin() + 8));
}

TEST_CASE("parts of any number of ranks make the same batches") {
  const std::int64_t rows = 53;
  const std::int64_t batch = 10;
  for (const Shuffle shuffle : {Shuffle::none, Shuffle::samples, Shuffle::within_batches}) {
    const Order order(rows, shuffle, batch, 5, 1);
    for (const std::int64_t cache : {std::int64_t{0}, std::int64_t{1} << 20U}) {
      std::vector<float> whole;
      for (const int ranks : {1, 2, 3, 7, 12}) {
        std::vector<float> joined;
        std::vector<InputFeed> feeds;
        for (int r = 0; r < ranks; ++r)
          feeds.emplace_back(std::make_shared<CountedSource>(rows), DType::float32, cache);
        for (std::int64_t first = 0; first < rows; first += batch) {
          const std::int64_t size = std::min(batch, rows - first);
          for (int r = 0; r < ranks; ++r) {
            const std::int64_t begin = size * r / ranks;
            const std::int64_t count = size * (r + 1) / ranks - begin;
            if (count == 0) {
              CHECK(feeds[static_cast<std::size_t>(r)].load(order, first + begin, 0) == nullptr);
              continue;
            }
            for (const float value :
                 loaded(feeds[static_cast<std::size_t>(r)], order, first + begin, count))
              joined.push_back(value);
          }
        }
        if (ranks == 1) {
          whole = joined;
          for (std::int64_t i = 0; i < rows; ++i)
            REQUIRE(whole[static_cast<std::size_t>(2 * i)] == static_cast<float>(10 * order.at(i)));
        }
        CHECK(joined == whole);
      }
    }
  }
}

TEST_CASE("neighbouring rows of a cached array are not copied") {
  const auto source = std::make_shared<CountedSource>(20);
  InputFeed feed(source, DType::float32);
  CHECK(source->reads == 1);
  const Order straight(20, Shuffle::none, 5, 0, 0);
  const auto* first = static_cast<const float*>(feed.load(straight, 0, 5));
  const auto* second = static_cast<const float*>(feed.load(straight, 5, 5));
  CHECK(second == first + 10);
  CHECK(second[1] == 51);
  const Order shuffled(20, Shuffle::samples, 5, 0, 0);
  CHECK(loaded(feed, shuffled, 0, 20)[0] == static_cast<float>(10 * shuffled.at(0)));
  CHECK(source->reads == 1);

  const auto large = std::make_shared<CountedSource>(20);
  InputFeed streamed(large, DType::float32, 159);  // one byte too few for the cache
  CHECK(large->reads == 0);
  CHECK(loaded(streamed, straight, 18, 2) == std::vector<float>{180, 181, 190, 191});
  CHECK(large->reads == 1);
  InputFeed exact(large, DType::float32, 160);
  CHECK(large->reads == 2);
}

TEST_CASE("class weights follow labels, one-hot rows and sample weights") {
  const std::vector<std::pair<std::int64_t, double>> weights{{0, 0.5}, {2, 3}};
  const auto labels = memory({0, 1, 2, 2}, {}, true);
  CHECK(read<float>(*class_weights(labels, weights, nullptr), DType::float32) ==
        std::vector<float>{0.5F, 1, 3, 3});
  const auto columns = memory({0, 1, 2, 2}, {1}, true);
  const auto of_columns = class_weights(columns, weights, nullptr);
  CHECK(of_columns->sample_shape() == Shape{});
  CHECK(read<float>(*of_columns, DType::float32) == std::vector<float>{0.5F, 1, 3, 3});
  const auto hot = memory({1, 0, 0, 0, 0, 1, 0, 1, 0}, {3});
  CHECK(read<float>(*class_weights(hot, weights, nullptr), DType::float32) ==
        std::vector<float>{0.5F, 3, 1});
  const auto given = memory({2, 3, 4, 5, 6, 7}, {2});
  const auto both = class_weights(memory({2, 0, 1}, {}, true), weights, given);
  CHECK(both->sample_shape() == Shape{2});
  CHECK(read<float>(*both, DType::float32) == std::vector<float>{6, 9, 2, 2.5F, 6, 7});
}

TEST_CASE("rows of another source") {
  const auto part = rows_of(memory({0, 1, 2, 3, 4, 5, 6, 7}, {2}), 1, 2);
  CHECK(part->rows() == 2);
  CHECK(read<std::int32_t>(*part, DType::int32) == std::vector<std::int32_t>{2, 3, 4, 5});
  CHECK(part->place(1, 0) == "m: row 2, column 0");  // as the file counts
  const auto inner = rows_of(part, 1, 1);
  CHECK(inner->place(0, 1) == "m: row 2, column 1");
}

TEST_CASE("the first forbidden value is named with its place") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const auto message = [](const Source& source, const Demand& demand, std::int64_t begin = 0) {
    return find_violation(source, demand, begin, source.rows()).message;
  };
  const auto numbers = memory({0, 1, 2, nan, 4, -infinity}, {2});
  CHECK_THAT(message(*numbers, {}), Equals("m: row 1, column 1: NaN is not a finite number"));
  CHECK(find_violation(*numbers, {}, 0, 3).row == 1);
  CHECK_THAT(message(*numbers, {}, 2),
             Equals("m: row 2, column 1: -infinity is not a finite number"));
  CHECK(find_violation(*numbers, {}, 0, 1).row == -1);
  CHECK(message(*memory({infinity}, {}), {}).find("infinity") != std::string::npos);

  const auto labels = memory({0, 9, -1, 10, 0.5F}, {});
  const Demand ten{.classes = 10};
  CHECK(find_violation(*labels, ten, 0, 2).message.empty());
  CHECK_THAT(message(*labels, ten),
             Equals("m: row 2: -1 is out of range: expected 0 to 9 (10 classes)"));
  CHECK_THAT(message(*labels, ten, 3), Contains("row 3: 10 is out of range"));
  CHECK_THAT(message(*labels, ten, 4),
             Contains("row 4: 0.5 is not a whole number, a class from 0 to 9"));
  CHECK(find_violation(*labels, {.classes = 10, .ignored = -1, .has_ignored = true}, 2, 3).row ==
        -1);
  CHECK(find_violation(*labels, {.classes = 10, .ignored = 10, .has_ignored = true}, 3, 4).row ==
        -1);
  // Integers are not read when anything is allowed.
  CHECK(find_violation(*memory({300}, {}, true), {}, 0, 1).row == -1);
  CHECK(find_violation(*memory({300}, {}, true), ten, 0, 1).row == 0);

  std::vector<float> many(200'000, 1);  // several pieces
  many[150'001] = nan;
  CHECK(find_violation(*memory(many, {}), {}, 0, 200'000).row == 150'001);
  CHECK(find_violation(*memory(many, {2}), {}, 0, 100'000).row == 75'000);
}
