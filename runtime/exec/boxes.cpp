// Overlaps and copies.
#include "runtime/exec/boxes.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace tessera::exec {

Box whole(const Shape& shape) {
  Box box{shape, shape};
  for (std::size_t dim = 0; dim < shape.rank(); ++dim) box.begin[dim] = 0;
  return box;
}

Box overlap(const Box& a, const Box& b) {
  Box common = a;
  for (std::size_t dim = 0; dim < a.size.rank(); ++dim) {
    const std::int64_t begin = std::max(a.begin[dim], b.begin[dim]);
    const std::int64_t end = std::min(a.begin[dim] + a.size[dim], b.begin[dim] + b.size[dim]);
    common.begin[dim] = begin;
    common.size[dim] = std::max(end - begin, std::int64_t{0});
  }
  return common;
}

void copy_region(const std::byte* from, const Box& from_box, std::byte* to, const Box& to_box,
                 const Box& region, std::int64_t element_bytes) {
  struct Run {
    std::int64_t offset, place, count;
  };
  std::vector<Run> sources;
  for_each_run(from_box, region, [&](std::int64_t offset, std::int64_t place, std::int64_t count) {
    sources.push_back({offset, place, count});
  });
  // Runs of both sides cover the region in the same order; each piece ends where either run ends.
  std::size_t at = 0;
  for_each_run(to_box, region, [&](std::int64_t offset, std::int64_t place, std::int64_t count) {
    for (std::int64_t done = 0; done < count;) {
      const Run& source = sources[at];
      const std::int64_t skip = place + done - source.place;
      const std::int64_t now = std::min(count - done, source.count - skip);
      std::memcpy(to + (offset + done) * element_bytes,
                  from + (source.offset + skip) * element_bytes,
                  static_cast<std::size_t>(now * element_bytes));
      done += now;
      if (skip + now == source.count) ++at;
    }
  });
}

}  // namespace tessera::exec
