// Cases of reshape, transpose, broadcast_to, expand_dims, squeeze, concat, slice and pad.
#include <catch2/catch.hpp>

#include "tests/ops/driver.h"

namespace tessera::testing {
namespace {

TEST_CASE("reshape") {
  check_op({{real({6, 4})}, {real({5, 4})}}, [](Builder&, const Tensors& x) {
    return Tensors{ops::reshape(x[0], {-1, 2, 2})};
  });
}

}  // namespace
}  // namespace tessera::testing
