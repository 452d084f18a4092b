// What is built from collectives alone.
#include "comm/communicator.h"

namespace tessera::comm {

std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text) {
  const auto members = static_cast<std::size_t>(communicator.size());
  std::vector<std::int64_t> lengths(members);
  const auto length = static_cast<std::int64_t>(text.size());
  const std::vector<std::int64_t> ones(members, 1);
  communicator.wait(communicator.start_all_gather(&length, lengths.data(), ones, DType::int64,
                                                  "lengths of texts"));
  std::int64_t total = 0;
  for (const std::int64_t each : lengths) total += each;
  std::string joined(static_cast<std::size_t>(total), '\0');
  communicator.wait(
      communicator.start_all_gather(text.data(), joined.data(), lengths, DType::uint8, "texts"));
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (const std::int64_t each : lengths) {
    texts.push_back(joined.substr(begin, static_cast<std::size_t>(each)));
    begin += static_cast<std::size_t>(each);
  }
  return texts;
}

}  // namespace tessera::comm
