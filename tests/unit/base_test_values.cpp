// Shapes, element types, errors.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "base/error.h"
#include "base/shape.h"

using namespace tessera;

TEST_CASE("shapes: elements, strides, text") {
  CHECK(Shape{}.elements() == 1);
  CHECK(Shape{2, 3, 4}.elements() == 24);
  CHECK(Shape{2, 0, 4}.elements() == 0);
  CHECK(Shape{2, 3, 4}.strides() == Shape{12, 4, 1});
  CHECK(Shape{}.strides() == Shape{});
  CHECK(to_string(Shape{2, 3}) == "[2, 3]");
  CHECK(to_string(Shape{}) == "[]");
  CHECK(Shape{1, 2} == Shape{1, 2});
  CHECK_FALSE(Shape{1, 2} == Shape{1, 2, 1});
  Shape shape{7};
  shape.push_back(8);
  CHECK(shape == Shape{7, 8});
  CHECK(shape.back() == 8);
  CHECK_THROWS_AS((Shape{1, 2, 3, 4, 5, 6, 7, 8, 9}), Error);
  Shape full{1, 2, 3, 4, 5, 6, 7, 8};
  CHECK_THROWS_AS(full.push_back(1), Error);
}

TEST_CASE("products of sizes are checked") {
  const std::vector<std::int64_t> large{std::int64_t{1} << 40U, std::int64_t{1} << 40U};
  CHECK_THROWS_AS(checked_elements(large), Error);
  CHECK_THROWS_AS(checked_elements(std::vector<std::int64_t>{2, -1}), Error);
  CHECK(checked_elements(std::vector<std::int64_t>{3, 0, 5}) == 0);
  CHECK(checked_elements(std::vector<std::int64_t>{}) == 1);
}

TEST_CASE("element types have Keras's names") {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16,
                            DType::int32, DType::int64, DType::uint8, DType::boolean}) {
    CHECK(dtype_from_name(name_of(dtype)) == dtype);
  }
  CHECK(name_of(DType::boolean) == "bool");
  CHECK_FALSE(dtype_from_name("float"));
  CHECK(size_of(DType::bfloat16) == 2);
  CHECK(size_of(DType::int64) == 8);
  CHECK(is_floating(DType::float16));
  CHECK_FALSE(is_floating(DType::int32));
}

TEST_CASE("float16: all bit patterns survive the way there and back") {
  for (std::uint32_t bits = 0; bits <= 0xFFFFU; ++bits) {
    const float value = to_float(Float16{static_cast<std::uint16_t>(bits)});
    const Float16 back = to_float16(value);
    if (std::isnan(value)) {
      REQUIRE(std::isnan(to_float(back)));
    } else {
      REQUIRE(back.bits == bits);
    }
  }
}

TEST_CASE("float16 and bfloat16 round to nearest even") {
  // Between every two neighbours: below, at and above the middle.
  for (std::uint32_t bits = 0; bits < 0x7BFFU; ++bits) {
    const double low = to_float(Float16{static_cast<std::uint16_t>(bits)});
    const double high = to_float(Float16{static_cast<std::uint16_t>(bits + 1)});
    const double middle = (low + high) / 2;
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    REQUIRE(to_float16(static_cast<float>(middle)).bits == even);
    REQUIRE(to_float16(std::nextafter(static_cast<float>(middle), 0.0F)).bits == bits);
    REQUIRE(to_float16(std::nextafter(static_cast<float>(middle), 1e9F)).bits == bits + 1);
  }
  CHECK(to_float16(65519.0F).bits == 0x7BFF);
  CHECK(to_float16(65520.0F).bits == 0x7C00);
  CHECK(to_float16(-1e9F).bits == 0xFC00);
  CHECK(to_float16(1e-9F).bits == 0);
  CHECK(std::signbit(to_float(to_float16(-1e-9F))));
  CHECK(to_bfloat16(1.0F).bits == 0x3F80);
  CHECK(to_bfloat16(std::bit_cast<float>(0x3F808000U)).bits == 0x3F80);
  CHECK(to_bfloat16(std::bit_cast<float>(0x3F818000U)).bits == 0x3F82);
  CHECK(to_bfloat16(std::bit_cast<float>(0x3F808001U)).bits == 0x3F81);
  CHECK(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7F800001U)))));
  CHECK(std::isinf(to_float(to_bfloat16(std::numeric_limits<float>::max()))));
}

TEST_CASE("kinds of errors decide the exit status") {
  CHECK(exit_status(Error::Kind::internal) == 1);
  CHECK(exit_status(Error::Kind::config) == 2);
  CHECK(exit_status(Error::Kind::data) == 3);
  CHECK(exit_status(Error::Kind::weights) == 4);
  CHECK(exit_status(Error::Kind::numbers) == 5);
  CHECK(exit_status(Error::Kind::rank_lost) == 7);
  CHECK_THROWS_AS(check(false, "no"), Error);
  CHECK_NOTHROW(check(true, "yes"));
}
