// JSON with positions: what a config, a layout map or a model file holds and where each part of it
// stands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tessera::json {

/// Counts from 1; columns in characters (not bytes). line 0: not in a file (a --set value, a
/// default).
struct Position {
  int line = 0;
  int column = 0;
};

/// One problem in an input. Printed as "file:line:column: error: path: message" (parts that are
/// empty are left out).
struct Problem {
  std::string file;
  Position at;
  std::string path;
  std::string message;
};
std::string to_string(const Problem& problem);

/// Path of a member or an item: "fit.epochs", "callbacks[0]", `layout_map[".*kernel"]` where a key
/// is no plain word.
std::string child_path(std::string_view parent, std::string_view key);
std::string child_path(std::string_view parent, std::size_t index);

/// Control characters and damaged UTF-8 as \xNN, so that a name from a file cannot steer the
/// terminal.
std::string printable(std::string_view text);

/// Collects independent problems so that all of them are shown together.
class Problems {
 public:
  void add(Problem problem) { list_.push_back(std::move(problem)); }
  bool empty() const { return list_.empty(); }
  const std::vector<Problem>& list() const { return list_; }
  /// Throws one Error with a line per problem, in order of position, when there are any.
  void throw_if_any(Error::Kind kind = Error::Kind::config) const;

 private:
  std::vector<Problem> list_;
};

enum class Kind : std::uint8_t { null, boolean, integer, number, string, array, object };

struct Member;

/// One JSON value. Members keep the order of the text. Integers that do not fit into int64 are
/// reported when parsed.
struct Value {
  Kind kind = Kind::null;
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0.0;  // also set for integers
  std::string string;
  std::vector<Value> array;
  std::vector<Member> object;
  Position position;
  std::shared_ptr<const std::string>
      file;  // shown name of the text that holds it; "--set a.b" for overrides

  bool is_null() const { return kind == Kind::null; }
  bool is_string() const { return kind == Kind::string; }
  bool is_number() const { return kind == Kind::number || kind == Kind::integer; }
  bool is_object() const { return kind == Kind::object; }
  bool is_array() const { return kind == Kind::array; }
  /// The member called `key`, or nullptr (also where this is no object).
  const Value* find(std::string_view key) const;
  const Member* find_member(std::string_view key) const;
};

struct Member {
  std::string key;
  Position key_position;
  Value value;
};

/// What is accepted before memory is spent on it.
struct Limits {
  std::size_t bytes = std::size_t{256} << 20U;
  int depth = 64;
  std::size_t string_bytes = std::size_t{16} << 20U;
  std::size_t values = std::size_t{8}
                       << 20U;  // one takes some 150 bytes of memory, and two of text
};

/// Parses a whole text: UTF-8, optional byte order mark, `//` and `/* */` comments. Syntax errors,
/// duplicate keys, integers and floats out of range, NaN literals, too deep nesting are added to
/// `problems`; the result then holds what could be read.
Value parse(std::string_view text, std::string file_name, Problems& problems,
            const Limits& limits = {});

/// Writes a value as JSON: members in order, floats with `digits` significant digits, non-finite
/// numbers as null. indent < 0: one line.
std::string dump(const Value& value, int indent = 2, int digits = 9);

Value make_null();
Value make(bool value);
Value make(std::int64_t value);
Value make(double value);
Value make(std::string value);
Value make(const char* value);
Value make_array(std::vector<Value> items = {});
Value make_object(std::vector<std::pair<std::string, Value>> members = {});

/// The candidate nearest to `word` (Damerau-Levenshtein distance at most 2, or a third of its
/// length, or a shared prefix); "" if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// "; did you mean "x"?" where a candidate is near, else "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

/// The whole file as bytes. Throws `kind` with the path and the reason.
std::string read_text_file(const std::string& path, Error::Kind kind,
                           std::size_t limit = std::size_t{256} << 20U);

}  // namespace tessera::json
