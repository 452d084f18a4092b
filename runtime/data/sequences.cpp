// Windows over token shards and texts, and synthetic samples.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/philox.h"
#include "runtime/data/formats.h"
#include "runtime/io/raw_file.h"

namespace tessera::data {
namespace {

/// One run of ids: a shard or a text.
struct Run {
  std::string shown;
  std::vector<std::uint32_t> ids;
};

/// Windows of `length` ids starting at multiples of `length` in each run; y is shifted by one.
class WindowSource : public Source {
 public:
  WindowSource(std::shared_ptr<const std::vector<Run>> runs, std::int64_t length,
               std::int64_t shift)
      : runs_(std::move(runs)), length_(length), shift_(shift) {
    sample_shape_ = Shape{length};
    integral_ = true;
    for (const Run& run : *runs_) {
      firsts_.push_back(rows_);
      rows_ += std::max<std::int64_t>(0, (static_cast<std::int64_t>(run.ids.size()) - 1) / length);
    }
  }
  void read(std::span<const std::int64_t> rows, DType to, void* out) const override {
    auto* target = static_cast<std::byte*>(out);
    for (const std::int64_t row : rows) {
      const auto [run, begin] = find(row);
      io::convert(io::FileType::uint32,
                  reinterpret_cast<const std::byte*>((*runs_)[run].ids.data() + begin), to, target,
                  length_);
      target += static_cast<std::size_t>(length_) * size_of(to);
    }
  }
  std::string place(std::int64_t row, std::int64_t element) const override {
    const auto [run, begin] = find(row);
    return fmt::format("{}: token {}", (*runs_)[run].shown, begin + element);
  }
  std::string shown() const override { return runs_->front().shown; }

 private:
  std::pair<std::size_t, std::int64_t> find(std::int64_t row) const {
    const auto next = std::upper_bound(firsts_.begin(), firsts_.end(), row);
    const auto run = static_cast<std::size_t>(next - firsts_.begin()) - 1;
    return {run, (row - firsts_[run]) * length_ + shift_};
  }

  std::shared_ptr<const std::vector<Run>> runs_;
  std::vector<std::int64_t> firsts_;
  std::int64_t length_;
  std::int64_t shift_;
};

Windows windows_of(std::vector<Run> runs, std::int64_t length) {
  auto shared = std::make_shared<const std::vector<Run>>(std::move(runs));
  Windows windows{std::make_shared<WindowSource>(shared, length, 0),
                  std::make_shared<WindowSource>(shared, length, 1)};
  if (windows.x->rows() == 0) {
    throw Error(
        Error::Kind::data,
        fmt::format("{}: is too short (empty) for one sequence of {} tokens and the one after it",
                    shared->front().shown, length));
  }
  return windows;
}

constexpr std::int64_t kShardHeader = 256 * 4;

Run read_shard(const std::string& path, const std::string& raw) {
  const io::RawFile file(path, Error::Kind::data);
  std::int64_t begin = 0;
  std::int64_t width = raw == "uint32" ? 4 : 2;
  if (raw.empty()) {
    std::array<std::int32_t, 3> header{};
    if (file.size() < kShardHeader) {
      throw Error(Error::Kind::data,
                  fmt::format("{}: has {} bytes, too few for the header of a token shard ({}); set "
                              "\"raw\" for a file without one",
                              path, file.size(), kShardHeader));
    }
    file.read(0, sizeof(header), header.data());
    if (header[0] != 20240520 && header[0] != 20240801) {
      throw Error(Error::Kind::data,
                  fmt::format("{}: magic number {} in the header; expected 20240520 (uint16) or "
                              "20240801 (uint32); set \"raw\" for a file without a header",
                              path, header[0]));
    }
    width = header[0] == 20240801 ? 4 : 2;
    begin = kShardHeader;
    const std::int64_t held = (file.size() - begin) / width;
    if (header[2] != held || (file.size() - begin) % width != 0) {
      throw Error(Error::Kind::data, fmt::format("{}: the header says {} tokens, the file holds {}",
                                                 path, header[2], held));
    }
  } else if (file.size() % width != 0) {
    throw Error(Error::Kind::data,
                fmt::format("{}: has {} bytes, not a multiple of {}", path, file.size(), width));
  }
  const std::int64_t count = (file.size() - begin) / width;
  Run run{path, std::vector<std::uint32_t>(static_cast<std::size_t>(count))};
  if (width == 4) {
    file.read(begin, count * 4, run.ids.data());
  } else {
    std::vector<std::uint16_t> narrow(static_cast<std::size_t>(count));
    file.read(begin, count * 2, narrow.data());
    std::copy(narrow.begin(), narrow.end(), run.ids.begin());
  }
  return run;
}

/// Code points of a UTF-8 text; throws at the first byte that is none.
std::vector<std::uint32_t> code_points(const std::string& text, const std::string& path) {
  std::vector<std::uint32_t> points;
  points.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    bool good = lead < 0x80 || (lead >= 0xC2 && lead <= 0xF4);
    good = good && i + length <= text.size();
    std::uint32_t point = length == 1 ? lead : lead & (0xFFU >> (length + 1));
    for (std::size_t k = 1; good && k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      good = (next & 0xC0U) == 0x80U;
      point = point << 6U | (next & 0x3FU);
    }
    // Longer than needed, half of a surrogate pair, or beyond Unicode.
    good = good && point >= std::array<std::uint32_t, 5>{0, 0, 0x80, 0x800, 0x10000}[length] &&
           !(point >= 0xD800 && point <= 0xDFFF) && point <= 0x10FFFF;
    if (!good)
      throw Error(
          Error::Kind::data,
          fmt::format("{}: byte {} is not UTF-8; the \"byte\" tokenizer reads any file", path, i));
    points.push_back(point);
    i += length;
  }
  return points;
}

class SyntheticSource : public Source {
 public:
  enum class Kind : std::uint8_t { normal, uniform, integers };
  SyntheticSource(std::int64_t rows, const Shape& shape, Kind kind, std::int64_t high,
                  std::uint64_t key)
      : kind_(kind), high_(high), key_(key) {
    rows_ = rows;
    sample_shape_ = shape;
    integral_ = kind == Kind::integers;
  }
  void read(std::span<const std::int64_t> rows, DType to, void* out) const override {
    const std::int64_t elements = sample_elements();
    std::vector<float> values;
    values.reserve(rows.size() * static_cast<std::size_t>(elements));
    for (const std::int64_t row : rows) {
      for (std::int64_t i = 0; i < elements; ++i)
        values.push_back(draw(static_cast<std::uint64_t>(row * elements + i)));
    }
    io::convert(io::FileType::float32, reinterpret_cast<const std::byte*>(values.data()), to, out,
                static_cast<std::int64_t>(values.size()));
  }
  std::string place(std::int64_t row, std::int64_t element) const override {
    return fmt::format("synthetic data: row {}, column {}", row, element);
  }
  std::string shown() const override { return "synthetic data"; }

 private:
  float draw(std::uint64_t index) const {
    switch (kind_) {
      case Kind::normal:
        return random_normal(key_, 0, index);
      case Kind::uniform:
        return random_uniform(key_, 0, index);
      case Kind::integers:
        return static_cast<float>(random_words(key_, 0, index)[0] %
                                  static_cast<std::uint64_t>(high_));
    }
    return 0.0F;
  }

  Kind kind_;
  std::int64_t high_;
  std::uint64_t key_;
};

}  // namespace

Windows open_tokens(const std::vector<std::string>& paths, const std::string& raw,
                    std::int64_t sequence_length) {
  std::vector<Run> runs;
  for (const std::string& path : paths) runs.push_back(read_shard(path, raw));
  return windows_of(std::move(runs), sequence_length);
}

Windows open_text(const std::string& path, const std::string& tokenizer,
                  std::int64_t sequence_length, double split_begin, double split_end) {
  const io::RawFile checked(path, Error::Kind::data);
  const std::string text = json::read_text_file(path, Error::Kind::data, std::size_t{1} << 33U);
  std::vector<std::uint32_t> ids;
  if (tokenizer == "byte") {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  } else {
    ids = code_points(text, path);
    std::map<std::uint32_t, std::uint32_t> vocabulary;
    for (const std::uint32_t point : ids) vocabulary.emplace(point, 0);
    std::uint32_t next = 0;
    for (auto& [point, id] : vocabulary) id = next++;
    for (std::uint32_t& point : ids) point = vocabulary.find(point)->second;
  }
  const auto size = static_cast<double>(ids.size());
  const auto begin = static_cast<std::ptrdiff_t>(std::floor(size * split_begin));
  const auto end = static_cast<std::ptrdiff_t>(std::floor(size * split_end));
  return windows_of({{path, {ids.begin() + begin, ids.begin() + end}}}, sequence_length);
}

std::shared_ptr<const Source> synthetic(std::int64_t rows, const Shape& shape,
                                        const std::string& distribution, std::int64_t high,
                                        std::uint64_t seed, const std::string& name) {
  using Kind = SyntheticSource::Kind;
  const Kind kind = distribution == "uniform"    ? Kind::uniform
                    : distribution == "integers" ? Kind::integers
                                                 : Kind::normal;
  return std::make_shared<SyntheticSource>(rows, shape, kind, high,
                                           stream_key(seed, "synthetic", name));
}

}  // namespace tessera::data
