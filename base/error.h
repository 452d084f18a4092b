// The one exception type of the project; its kind decides the exit status.
#pragma once

#include <stdexcept>
#include <string>

namespace tessera {

/// What every failed operation throws. `main` alone catches it.
struct Error : std::runtime_error {
  enum class Kind { config, data, weights, numbers, rank_lost, internal };

  Error(Kind error_kind, const std::string& message)
      : std::runtime_error(message), kind(error_kind) {}

  Kind kind;
};

/// Exit status of a kind: config 2, data 3, weights 4, numbers 5, rank_lost 7, internal 1.
int exit_status(Error::Kind kind);

/// Throws an internal Error when a condition that the program itself guarantees does not hold.
void check(bool condition, const char* message);

}  // namespace tessera
