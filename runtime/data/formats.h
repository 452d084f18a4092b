// One opener a format. Each gives arrays by name; the data set picks the ones that the config asks
// for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/source.h"
#include "runtime/io/array_file.h"

namespace tessera::data {

/// An array of a file of arrays; its first dimension counts samples. Throws data where it is
/// missing (with the names there are).
std::shared_ptr<const Source> open_array(std::shared_ptr<const io::ArrayFile> file,
                                         const std::string& name);

/// A CSV table: RFC 4180 quoting, CR LF, a byte order mark, a header line or none (columns are then
/// called "0", "1", ...).
class CsvTable {
 public:
  CsvTable(const std::string& path, char separator, bool header);
  const std::vector<std::string>& columns() const { return columns_; }
  std::int64_t rows() const { return static_cast<std::int64_t>(lines_.size()); }
  /// The columns with these indices as one array: sample shape [n], or [] for a single column when
  /// `scalar`. Throws at the first field that is no number.
  std::shared_ptr<const Source> select(const std::vector<std::size_t>& columns, bool scalar) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> fields_;
  std::vector<std::int64_t> lines_;  // line of the file on which each row starts
};

/// MNIST-style files, plain or gzip.
std::shared_ptr<const Source> open_idx(const std::string& path);

/// Windows of sequence_length ids (x) and the ids that follow each (y).
struct Windows {
  std::shared_ptr<const Source> x;
  std::shared_ptr<const Source> y;
};
/// Token shards: llm.c's header, or none where `raw` is "uint16" or "uint32".
Windows open_tokens(const std::vector<std::string>& paths, const std::string& raw,
                    std::int64_t sequence_length);
/// Text: tokenizer "char" (ids are positions in the sorted list of the file's characters) or
/// "byte"; the share [split_begin, split_end) of it.
Windows open_text(const std::string& path, const std::string& tokenizer,
                  std::int64_t sequence_length, double split_begin, double split_end);
/// Drawn by (seed, name, global element index): distribution "normal", "uniform" or "integers"
/// below `high`.
std::shared_ptr<const Source> synthetic(std::int64_t rows, const Shape& shape,
                                        const std::string& distribution, std::int64_t high,
                                        std::uint64_t seed, const std::string& name);

}  // namespace tessera::data
