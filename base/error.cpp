// Exit statuses.
#include "base/error.h"

namespace tessera {

int exit_status(Error::Kind kind) {
  switch (kind) {
    case Error::Kind::config:
      return 2;
    case Error::Kind::data:
      return 3;
    case Error::Kind::weights:
      return 4;
    case Error::Kind::numbers:
      return 5;
    case Error::Kind::rank_lost:
      return 7;
    case Error::Kind::internal:
      return 1;
  }
  return 1;
}

void check(bool condition, const char* message) {
  if (!condition) throw Error(Error::Kind::internal, message);
}

}  // namespace tessera
