// The JSON parser: nlohmann's SAX events, turned into values that know where they stand.
#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace tessera::json {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Values of other languages, and what JSON has instead.
constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kForeignWords{{
    {"NaN", "a finite number"},
    {"nan", "a finite number"},
    {"-NaN", "a finite number"},
    {"-nan", "a finite number"},
    {"Infinity", "a finite number"},
    {"-Infinity", "a finite number"},
    {"inf", "a finite number"},
    {"-inf", "a finite number"},
    {"True", "true"},
    {"False", "false"},
    {"None", "null"},
    {"nil", "null"},
    {"undefined", "null"},
}};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '+' || c == '-' || c == '.';
}

/// Reads the text and tells how far the lexer has come: the SAX interface does not.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  const char& operator*() const { return *at_; }
  CountingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator old = *this;
    ++*this;
    return old;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ == b.at_;
  }

 private:
  const char* at_;
  const char** reached_;
};

/// Turns growing offsets into lines and columns, each byte looked at once.
class Locator {
 public:
  explicit Locator(std::string_view text) : text_(text) {}

  Position at(std::size_t offset) {
    if (offset < offset_) {
      offset_ = 0;
      position_ = {1, 1};
    }
    for (; offset_ < offset && offset_ < text_.size(); ++offset_) {
      const auto byte = static_cast<unsigned char>(text_[offset_]);
      if (byte == '\n') {
        ++position_.line;
        position_.column = 1;
      } else if ((byte & 0xC0U) != 0x80U) {  // not inside a character of several bytes
        ++position_.column;
      }
    }
    return position_;
  }

 private:
  std::string_view text_;
  std::size_t offset_ = 0;
  Position position_{1, 1};
};

/// An array or object that is not closed yet, and the member that is being read.
struct Open {
  Value value;
  std::string key;
  Position key_position;
  bool drop_member = false;  // a duplicate: read, reported and forgotten
  std::unordered_map<std::string, Position> keys;
};

class Handler {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  Handler(std::string_view text, std::string file_name, Problems& problems, const Limits& limits)
      : text_(text),
        reached_(text.data()),
        file_(std::make_shared<const std::string>(std::move(file_name))),
        problems_(problems),
        limits_(limits),
        locator_(text) {}

  Value run() {
    const char* const end = text_.data() + text_.size();
    nlohmann::json::sax_parse(CountingIterator(text_.data(), &reached_),
                              CountingIterator(end, &reached_), this,
                              nlohmann::json::input_format_t::json, true, true);
    while (!open_.empty()) close();  // after an error: keep what has been read
    return std::move(root_);
  }

  void report(std::size_t offset, std::string path, std::string message) {
    problems_.add({*file_, locator_.at(offset), std::move(path), std::move(message)});
  }

  bool null() { return add(scalar(Kind::null, reached() - 4)); }
  bool boolean(bool value) {
    Value result = scalar(Kind::boolean, reached() - (value ? 4 : 5));
    result.boolean = value;
    return add(std::move(result));
  }
  bool number_integer(number_integer_t value) {
    Value result = scalar(Kind::integer, number_start());
    result.integer = value;
    result.number = static_cast<double>(value);
    return add(std::move(result));
  }
  bool number_unsigned(number_unsigned_t value) {
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return number_integer(static_cast<number_integer_t>(value));
    }
    return large_integer(static_cast<double>(value), fmt::to_string(value));
  }
  bool number_float(number_float_t value, const string_t& token) {
    // The lexer hands integers beyond 64 bits over as floats.
    if (token.find_first_of(".eE") == string_t::npos) return large_integer(value, token);
    Value result = scalar(Kind::number, number_start());
    result.number = value;
    return add(std::move(result));
  }
  bool string(string_t& value) {
    const std::size_t start = string_start();
    if (!check_length(start, value)) return false;
    Value result = scalar(Kind::string, start);
    result.string = std::move(value);
    return add(std::move(result));
  }
  bool binary(binary_t&) { return false; }  // no part of JSON text

  bool start_object(std::size_t) { return open(Kind::object); }
  bool start_array(std::size_t) { return open(Kind::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(string_t& name) {
    const std::size_t start = string_start();
    if (!check_length(start, name)) return false;
    Open& object = open_.back();
    object.key_position = locator_.at(start);
    const auto [first, is_new] = object.keys.emplace(name, object.key_position);
    object.key = std::move(name);
    object.drop_member = !is_new;
    if (!is_new) {
      report(start, path(),
             fmt::format("duplicate key \"{}\"; it stands at line {}, column {} already",
                         object.key, first->second.line, first->second.column));
    }
    return true;
  }

  bool parse_error(std::size_t, const std::string& token, const nlohmann::json::exception& error);

 private:
  std::size_t reached() const { return static_cast<std::size_t>(reached_ - text_.data()); }

  /// A number ends where the lexer has looked at one character more, or at the end of the text.
  std::size_t number_start() const {
    std::size_t end = reached();
    if (end > 0 && (!is_word(text_[end - 1]))) --end;
    while (end > 0 && is_word(text_[end - 1])) --end;
    return end;
  }

  /// Opening quote of the string whose closing quote was read last: the one that is not escaped.
  std::size_t string_start() const {
    std::size_t quote = reached() - 1;
    while (quote > 0) {
      --quote;
      if (text_[quote] != '"') continue;
      std::size_t escapes = 0;
      while (quote > escapes && text_[quote - 1 - escapes] == '\\') ++escapes;
      if (escapes % 2 == 0) break;
    }
    return quote;
  }

  Value scalar(Kind kind, std::size_t offset) {
    Value value;
    value.kind = kind;
    value.position = locator_.at(offset);
    value.file = file_;
    return value;
  }

  bool large_integer(double value, const std::string& token) {
    Value result = scalar(Kind::number, number_start());
    result.number = value;
    report(number_start(), path(),
           fmt::format("integer {} is out of range: expected {} to {}", token.substr(0, 64),
                       std::numeric_limits<std::int64_t>::min(),
                       std::numeric_limits<std::int64_t>::max()));
    return add(std::move(result));
  }

  bool check_length(std::size_t start, const std::string& value) {
    if (value.size() <= limits_.string_bytes) return true;
    report(start, path(),
           fmt::format("a string of {} bytes is longer than the limit of {}", value.size(),
                       limits_.string_bytes));
    return false;
  }

  bool count_value() {
    if (++values_ <= limits_.values) return true;
    report(reached() - 1, path(), fmt::format("more than {} values in one text", limits_.values));
    return false;
  }

  bool add(Value value) {
    if (!count_value()) return false;
    attach(std::move(value));
    return true;
  }

  void attach(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Open& parent = open_.back();
    if (parent.value.kind == Kind::array) {
      parent.value.array.push_back(std::move(value));
    } else if (!parent.drop_member) {
      parent.value.object.push_back({std::move(parent.key), parent.key_position, std::move(value)});
    }
  }

  bool open(Kind kind) {
    if (!count_value()) return false;
    if (open_.size() >= static_cast<std::size_t>(limits_.depth)) {
      report(reached() - 1, path(),
             fmt::format("nested deeper than the limit of {} levels", limits_.depth));
      return false;
    }
    Open next;
    next.value = scalar(kind, reached() - 1);
    open_.push_back(std::move(next));
    return true;
  }

  bool close() {
    Value value = std::move(open_.back().value);
    open_.pop_back();
    attach(std::move(value));
    return true;
  }

  /// Path of the innermost open object's current member.
  std::string path() const {
    std::string text;
    for (const Open& level : open_) {
      text = level.value.kind == Kind::array ? child_path(text, level.value.array.size())
                                             : child_path(text, level.key);
    }
    return text;
  }

  bool explain_word(std::size_t offset);
  bool explain_comma(std::size_t offset);

  std::string_view text_;
  const char* reached_;
  std::shared_ptr<const std::string> file_;
  Problems& problems_;
  const Limits& limits_;
  Locator locator_;
  std::vector<Open> open_;
  Value root_;
  std::size_t values_ = 0;
};

/// Words of other languages where a JSON value belongs.
bool Handler::explain_word(std::size_t offset) {
  std::size_t begin = offset;
  while (begin > 0 && is_word(text_[begin - 1])) --begin;
  std::size_t end = begin;
  while (end < text_.size() && is_word(text_[end])) ++end;
  const std::string_view word = text_.substr(begin, end - begin);
  for (const auto& [name, expected] : kForeignWords) {
    if (word != name) continue;
    report(begin, path(), fmt::format("{} is not JSON: expected {}", word, expected));
    return true;
  }
  return false;
}

bool Handler::explain_comma(std::size_t offset) {
  const char closing = offset < text_.size() ? text_[offset] : ' ';
  if (closing != '}' && closing != ']') return false;
  std::size_t before = offset;
  while (before > 0 && is_space(text_[before - 1])) --before;
  if (before == 0 || text_[before - 1] != ',') return false;
  report(before - 1, "",
         fmt::format("a comma stands before the closing '{}': expected another {}", closing,
                     closing == '}' ? "member" : "value"));
  return true;
}

bool Handler::parse_error(std::size_t, const std::string& token,
                          const nlohmann::json::exception& error) {
  std::string_view what = error.what();
  std::size_t offset = reached() == 0 ? 0 : reached() - 1;
  if (offset < text_.size() && text_[offset] == '\'' &&
      what.find("invalid literal") != std::string_view::npos) {
    report(offset, "", "a quote ' begins no JSON value: strings stand between double quotes");
    return false;
  }
  if (error.id == 406) {  // a float beyond double
    report(number_start(), path(),
           fmt::format("number {} is out of range: expected a magnitude up to {}",
                       token.substr(0, 64), std::numeric_limits<double>::max()));
    return false;
  }
  const bool at_end = what.find("unexpected end of input") != std::string_view::npos;
  if (at_end) {
    offset = text_.size();
  } else {
    if (explain_word(offset)) return false;
    if (what.find("unexpected string literal") != std::string_view::npos) offset = string_start();
    if (what.find("unexpected number literal") != std::string_view::npos) {
      const bool looked_on = !is_word(text_[offset]) || reached() < text_.size();
      offset = reached() - (looked_on ? 1 : 0) - token.size();
    }
    if (what.find("unexpected true") != std::string_view::npos ||
        what.find("unexpected null") != std::string_view::npos) {
      offset = reached() - 4;
    }
    if (what.find("unexpected false") != std::string_view::npos) offset = reached() - 5;
    if (explain_comma(offset)) return false;
  }
  // "[json.exception...] parse error at line 1, column 2: syntax error while parsing value -
  // MESSAGE"
  what = what.substr(0, what.find("; last read: "));
  if (const auto dash = what.find(" - "); dash != std::string_view::npos) {
    what = what.substr(dash + 3);
  }
  report(offset, "", fmt::format("syntax error: {}", what));
  return false;
}

}  // namespace

Value parse(std::string_view text, std::string file_name, Problems& problems,
            const Limits& limits) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  Handler handler(text, std::move(file_name), problems, limits);
  if (text.size() > limits.bytes) {
    handler.report(0, "",
                   fmt::format("a text of {} bytes is larger than the limit of {}", text.size(),
                               limits.bytes));
    return {};
  }
  if (std::all_of(text.begin(), text.end(), is_space)) {
    handler.report(0, "", "the text is empty: expected a JSON value");
    return {};
  }
  if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
    handler.report(zero, "",
                   "a zero byte in a JSON text");  // the library would end there, silently
    return {};
  }
  return handler.run();
}

}  // namespace tessera::json
