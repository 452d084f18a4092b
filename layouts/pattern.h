// Regular expressions of layout maps: RE2, with hints where Python's expressions differ.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::layouts {

/// A compiled key of a layout map. Immutable; copies share the compiled form; thread-safe.
class Pattern {
 public:
  /// Throws config with the pattern, the reason and, where the construct is Python's, what to write
  /// instead. `x{,3}` is refused: Python repeats up to 3 times, RE2 would take it literally.
  explicit Pattern(std::string_view text);

  /// Matches the whole path.
  bool matches_all_of(std::string_view path) const;
  /// Matches some part of the path.
  bool matches_part_of(std::string_view path) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

/// What Python's `re` accepts and RE2 does not, with advice; nullopt when nothing of that kind is
/// seen.
std::optional<std::string> python_only_construct(std::string_view pattern);

}  // namespace tessera::layouts
