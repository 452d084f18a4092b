// CSV tables: RFC 4180, read whole, numbers independent of the locale.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "runtime/data/formats.h"
#include "runtime/io/raw_file.h"

namespace tessera::data {
namespace {

struct Record {
  std::vector<std::string> fields;
  std::int64_t line = 1;
};

/// Splits a text into records; quoted fields may hold separators, quotes (doubled) and line ends.
class RecordReader {
 public:
  RecordReader(std::string_view text, char separator, const std::string& path)
      : text_(text), separator_(separator), path_(path) {}

  bool next(Record& record) {
    record.fields.clear();
    while (at_ < text_.size() && skip_line_end()) ++line_;  // empty lines
    if (at_ >= text_.size()) return false;
    record.line = line_;
    while (true) {
      record.fields.push_back(field());
      if (at_ < text_.size() && text_[at_] == separator_) {
        ++at_;
        continue;
      }
      if (at_ < text_.size() && !skip_line_end()) {
        throw Error(Error::Kind::data,
                    fmt::format("{}:{}: a character follows a closing quote", path_, line_));
      }
      ++line_;
      return true;
    }
  }

 private:
  bool skip_line_end() {
    if (text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') ++at_;
    if (text_[at_] != '\n' && text_[at_] != '\r') return false;
    ++at_;
    return true;
  }

  std::string field() {
    if (at_ < text_.size() && text_[at_] == '"') return quoted();
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n' &&
           text_[at_] != '\r')
      ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string quoted() {
    const std::int64_t opened = line_;
    std::string value;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] != '"') {
        value.push_back(text_[at_]);
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        value.push_back(text_[++at_]);
      } else {
        ++at_;
        return value;
      }
    }
    throw Error(Error::Kind::data, fmt::format("{}:{}: a quote is not closed", path_, opened));
  }

  std::string_view text_;
  char separator_;
  std::string path_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// As Python reads a float, whatever the locale; too small becomes zero, too large infinite.
std::optional<double> number_in(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  double value = 0.0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (text.empty() || end != last || error == std::errc::invalid_argument) return std::nullopt;
  if (error != std::errc::result_out_of_range) return value;
  // from_chars does not say at which end: the exponent does, or else the digits before the point.
  const std::size_t exponent = text.find_first_of("eE");
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  const bool tiny = exponent != std::string_view::npos
                        ? text.substr(exponent + 1).starts_with('-')
                        : digits.starts_with('0') || digits.starts_with('.');
  return tiny ? 0.0 : std::numeric_limits<double>::max();
}

class CsvSource : public MemorySource {
 public:
  CsvSource(std::vector<float> values, std::int64_t rows, Shape shape, bool integral,
            std::string path, std::vector<std::int64_t> lines, std::vector<std::size_t> columns,
            std::vector<std::string> names)
      : MemorySource(std::move(values), rows, shape, integral, path),
        path_(std::move(path)),
        lines_(std::move(lines)),
        columns_(std::move(columns)),
        names_(std::move(names)) {}
  std::string place(std::int64_t row, std::int64_t element) const override {
    const auto column = static_cast<std::size_t>(element);
    return fmt::format("{}:{}: column {} (\"{}\"), row {}", path_,
                       lines_[static_cast<std::size_t>(row)], columns_[column] + 1,
                       json::printable(names_[column]), row);
  }

 private:
  std::string path_;
  std::vector<std::int64_t> lines_;
  std::vector<std::size_t> columns_;
  std::vector<std::string> names_;
};

}  // namespace

CsvTable::CsvTable(const std::string& path, char separator, bool header) : path_(path) {
  const io::RawFile checked(path, Error::Kind::data);
  const std::string text = json::read_text_file(path, Error::Kind::data, std::size_t{1} << 33U);
  std::string_view rest = text;
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
  RecordReader reader(rest, separator, path);
  Record record;
  bool first = true;
  while (reader.next(record)) {
    if (first && header) {
      for (const std::string& name : record.fields) columns_.emplace_back(trimmed(name));
      first = false;
      continue;
    }
    if (first) {
      for (std::size_t i = 0; i < record.fields.size(); ++i) columns_.push_back(std::to_string(i));
      first = false;
    }
    if (record.fields.size() != columns_.size()) {
      throw Error(Error::Kind::data,
                  fmt::format("{}:{}: has {} fields, expected {}", path, record.line,
                              record.fields.size(), columns_.size()));
    }
    fields_.push_back(record.fields);
    lines_.push_back(record.line);
  }
  if (lines_.empty()) {
    throw Error(Error::Kind::data, fmt::format("{}: is empty: no rows of data{}", path,
                                               header ? " after the header" : ""));
  }
}

std::shared_ptr<const Source> CsvTable::select(const std::vector<std::size_t>& columns,
                                               bool scalar) const {
  std::vector<float> values;
  values.reserve(fields_.size() * columns.size());
  std::vector<std::string> names;
  for (const std::size_t column : columns) names.push_back(columns_[column]);
  bool integral = true;
  for (std::size_t row = 0; row < fields_.size(); ++row) {
    for (const std::size_t column : columns) {
      const std::string_view field = trimmed(fields_[row][column]);
      const std::optional<double> number = number_in(field);
      const auto value = static_cast<float>(number.value_or(0.0));
      // "inf" is a number (find_violation has the last word on it), 1e39 is too large for one.
      const bool fits = number && (std::isfinite(value) || !std::isfinite(*number));
      if (!fits) {
        throw Error(
            Error::Kind::data,
            fmt::format("{}:{}: column {} (\"{}\"): {}", path_, lines_[row], column + 1,
                        json::printable(columns_[column]),
                        field.empty() ? "is empty, a number was expected"
                                      : fmt::format("\"{}\" is {}", json::printable(field),
                                                    number ? "out of the range of 32-bit numbers"
                                                           : "not a number")));
      }
      integral = integral && std::abs(value) <= 1e9F && value == std::trunc(value);
      values.push_back(value);
    }
  }
  const Shape shape = scalar ? Shape{} : Shape{static_cast<std::int64_t>(columns.size())};
  return std::make_shared<CsvSource>(std::move(values), rows(), shape, integral, path_, lines_,
                                     columns, std::move(names));
}

}  // namespace tessera::data
