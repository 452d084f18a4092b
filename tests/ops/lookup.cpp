// Cases of embedding, pick and one_hot.
#include "base/error.h"
#include "tests/ops/values.h"

namespace tessera::testing {
namespace {

Tensors embed(Builder&, const Tensors& x) { return {ops::embedding(x[0], x[1])}; }
Tensors picked(Builder&, const Tensors& x) { return {ops::pick(x[0], x[1])}; }

TEST_CASE("embedding") {
  // Ids reach beyond the table on both sides.
  check_op({{whole({6}, -1, 8), real({8, 4})},
            {whole({5}, 0, 5, DType::int64), real({5, 3})},
            {whole({2, 3}, 0, 2), real({2, 6})},
            {whole({1}, 0, 1), real({3, 1})},
            {whole({0}, 0, 1), real({3, 2})}},
           embed);
  check_op({{whole({4, 2}, 0, 6), real({6, 2, 3})}, {whole({}, 0, 6), real({5, 2})}}, embed);
  check_op({{whole({7}, 0, 3, DType::uint8), real({4, 2}, {}, DType::bfloat16)},
            {whole({7}, 0, 3, DType::int32), real({4, 2}, {}, DType::float16)}},
           embed);
}

TEST_CASE("embedding reads ids of any type") {
  for (const DType dtype : {DType::int32, DType::int64, DType::uint8, DType::float32,
                            DType::float64, DType::bfloat16, DType::float16}) {
    CHECK(result_of({{{3}, {2, 0, 5}, dtype}, {{3, 2}, {1, 2, 3, 4, 5, 6}}}, embed) ==
          std::vector<double>{5, 6, 1, 2, 0, 0});
  }
  const double nan = std::nan("");
  CHECK(result_of({{{2}, {nan, 1e30}}, {{3, 1}, {1, 2, 3}}}, embed) == std::vector<double>{0, 0});
}

TEST_CASE("the embedding gradient does not depend on threads") {
  check_threads({whole({4000}, 0, 50), real({60, 300})}, embed);
  check_threads({whole({4000}, 0, 50), real({60, 300}, {}, DType::bfloat16)}, embed);
}

TEST_CASE("pick") {
  check_op({{real({6, 4}), whole({6}, -1, 4)},
            {real({5, 7}), whole({5}, 0, 6, DType::int64)},
            {real({2, 3, 2}), whole({2, 3}, 0, 1, DType::uint8)},
            {real({1, 1}), whole({1}, 0, 0)},
            {real({4, 5}, {}, DType::float16), whole({4}, 0, 4)},
            {real({3}), whole({}, 0, 2)}},
           picked);
  CHECK(result_of({{{2, 3}, {1, 2, 3, 4, 5, 6}}, {{2}, {2, 3}, DType::int32}}, picked) ==
        std::vector<double>{3, 0});
  CHECK_THROWS_WITH(result_of({{{2, 3}, {}}, {{3}, {}, DType::int32}}, picked),
                    Catch::Contains("ids [3] do not go with [2, 3]"));
  check_threads({real({9000, 7}), whole({9000}, 0, 7)}, picked);
}

TEST_CASE("one_hot") {
  check_op({{whole({6}, -1, 4)}, {whole({5}, 0, 3, DType::int64)}, {whole({2, 1}, 0, 3)}},
           [](Builder&, const Tensors& x) { return Tensors{ops::one_hot(x[0], 4)}; });
  const auto wide = [](Builder&, const Tensors& x) { return Tensors{ops::one_hot(x[0], 300)}; };
  const std::vector<double> hot = result_of({{{1}, {1}, DType::uint8}}, wide);
  CHECK(hot[1] == 1.0);
  CHECK(std::count(hot.begin(), hot.end(), 1.0) == 1);
}

TEST_CASE("look-ups in all dtypes") {
  check_dtypes({whole({30}, -1, 5), real({5, 300})}, embed);
  check_dtypes({real({30, 5}), whole({30}, -1, 5)}, picked);
}

}  // namespace
}  // namespace tessera::testing
