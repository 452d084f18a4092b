// JSON values: how they are made, found, written and talked about.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/json.h"

namespace tessera::json {
namespace {

constexpr std::size_t kLongestName = 256;  // for edit distances, which take quadratic time

bool is_plain_key(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-' || c == '/' || c == '$';
  });
}

/// Bytes of the UTF-8 character at the front of `text`, or 0 where it is damaged.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80U) return 1;
  const std::size_t size = byte(0) >= 0xF0U ? 4 : byte(0) >= 0xE0U ? 3 : 2;
  if (byte(0) < 0xC2U || byte(0) > 0xF4U || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  if (byte(0) == 0xE0U && byte(1) < 0xA0U) return 0;  // overlong
  if (byte(0) == 0xEDU && byte(1) > 0x9FU) return 0;  // surrogates
  if (byte(0) == 0xF0U && byte(1) < 0x90U) return 0;  // overlong
  if (byte(0) == 0xF4U && byte(1) > 0x8FU) return 0;  // beyond U+10FFFF
  return size;
}

void write_string(std::string_view text, std::string& out) {
  out += '"';
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) {
      out += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20U || c == '\x7F') {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  out += '"';
}

void write_number(double number, int digits, std::string& out) {
  if (!std::isfinite(number)) {
    out += "null";
    return;
  }
  const std::string text = fmt::format("{:.{}g}", number, digits);
  out += text;
  // Stays a float when it is read again.
  if (text.find_first_of(".e") == std::string::npos) out += ".0";
}

class Writer {
 public:
  Writer(int indent, int digits, std::string& out) : indent_(indent), digits_(digits), out_(out) {}

  void write(const Value& value) {
    switch (value.kind) {
      case Kind::null:
        out_ += "null";
        return;
      case Kind::boolean:
        out_ += value.boolean ? "true" : "false";
        return;
      case Kind::integer:
        out_ += fmt::to_string(value.integer);
        return;
      case Kind::number:
        write_number(value.number, digits_, out_);
        return;
      case Kind::string:
        write_string(value.string, out_);
        return;
      case Kind::array:
        write_array(value.array);
        return;
      case Kind::object:
        write_object(value.object);
        return;
    }
  }

 private:
  static bool is_short(const Value& value) {
    return !value.is_object() && (!value.is_array() || value.array.empty());
  }

  void write_array(const std::vector<Value>& items) {
    // Arrays of plain values, and arrays of those (layouts), stay on one line.
    const bool flat =
        indent_ < 0 || std::all_of(items.begin(), items.end(), [](const Value& item) {
          return is_short(item) ||
                 (item.is_array() && std::all_of(item.array.begin(), item.array.end(), is_short));
        });
    out_ += '[';
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += flat ? ", " : ",";
      if (!flat) new_line();
      write(items[i]);
    }
    --level_;
    if (!flat) new_line();
    out_ += ']';
  }

  void write_object(const std::vector<Member>& members) {
    const bool flat = indent_ < 0 || members.empty();
    out_ += '{';
    ++level_;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i > 0) out_ += flat ? ", " : ",";
      if (!flat) new_line();
      write_string(members[i].key, out_);
      out_ += ": ";
      write(members[i].value);
    }
    --level_;
    if (!flat) new_line();
    out_ += '}';
  }

  void new_line() {
    out_ += '\n';
    out_.append(static_cast<std::size_t>(indent_) * static_cast<std::size_t>(level_), ' ');
  }

  int indent_;
  int digits_;
  int level_ = 0;
  std::string& out_;
};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

/// Insertions, deletions, substitutions and swaps of neighbours between two words.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

/// An open file that closes itself.
class File {
 public:
  explicit File(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const auto first = static_cast<unsigned char>(text.front());
    const bool control =
        first < 0x20U || first == 0x7FU ||
        (bytes == 2 && first == 0xC2U && static_cast<unsigned char>(text[1]) < 0xA0U);
    const std::size_t taken = std::max<std::size_t>(bytes, 1);
    for (const char c : text.substr(0, taken)) {
      if (control || bytes == 0) {
        result += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
      } else {
        result += c;
      }
    }
    text.remove_prefix(taken);
  }
  return result;
}

std::string child_path(std::string_view parent, std::string_view key) {
  if (!is_plain_key(key)) return fmt::format("{}[\"{}\"]", parent, key);
  return parent.empty() ? std::string(key) : fmt::format("{}.{}", parent, key);
}

std::string child_path(std::string_view parent, std::size_t index) {
  return fmt::format("{}[{}]", parent, index);
}

std::string to_string(const Problem& problem) {
  std::string text = problem.file;
  if (problem.at.line > 0) text += fmt::format(":{}:{}", problem.at.line, problem.at.column);
  if (!text.empty()) text += ": ";
  text += "error: ";
  if (!problem.path.empty()) text += problem.path + ": ";
  return printable(text + problem.message);
}

void Problems::throw_if_any(Error::Kind kind) const {
  if (list_.empty()) return;
  std::vector<std::string> files;
  const auto file_order = [&files](const Problem& problem) {
    return std::find(files.begin(), files.end(), problem.file) - files.begin();
  };
  for (const Problem& problem : list_) {
    if (file_order(problem) == static_cast<std::ptrdiff_t>(files.size())) {
      files.push_back(problem.file);
    }
  }
  std::vector<Problem> sorted = list_;
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Problem& a, const Problem& b) {
    return std::tuple(file_order(a), a.at.line, a.at.column) <
           std::tuple(file_order(b), b.at.line, b.at.column);
  });
  std::vector<std::string> lines;
  for (const Problem& problem : sorted) {
    std::string line = to_string(problem);
    if (lines.empty() || lines.back() != line) lines.push_back(std::move(line));
  }
  throw Error(kind, fmt::format("{}", fmt::join(lines, "\n")));
}

const Value* Value::find(std::string_view key) const {
  const Member* member = find_member(key);
  return member == nullptr ? nullptr : &member->value;
}

const Member* Value::find_member(std::string_view key) const {
  const auto found = std::find_if(object.begin(), object.end(),
                                  [key](const Member& member) { return member.key == key; });
  return found == object.end() ? nullptr : &*found;
}

std::string dump(const Value& value, int indent, int digits) {
  std::string out;
  Writer(indent, digits, out).write(value);
  return out;
}

Value make_null() { return {}; }

Value make(bool value) {
  Value result;
  result.kind = Kind::boolean;
  result.boolean = value;
  return result;
}

Value make(std::int64_t value) {
  Value result;
  result.kind = Kind::integer;
  result.integer = value;
  result.number = static_cast<double>(value);
  return result;
}

Value make(double value) {
  Value result;
  result.kind = Kind::number;
  result.number = value;
  return result;
}

Value make(std::string value) {
  Value result;
  result.kind = Kind::string;
  result.string = std::move(value);
  return result;
}

Value make(const char* value) { return make(std::string(value)); }

Value make_array(std::vector<Value> items) {
  Value result;
  result.kind = Kind::array;
  result.array = std::move(items);
  return result;
}

Value make_object(std::vector<std::pair<std::string, Value>> members) {
  Value result;
  result.kind = Kind::object;
  for (auto& member : members) {
    result.object.push_back({std::move(member.first), {}, std::move(member.second)});
  }
  return result;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > kLongestName) return "";
  const std::string wanted = lower(word);
  const std::size_t limit = std::max<std::size_t>(2, wanted.size() / 3);
  const std::string* best = nullptr;
  std::size_t best_cost = limit + 2;
  for (const std::string& candidate : candidates) {
    if (candidate.empty() || candidate.size() > kLongestName) continue;
    const std::string name = lower(candidate);
    const std::size_t distance = edit_distance(wanted, name);
    std::size_t cost = limit + 2;
    if (distance <= limit && distance < std::min(wanted.size(), name.size())) {
      cost = distance;
    } else if (distance == 0) {
      cost = 0;
    } else if (std::min(wanted.size(), name.size()) >= 3 &&
               (name.starts_with(wanted) || wanted.starts_with(name))) {
      cost = limit + 1;
    }
    if (cost < best_cost) {
      best_cost = cost;
      best = &candidate;
    }
  }
  return best == nullptr ? "" : *best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near);
}

std::string read_text_file(const std::string& path, Error::Kind kind, std::size_t limit) {
  const auto refuse = [&](const std::string& reason) -> Error {
    return {kind, fmt::format("{}: {}", printable(path), reason)};
  };
  const File file(path);
  struct stat status {};
  if (file.descriptor() < 0 || ::fstat(file.descriptor(), &status) != 0) {
    throw refuse(fmt::format("cannot be opened: {}", std::strerror(errno)));
  }
  if (S_ISDIR(status.st_mode)) throw refuse("is a directory: expected a file");
  std::string text;
  std::vector<char> buffer(std::size_t{1} << 16U);
  while (true) {
    const ssize_t got = ::read(file.descriptor(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (text.size() > limit)
      throw refuse(fmt::format("is larger than the limit of {} bytes", limit));
  }
}

}  // namespace tessera::json
