// Disjoint pieces of several buffers, found by what they meet.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace tessera::compile {

/// Bytes begin..end-1 of one buffer. `Buffer` is ordered.
template <class Buffer>
struct Range {
  Buffer buffer{};
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool empty() const { return begin == end; }
  /// An empty range meets nothing.
  bool meets(const Range& other) const {
    return buffer == other.buffer && std::max(begin, other.begin) < std::min(end, other.end);
  }
};

/// A content for each of many ranges that are not empty and do not meet each other. What is asked
/// takes logarithmic time, and time for what is found.
template <class Buffer, class Content>
class Intervals {
 public:
  struct Piece {
    std::int64_t end = 0;
    Content content{};
  };
  using Map = std::map<std::pair<Buffer, std::int64_t>, Piece>;
  using Iterator = typename Map::iterator;

  /// The pieces that meet `range`, as [first, last).
  std::pair<Iterator, Iterator> meeting(const Range<Buffer>& range) {
    if (range.empty()) return {pieces_.end(), pieces_.end()};
    auto first = pieces_.lower_bound({range.buffer, range.begin});
    if (first != pieces_.begin()) {
      const auto before = std::prev(first);
      if (before->first.first == range.buffer && before->second.end > range.begin) first = before;
    }
    return {first, pieces_.lower_bound({range.buffer, range.end})};
  }
  /// Nothing in the map meets `range`.
  Content& add(const Range<Buffer>& range, Content content) {
    Piece& piece = pieces_[{range.buffer, range.begin}];
    piece = {range.end, std::move(content)};
    return piece.content;
  }
  void erase(Iterator first, Iterator last) { pieces_.erase(first, last); }
  void erase(Iterator piece) { pieces_.erase(piece); }

 private:
  Map pieces_;
};

}  // namespace tessera::compile
