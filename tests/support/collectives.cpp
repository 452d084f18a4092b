// Expected results are computed from the formula of the data, not from other collectives.
#include "tests/support/collectives.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "base/error.h"
#include "tests/support/buffer.h"

namespace tessera::testing {
namespace {

using comm::Communicator;
using comm::ReduceKind;

/// Small enough that sums over 8 ranks are exact in bfloat16 and fit into uint8.
double term(DType dtype, std::int64_t rank, std::int64_t index) {
  if (dtype == DType::boolean) return static_cast<double>((rank * 5 + index * 3) % 7 == 0);
  const auto value = static_cast<double>((rank * 7 + index * 3) % 11);
  return dtype == DType::uint8 ? value : value - 5.0;
}

double combined(DType dtype, ReduceKind kind, int ranks, std::int64_t index) {
  double result = term(dtype, 0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    const double next = term(dtype, rank, index);
    if (kind == ReduceKind::max || dtype == DType::boolean) {
      result = kind == ReduceKind::min ? std::min(result, next) : std::max(result, next);
    } else {
      result = kind == ReduceKind::min ? std::min(result, next) : result + next;
    }
  }
  return result;
}

void compare(const Buffer& buffer, const std::vector<double>& expected, const std::string& what) {
  const std::vector<double> values = buffer.get();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (values[i] == expected[i]) continue;
    throw Error(Error::Kind::internal, what + " of " + std::to_string(expected.size()) + " " +
                                           std::string(name_of(buffer.dtype())) + ": element " +
                                           std::to_string(i) + " is " + std::to_string(values[i]) +
                                           ", expected " + std::to_string(expected[i]));
  }
}

/// Elements that no rank may touch lie behind the result.
constexpr std::int64_t kGuard = 3;

Buffer guarded(DType dtype, std::int64_t count) { return Buffer(dtype, count + kGuard); }

std::vector<double> with_guard(std::vector<double> values) {
  values.resize(values.size() + kGuard, 0.0);
  return values;
}

std::int64_t total(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::int64_t sent(std::int64_t from, std::int64_t to, std::int64_t unit) {
  return (from * 3 + to * 5) % 4 * unit;
}

}  // namespace

void check_all_reduce(Communicator& group, DType dtype, ReduceKind kind, std::int64_t count) {
  Buffer data = guarded(dtype, count);
  std::vector<double> mine;
  std::vector<double> expected;
  for (std::int64_t i = 0; i < count; ++i) {
    mine.push_back(term(dtype, group.rank(), i));
    expected.push_back(combined(dtype, kind, group.size(), i));
  }
  data.set(with_guard(mine));
  group.all_reduce(data.data(), count, dtype, kind, "sums");
  compare(data, with_guard(expected), "all_reduce");
}

void check_all_gather(Communicator& group, DType dtype, const std::vector<std::int64_t>& counts) {
  const std::int64_t mine = counts[static_cast<std::size_t>(group.rank())];
  std::vector<double> expected;
  for (std::size_t member = 0; member < counts.size(); ++member) {
    for (std::int64_t i = 0; i < counts[member]; ++i) {
      expected.push_back(term(dtype, static_cast<std::int64_t>(member), i));
    }
  }
  std::vector<double> own;
  for (std::int64_t i = 0; i < mine; ++i) own.push_back(term(dtype, group.rank(), i));
  Buffer send(dtype, mine);
  send.set(own);
  Buffer receive = guarded(dtype, total(counts));
  group.wait(group.start_all_gather(send.data(), receive.data(), counts, dtype, "parts"));
  compare(receive, with_guard(expected), "all_gather");

  Buffer in_place = guarded(dtype, total(counts));
  std::int64_t offset = 0;
  for (int member = 0; member < group.rank(); ++member) {
    offset += counts[static_cast<std::size_t>(member)];
  }
  std::byte* place =
      static_cast<std::byte*>(in_place.data()) + static_cast<std::size_t>(offset) * size_of(dtype);
  if (mine > 0) std::memcpy(place, send.data(), send.bytes());
  group.wait(group.start_all_gather(place, in_place.data(), counts, dtype, "parts"));
  compare(in_place, with_guard(expected), "all_gather in place");
}

void check_reduce_scatter(Communicator& group, DType dtype,
                          const std::vector<std::int64_t>& counts) {
  std::vector<double> mine;
  std::vector<double> sums;
  for (std::int64_t i = 0; i < total(counts); ++i) {
    mine.push_back(term(dtype, group.rank(), i));
    sums.push_back(combined(dtype, ReduceKind::sum, group.size(), i));
  }
  const auto begin = sums.begin() + std::accumulate(counts.begin(), counts.begin() + group.rank(),
                                                    std::int64_t{0});
  const std::int64_t count = counts[static_cast<std::size_t>(group.rank())];
  Buffer send(dtype, total(counts));
  send.set(mine);
  Buffer receive = guarded(dtype, count);
  group.wait(group.start_reduce_scatter(send.data(), receive.data(), counts, dtype, "sums"));
  compare(receive, with_guard({begin, begin + count}), "reduce_scatter");
  compare(send, mine, "reduce_scatter: what was sent");
}

void check_all_to_all(Communicator& group, DType dtype, std::int64_t unit) {
  std::vector<std::int64_t> send_counts;
  std::vector<std::int64_t> receive_counts;
  std::vector<double> mine;
  std::vector<double> expected;
  for (std::int64_t member = 0; member < group.size(); ++member) {
    send_counts.push_back(sent(group.rank(), member, unit));
    receive_counts.push_back(sent(member, group.rank(), unit));
    for (std::int64_t i = 0; i < send_counts.back(); ++i) {
      mine.push_back(term(dtype, group.rank() + 2 * member, i));
    }
    for (std::int64_t i = 0; i < receive_counts.back(); ++i) {
      expected.push_back(term(dtype, member + 2 * group.rank(), i));
    }
  }
  Buffer send(dtype, total(send_counts));
  send.set(mine);
  Buffer receive = guarded(dtype, total(receive_counts));
  group.wait(group.start_all_to_all(send.data(), send_counts, receive.data(), receive_counts, dtype,
                                    "parts"));
  compare(receive, with_guard(expected), "all_to_all");
}

void check_broadcast(Communicator& group, DType dtype, std::int64_t count, int root) {
  std::vector<double> mine;
  std::vector<double> expected;
  for (std::int64_t i = 0; i < count; ++i) {
    mine.push_back(term(dtype, group.rank(), i));
    expected.push_back(term(dtype, root, i));
  }
  Buffer data = guarded(dtype, count);
  data.set(with_guard(mine));
  group.broadcast(data.data(), count, dtype, root, "value");
  compare(data, with_guard(expected), "broadcast");
}

void check_order(Communicator& group, std::int64_t count) {
  // Thirds and large numbers of both signs: nearly every order of additions rounds differently.
  const auto value = [](std::int64_t rank, std::int64_t i) {
    const auto sign = static_cast<float>((rank + i) % 2 == 0 ? 1 : -1);
    return sign * static_cast<float>(1 + (rank * 37 + i * 11) % 1009) *
           (rank % 3 == 0 ? 4096.0F : 1.0F / 3.0F);
  };
  std::vector<float> data(static_cast<std::size_t>(count));
  std::vector<float> expected(data.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    data[at] = value(group.rank(), i);
    expected[at] = value(0, i);
    for (int rank = 1; rank < group.size(); ++rank) expected[at] += value(rank, i);
  }
  group.all_reduce(data.data(), count, DType::float32, ReduceKind::sum, "sums");
  check(count == 0 || std::memcmp(data.data(), expected.data(), data.size() * sizeof(float)) == 0,
        "all_reduce: terms were not added in the order of the members");
}

void check_in_flight(Communicator& group, std::int64_t count) {
  constexpr int kOperations = 21;
  std::vector<std::vector<std::int32_t>> data;
  std::vector<comm::Request> requests;
  data.reserve(kOperations);
  for (int operation = 0; operation < kOperations; ++operation) {
    // Every third one is large, so that small ones queue behind it.
    data.emplace_back(static_cast<std::size_t>(operation % 3 == 0 ? count : 1 + operation),
                      group.rank() + operation);
    requests.push_back(group.start_all_reduce(data.back().data(),
                                              static_cast<std::int64_t>(data.back().size()),
                                              DType::int32, ReduceKind::sum, "in flight"));
    group.progress();
  }
  for (int operation = kOperations - 1; operation >= 0; operation -= 2) {
    group.wait(requests[static_cast<std::size_t>(operation)]);
  }
  for (const comm::Request request : requests) group.wait(request);
  for (int operation = 0; operation < kOperations; ++operation) {
    const int expected = group.size() * (group.size() - 1) / 2 + group.size() * operation;
    for (const std::int32_t value : data[static_cast<std::size_t>(operation)]) {
      check(value == expected, "all_reduce: wrong sum among many operations in flight");
    }
  }
}

void check_everything(Communicator& group, const std::vector<std::int64_t>& sizes,
                      std::span<const DType> dtypes) {
  const auto members = static_cast<std::size_t>(group.size());
  for (const std::int64_t size : sizes) {
    std::vector<std::int64_t> uneven(members);
    std::vector<std::int64_t> one_has_all(members, 0);
    for (std::size_t i = 0; i < members; ++i) {
      uneven[i] =
          (size + static_cast<std::int64_t>(i) * 5) / (1 + static_cast<std::int64_t>(i) % 3);
    }
    one_has_all.back() = size;
    for (const DType dtype : dtypes) {
      for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::max, ReduceKind::min}) {
        check_all_reduce(group, dtype, kind, size);
      }
      check_all_gather(group, dtype, uneven);
      check_all_gather(group, dtype, one_has_all);
      check_reduce_scatter(group, dtype, uneven);
      check_reduce_scatter(group, dtype, one_has_all);
      check_all_to_all(group, dtype, size);
      check_broadcast(group, dtype, size, group.size() - 1);
      group.barrier();
    }
    check_order(group, size);
    check_in_flight(group, size);
  }
}

}  // namespace tessera::testing
