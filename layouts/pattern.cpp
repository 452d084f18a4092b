// Compiling patterns with RE2 and explaining what it refuses.
#include "layouts/pattern.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include "base/error.h"

namespace tessera::layouts {

struct Pattern::Compiled {
  explicit Compiled(std::string_view text)
      : regex(re2::StringPiece(text.data(), text.size()), options()) {}

  static RE2::Options options() {
    RE2::Options options;
    options.set_log_errors(false);  // else it writes to standard error by itself
    return options;
  }

  RE2 regex;
};

namespace {

struct Construct {
  std::string_view begin;
  std::string_view advice;
};

constexpr Construct kGroups[] = {
    {"(?=", "uses look-ahead (?=...); spell out what the path must be"},
    {"(?!", "uses look-ahead (?!...); name the wanted paths instead of excluding others"},
    {"(?<=", "uses look-behind (?<=...); match the text before as well"},
    {"(?<!", "uses look-behind (?<!...); name the wanted paths instead of excluding others"},
    {"(?P=", "refers back to a named group (?P=...); repeat the text"},
    {"(?>", "uses an atomic group (?>...); write (?:...)"},
    {"(?#", "holds a comment (?#...); leave it out"},
    {"(?(", "uses a conditional group (?(...)...|...); write two rules"},
};

/// Length of "{n}", "{n,}", "{n,m}" or "{,m}" at the front of `text`; 0 where it is none.
std::size_t repetition_length(std::string_view text) {
  std::size_t i = 1;
  while (i < text.size() && (text[i] == ',' || (text[i] >= '0' && text[i] <= '9'))) ++i;
  return i > 1 && i < text.size() && text[i] == '}' ? i + 1 : 0;
}

std::size_t class_length(std::string_view text) {
  std::size_t i = 1;
  if (i < text.size() && text[i] == '^') ++i;
  if (i < text.size() && text[i] == ']') ++i;  // a bracket that comes first stands for itself
  while (i < text.size() && text[i] != ']') i += text[i] == '\\' ? 2 : 1;
  return std::min(i + 1, text.size());
}

std::optional<std::string> explain_group(std::string_view text) {
  for (const Construct& group : kGroups) {
    if (text.starts_with(group.begin)) return std::string(group.advice);
  }
  if (!text.starts_with("(?")) return std::nullopt;
  for (const char c : text.substr(2)) {
    if (c == 'a' || c == 'L' || c == 'u' || c == 'x') {
      return fmt::format("sets the flag {} by (?...); leave it out", c);
    }
    if (c != 'i' && c != 'm' && c != 's' && c != '-') break;
  }
  return std::nullopt;
}

std::optional<std::string> explain_escape(char c) {
  if (c >= '1' && c <= '9')
    return fmt::format("refers back to a group by \\{}; repeat the text", c);
  if (c == 'Z') return "uses \\Z; leave it out, or write \\z";
  if (c == 'u' || c == 'U' || c == 'N') {
    return fmt::format("uses \\{}...; write the character itself, or \\x{{...}}", c);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> python_only_construct(std::string_view pattern) {
  bool after_quantifier = false;
  for (std::size_t i = 0; i < pattern.size();) {
    const std::string_view rest = pattern.substr(i);
    const char c = rest.front();
    bool quantifier = false;
    std::size_t length = 1;
    std::optional<std::string> found;
    if (c == '\\') {
      length = 2;
      if (rest.size() > 1) found = explain_escape(rest[1]);
    } else if (c == '[') {
      length = class_length(rest);
    } else if (c == '(') {
      found = explain_group(rest);
    } else if (c == '{' && repetition_length(rest) > 0) {
      length = repetition_length(rest);
      quantifier = true;
      if (rest[1] == ',') {
        found = fmt::format("repeats by {}, which RE2 takes literally; write {{0{}",
                            rest.substr(0, length), rest.substr(1, length - 1));
      }
    } else if (c == '*' || c == '+' || c == '?') {
      if (c == '+' && after_quantifier)
        found = "uses a possessive quantifier (++, *+, ?+); leave out its +";
      quantifier = !after_quantifier;  // a second ? only makes the first lazy
    }
    if (found) return found;
    after_quantifier = quantifier;
    i += length;
  }
  return std::nullopt;
}

Pattern::Pattern(std::string_view text) {
  if (const auto found = python_only_construct(text)) {
    throw Error(Error::Kind::config,
                fmt::format("pattern \"{}\" {} (patterns are RE2's, not Python's)", text, *found));
  }
  compiled_ = std::make_shared<const Compiled>(text);
  if (!compiled_->regex.ok()) {
    const std::string hint = compiled_->regex.error_code() == RE2::ErrorRepeatSize
                                 ? "; RE2 repeats at most 1000 times"
                                 : "";
    throw Error(Error::Kind::config, fmt::format("\"{}\" is no regular expression of RE2: {}{}",
                                                 text, compiled_->regex.error(), hint));
  }
}

bool Pattern::matches_all_of(std::string_view path) const {
  return RE2::FullMatch(re2::StringPiece(path.data(), path.size()), compiled_->regex);
}

bool Pattern::matches_part_of(std::string_view path) const {
  return RE2::PartialMatch(re2::StringPiece(path.data(), path.size()), compiled_->regex);
}

}  // namespace tessera::layouts
