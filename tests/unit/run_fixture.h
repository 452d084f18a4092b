// What the tests of runs share: a small net with dropout, data for it, sessions, captured output.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "runtime/train/callbacks.h"
#include "runtime/train/fit.h"
#include "runtime/train/session.h"
#include "tests/support/json.h"

namespace tessera::train::test {

using testing::parse;

/// A session of tanh(x up + bias) -> dropout -> down on all ranks of a world, compiled.
class Net {
 public:
  Net(comm::World& world, const std::string& optimizer, std::uint64_t seed = 7,
      std::int64_t hidden = 6);
  Session& session() { return *session_; }

 private:
  graph::VariableTable table_;
  layouts::Distribution distribution_;
  ModelInterface interface_;
  std::unique_ptr<Session> session_;
};

/// `rows` samples of 4 numbers and targets that follow from them, with noise.
data::Dataset samples(std::int64_t rows, int salt);

/// A callback from its JSON, told the session's directions.
std::unique_ptr<Callback> callback(const std::string& text, Session& session);
/// Lines of the problems of a callback.
std::string problems_of(const std::string& text);

/// What `action` writes to standard output (or to standard error).
std::string output_of(const std::function<void()>& action, bool standard_error = false);

/// Runs the body on a world of one rank.
void alone(const std::function<void(comm::World&)>& body);

}  // namespace tessera::train::test
