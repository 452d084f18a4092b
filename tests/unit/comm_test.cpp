// Collectives among threads: exact results for every dtype, size and number of ranks; failures end
// all ranks with a cause.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/queue.h"
#include "comm/segment.h"
#include "comm/summation.h"
#include "comm/threads.h"
#include "comm/watchdog.h"
#include "tests/support/collectives.h"

namespace tessera::comm {
namespace {

constexpr int kRanks[] = {1, 2, 3, 5, 8};

/// The message of the Error that `ranks` threads end with.
std::string message_of(int ranks, Error::Kind kind, const std::function<void(World&)>& body) {
  try {
    run_as_threads(ranks, body);
  } catch (const Error& error) {
    CHECK(error.kind == kind);
    return error.what();
  }
  return "no error";
}

TEST_CASE("every collective is exact through slots of the smallest size") {
  for (const int ranks : kRanks) {
    INFO("ranks: " << ranks);
    // Lanes hold 4,072 bytes: 509 float64, 1,018 float32, 2,036 bfloat16, 4,072 uint8.
    REQUIRE_NOTHROW(run_as_threads(
        ranks,
        [](World& world) {
          testing::check_everything(world.all(), {0, 1, 7, 509, 510, 1019, 2037, 4073});
        },
        1));
  }
}

TEST_CASE("every collective is exact through slots of the usual size") {
  for (const int ranks : {2, 5}) {
    INFO("ranks: " << ranks);
    REQUIRE_NOTHROW(run_as_threads(ranks, [](World& world) {
      testing::check_order(world.all(), 500'003);
      testing::check_all_reduce(world.all(), DType::bfloat16, ReduceKind::sum, 600'001);
      const std::vector<std::int64_t> counts(static_cast<std::size_t>(world.size()), 150'007);
      testing::check_all_gather(world.all(), DType::float64, counts);
      testing::check_reduce_scatter(world.all(), DType::float32, counts);
      testing::check_all_to_all(world.all(), DType::int64, 40'001);
      testing::check_broadcast(world.all(), DType::float32, 300'001, 0);
    }));
  }
}

TEST_CASE("groups of some ranks in any order work side by side") {
  run_as_threads(6, [](World& world) {
    const std::vector<int> rows = world.rank() < 3 ? std::vector{0, 1, 2} : std::vector{5, 3, 4};
    const std::vector<int> columns{world.rank() % 3, world.rank() % 3 + 3};
    Communicator& row = world.group(rows);
    Communicator& column = world.group(columns);
    check(&world.group(rows) == &row, "a group is made once");
    check(rows[static_cast<std::size_t>(row.rank())] == world.rank(), "rank in the group");
    std::vector<std::int32_t> a(3000, world.rank());
    std::vector<std::int32_t> b(5, world.rank());
    const Request first = row.start_all_reduce(a.data(), 3000, DType::int32, ReduceKind::sum, "a");
    const Request second = column.start_all_reduce(b.data(), 5, DType::int32, ReduceKind::sum, "b");
    column.wait(second);
    row.wait(first);
    check(a.back() == (world.rank() < 3 ? 3 : 12), "sum over the row");
    check(b.back() == 2 * (world.rank() % 3) + 3, "sum over the column");
    // The order of the members decides where parts lie.
    const std::vector<std::int64_t> ones(3, 1);
    const std::int32_t mine = world.rank();
    std::vector<std::int32_t> all(3);
    row.wait(row.start_all_gather(&mine, all.data(), ones, DType::int32, "order"));
    check(all == rows, "parts in the order of the group");
  });
}

TEST_CASE("half floats are added in float32 and rounded once") {
  run_as_threads(3, [](World& world) {
    // 256 + 1 rounds to 256 in bfloat16, 2048 + 1 to 2048 in float16: rounding each step would lose
    // both ones.
    for (const std::int64_t count : {std::int64_t{5}, std::int64_t{100'000}}) {
      const auto size = static_cast<std::size_t>(count);
      std::vector<BFloat16> wide(size, to_bfloat16(world.rank() == 0 ? 256.0F : 1.0F));
      world.all().all_reduce(wide.data(), count, DType::bfloat16, ReduceKind::sum, "wide");
      check(to_float(wide.back()) == 258.0F, "bfloat16 sum");
      std::vector<Float16> narrow(size, to_float16(world.rank() == 0 ? 2048.0F : 1.0F));
      world.all().all_reduce(narrow.data(), count, DType::float16, ReduceKind::sum, "narrow");
      check(to_float(narrow.back()) == 2050.0F, "float16 sum");
    }
  });
}

TEST_CASE("a NaN of any rank survives sums, maxima and minima") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (int holder = 0; holder < 3; ++holder) {
    run_as_threads(3, [&](World& world) {
      for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::max, ReduceKind::min}) {
        double value[2] = {world.rank() == holder ? nan : 1.0, 2.0};
        world.all().all_reduce(value, 2, DType::float64, kind, "nan");
        check(std::isnan(value[0]) && !std::isnan(value[1]), "NaN");
      }
    });
  }
}

TEST_CASE("summation allows the result to be any of the terms, and integers wrap around") {
  for (int target = 0; target < 3; ++target) {
    std::vector<float> terms[3];
    const void* pointers[3];
    for (int i = 0; i < 3; ++i) {
      terms[i].assign(2500, static_cast<float>(i + 1));
      pointers[i] = terms[i].data();
    }
    summation_of(DType::float32, ReduceKind::sum)(terms[target].data(), pointers, 3, 2500);
    CHECK(std::ranges::count(terms[target], 6.0F) == 2500);
  }
  const std::int32_t largest = std::numeric_limits<std::int32_t>::max();
  const std::int32_t one = 1;
  std::int32_t sum = 0;
  const void* pointers[2] = {&largest, &one};
  summation_of(DType::int32, ReduceKind::sum)(&sum, pointers, 2, 1);
  CHECK(sum == std::numeric_limits<std::int32_t>::min());
}

TEST_CASE("members that call different operations are told so") {
  const std::string kinds = message_of(2, Error::Kind::rank_lost, [](World& world) {
    float value[4] = {};
    if (world.rank() == 0) {
      world.all().all_reduce(value, 4, DType::float32, ReduceKind::sum, "dense/kernel");
    } else {
      world.all().broadcast(value, 3, DType::int32, 0, "seed");
    }
  });
  CHECK_THAT(kinds,
             Catch::Contains("all_reduce of 4 float32") && Catch::Contains("broadcast of 3 int32"));
  const std::string counts = message_of(2, Error::Kind::rank_lost, [](World& world) {
    const std::vector<std::int64_t> send(2, world.rank() == 0 ? 2 : 3);
    std::vector<std::int64_t> receive(2, 3);
    receive[static_cast<std::size_t>(world.rank())] = send[0];
    const std::vector<float> from(6);
    std::vector<float> to(6);
    Communicator& all = world.all();
    all.wait(all.start_all_to_all(from.data(), send, to.data(), receive, DType::float32, "tokens"));
  });
  CHECK_THAT(counts, Catch::Contains("all_to_all of tokens") &&
                         Catch::Contains("sends 2 elements where 3 are expected"));
}

TEST_CASE("the first exception of a rank ends the others and is the one that is seen") {
  std::atomic<int> ended = 0;
  const std::string message = message_of(4, Error::Kind::data, [&](World& world) {
    if (world.rank() == 2) throw Error(Error::Kind::data, "row 7 is damaged");
    float value = 0.0F;
    try {
      world.all().all_reduce(&value, 1, DType::float32, ReduceKind::sum, "loss");
    } catch (const Error& error) {
      const std::string_view text = error.what();
      check(error.kind == Error::Kind::rank_lost && text.starts_with("all_reduce of loss: ") &&
                text.find("rank 2 ended the job") != text.npos,
            "what the others see");
      ++ended;
      throw;
    }
  });
  CHECK(message == "row 7 is damaged");
  CHECK(ended == 3);
}

TEST_CASE("a rank that ends the job by abort gives its status and message") {
  const std::string message = message_of(2, Error::Kind::weights, [](World& world) {
    if (world.rank() == 1) world.abort(4, "weights do not fit");
    world.all().barrier();
  });
  CHECK(message == "weights do not fit");
}

TEST_CASE("the cause is seen even where it is caught last") {
  const auto body = [](World& world) {
    try {
      if (world.rank() == 0) world.abort(3, "the file is damaged");
      world.all().barrier();
    } catch (const Error& error) {
      // The others fail, and are caught, while this rank is still on its way out.
      if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      throw;
    }
  };
  CHECK(message_of(3, Error::Kind::data, body) == "the file is damaged");
}

/// An operation of several steps, each of which takes a while.
class Slow final : public QueuedCommunicator {
 public:
  explicit Slow(Watchdog& watchdog) : QueuedCommunicator(0, {0, 1}, watchdog, false) {}

 private:
  bool advance(Operation& operation) override { return ++operation.position == 50; }
  std::vector<int> missing(const Operation& /*operation*/) const override { return {}; }
};

TEST_CASE("a long operation that makes progress is no silence") {
  Watchdog watchdog(nullptr, 0, {0});
  Slow communicator(watchdog);
  communicator.wait(communicator.start_all_reduce(nullptr, 1, DType::float32, ReduceKind::sum, ""));
  CHECK(watchdog.beats() >= 49);
}

TEST_CASE("a rank that does not come is named when the watchdog's time is over") {
  const std::string message = message_of(3, Error::Kind::rank_lost, [](World& world) {
    world.watchdog().set_seconds(1.0);
    float value = 0.0F;
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1800));
    world.all().all_reduce(&value, 1, DType::float32, ReduceKind::sum, "dense/bias");
  });
  CHECK_THAT(message, Catch::Contains("all_reduce of dense/bias") &&
                          Catch::Contains("rank 1 did not arrive within 1 s"));
}

TEST_CASE("a rank that finished while others still wait is named at once") {
  const auto begin = std::chrono::steady_clock::now();
  const std::string message = message_of(2, Error::Kind::rank_lost, [](World& world) {
    if (world.rank() == 1) return;
    world.all().barrier();
  });
  CHECK_THAT(message, Catch::Contains("rank 1 had already finished"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("texts of all ranks arrive in order, empty ones too") {
  run_as_threads(4, [](World& world) {
    const std::string text(static_cast<std::size_t>(world.rank() * 3000), 'x');
    const std::vector<std::string> texts = gather_texts(world.all(), text);
    check(texts.size() == 4, "one text a rank");
    for (std::size_t i = 0; i < texts.size(); ++i) check(texts[i].size() == i * 3000, "text");
  });
}

TEST_CASE("wrong arguments are refused before anything is exchanged") {
  run_as_threads(1, [](World& world) {
    float value[2] = {};
    const std::vector<std::int64_t> two(2, 1);
    CHECK_THROWS_AS(world.all().start_all_gather(value, value, two, DType::float32, ""), Error);
    CHECK_THROWS_AS(world.all().start_broadcast(value, 1, DType::float32, 1, ""), Error);
    CHECK_THROWS_AS(world.all().start_all_reduce(value, -1, DType::float32, ReduceKind::sum, ""),
                    Error);
    CHECK_THROWS_AS(world.all().wait(1000), Error);
    const std::vector<int> other{1};
    CHECK_THROWS_AS(world.group(other), Error);
  });
}

TEST_CASE("slots hold whole cache lines for every member and stay below the limit") {
  for (const int members : {1, 2, 3, 7, 64, 256}) {
    for (const std::int64_t wanted : {std::int64_t{1}, Segment::kSlotBytes}) {
      const std::int64_t slot = Segment::slot_bytes_for(members, wanted);
      CHECK(slot % (std::int64_t{128} * members) == 0);
      CHECK(slot >= std::int64_t{128} * members);
      CHECK((slot == std::int64_t{128} * members || slot * members <= Segment::kMostBytes));
    }
  }
}

TEST_CASE("shared memory objects are seen by others until unlinked, and refused when too large") {
  std::optional<SharedBytes> made = SharedBytes::create(10'000);
  REQUIRE(made);
  const std::optional<SharedBytes> opened = SharedBytes::open(made->name(), 10'000);
  REQUIRE(opened);
  made->data()[9'999] = std::byte{42};
  CHECK(opened->data()[9'999] == std::byte{42});
  CHECK(opened->data()[0] == std::byte{0});
  const std::string name = made->name();
  made->unlink();
  CHECK_FALSE(SharedBytes::open(name, 10'000));
  CHECK_FALSE(SharedBytes::create(std::size_t{1} << 60U));
}

}  // namespace
}  // namespace tessera::comm
