// CSVLogger: values of each epoch as a table.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "runtime/train/callback_families.h"
#include "runtime/train/progress.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

/// A row of values per epoch.
class CSVLogger : public Callback {
 public:
  explicit CSVLogger(json::Arguments& arguments)
      : separator_(arguments.text("separator", ",")), append_(arguments.boolean("append", false)) {
    arguments.required("filename");
    path_ = arguments.text("filename", "");
  }

  void on_train_begin(FitContext& context) override {
    if (!context.session.is_first_rank()) return;
    std::error_code ignored;
    const auto size = fs::file_size(path_, ignored);
    headed_ = append_ && !ignored && size > 0;
    file_.reset(std::fopen(path_.c_str(), append_ ? "ae" : "we"));
    if (file_ == nullptr)
      throw Error(Error::Kind::internal, fmt::format("{}: cannot be created", path_));
  }

  void on_epoch_end(FitContext& /*context*/, std::int64_t epoch, Logs& logs) override {
    if (file_ == nullptr) return;
    if (keys_.empty()) choose_keys(logs);
    std::string line;
    if (!headed_) line = fmt::format("epoch{}{}\n", separator_, fmt::join(keys_, separator_));
    headed_ = true;
    line += std::to_string(epoch);
    for (const std::string& key : keys_) {
      const double* value = find_log(logs, key);
      line += separator_ + (value == nullptr ? "NA" : python_float(*value));
    }
    fmt::print(file_.get(), "{}\n", line);
    std::fflush(file_.get());
  }

 private:
  /// Fixed at the first epoch: sorted, with empty columns for a validation that may come later.
  void choose_keys(const Logs& logs) {
    bool validated = false;
    for (const auto& [name, value] : logs) {
      keys_.push_back(name);
      validated = validated || name.starts_with("val_");
    }
    std::sort(keys_.begin(), keys_.end());
    const std::size_t count = keys_.size();
    for (std::size_t i = 0; i < count && !validated; ++i) keys_.push_back("val_" + keys_[i]);
  }

  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::string separator_;
  bool append_;
  bool headed_ = false;
  std::unique_ptr<std::FILE, Closer> file_;
  std::vector<std::string> keys_;
};

}  // namespace

std::unique_ptr<Callback> make_csv_logger(json::Arguments& arguments) {
  return std::make_unique<CSVLogger>(arguments);
}

}  // namespace tessera::train
