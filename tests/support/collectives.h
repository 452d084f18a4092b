// Runs every collective of a group on integer-valued data and compares with what it must give,
// exactly.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "comm/communicator.h"

namespace tessera::testing {

inline constexpr DType kAllDTypes[] = {DType::float32, DType::float64, DType::bfloat16,
                                       DType::float16, DType::int32,   DType::int64,
                                       DType::uint8,   DType::boolean};

/// Each throws internal with the collective, sizes and the first wrong element; all members call it
/// with the same arguments.
void check_all_reduce(comm::Communicator& group, DType dtype, comm::ReduceKind kind,
                      std::int64_t count);
/// One count a member; also where the own part already lies in its place.
void check_all_gather(comm::Communicator& group, DType dtype,
                      const std::vector<std::int64_t>& counts);
void check_reduce_scatter(comm::Communicator& group, DType dtype,
                          const std::vector<std::int64_t>& counts);
/// Member i sends (i * 3 + j * 5) mod 4 times `unit` elements to member j: uneven, some empty.
void check_all_to_all(comm::Communicator& group, DType dtype, std::int64_t unit);
void check_broadcast(comm::Communicator& group, DType dtype, std::int64_t count, int root);
/// Values whose sum depends on the order: the result must be that from left to right, bit by bit.
void check_order(comm::Communicator& group, std::int64_t count);
/// Many operations in flight at once, waited for in another order.
void check_in_flight(comm::Communicator& group, std::int64_t count);

/// All of them over dtypes and sizes: empty, one, odd, around the limits of small messages and of
/// pieces.
void check_everything(comm::Communicator& group, const std::vector<std::int64_t>& sizes,
                      std::span<const DType> dtypes = kAllDTypes);

}  // namespace tessera::testing
