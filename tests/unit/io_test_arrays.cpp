// .npy, .npz and .safetensors: what is read back, and conversions.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "runtime/io/array_file.h"
#include "runtime/io/npy.h"
#include "runtime/io/safetensors.h"
#include "tests/unit/io_files.h"

using Catch::Matchers::Contains;
using namespace tessera;
using namespace tessera::io;
using namespace tessera::testing;
using namespace std::string_literals;

namespace {

constexpr auto kData = Error::Kind::data;

std::vector<double> values_of(const ArrayFile& file, int array = 0) {
  const std::int64_t count = file.arrays()[static_cast<std::size_t>(array)].shape.elements();
  std::vector<double> values(static_cast<std::size_t>(count));
  file.read(array, 0, count, values.data(), DType::float64);
  return values;
}

using Values = std::vector<double>;

template <typename T>
std::string big_endian(const std::vector<T>& values) {
  std::string bytes;
  for (const T& value : values) {
    const std::string one = bytes_of(std::vector<T>{value});
    bytes.append(one.rbegin(), one.rend());
  }
  return bytes;
}

struct Case {
  std::string code;  // of NumPy, without byte order
  std::string safetensors;
  FileType type;
  std::string little;
  std::string big;
  Values values;
};

template <typename T>
Case make(const std::string& code, const std::string& safetensors, FileType type,
          const std::vector<T>& raw, const Values& values) {
  return {code, safetensors, type, bytes_of(raw), big_endian(raw), values};
}

std::vector<Case> cases() {
  using U16 = std::vector<std::uint16_t>;
  return {
      make("f2", "F16", FileType::float16, U16{0x3C00, 0xC100, 0x0001}, {1, -2.5, 0x1p-24}),
      make("f4", "F32", FileType::float32, std::vector<float>{1.5F, -3e38F, 0}, {1.5, -3e38F, 0}),
      make("f8", "F64", FileType::float64, Values{0.1, -1e300, 2}, {0.1, -1e300, 2}),
      make("i1", "I8", FileType::int8, std::vector<std::int8_t>{-128, 0, 127}, {-128, 0, 127}),
      make("i2", "I16", FileType::int16, std::vector<std::int16_t>{-32768, 1, 513},
           {-32768, 1, 513}),
      make("i4", "I32", FileType::int32, std::vector<std::int32_t>{-2147483647, 1, 66051},
           {-2147483647, 1, 66051}),
      make("i8", "I64", FileType::int64, std::vector<std::int64_t>{-(1LL << 53), 1, 4328719365LL},
           {-0x1p53, 1, 4328719365.0}),
      make("u1", "U8", FileType::uint8, std::vector<std::uint8_t>{0, 1, 255}, {0, 1, 255}),
      make("u2", "U16", FileType::uint16, U16{0, 513, 65535}, {0, 513, 65535}),
      make("u4", "U32", FileType::uint32, std::vector<std::uint32_t>{0, 513, 4294967295U},
           {0, 513, 4294967295.0}),
      make("u8", "U64", FileType::uint64, std::vector<std::uint64_t>{0, 513, 1ULL << 63},
           {0, 513, 0x1p63}),
      make("b1", "BOOL", FileType::boolean, std::vector<std::uint8_t>{0, 1, 1}, {0, 1, 1}),
  };
}

}  // namespace

TEST_CASE("every element type is read from every format, in both byte orders") {
  const Folder folder;
  for (const Case& one : cases()) {
    CAPTURE(one.code);
    const std::string single = one.code == "f2" ? "=" : "|";  // "=": this machine's order
    for (const auto& [order, bytes] :
         {std::pair<std::string, std::string>{"<", one.little}, {">", one.big}}) {
      if (size_of(one.type) == 1 && order == ">") continue;
      const std::string descr = (size_of(one.type) == 1 ? single : order) + one.code;
      const auto file = open_array_file(folder.file("a.npy", npy(descr, "(3,)", bytes)), kData);
      REQUIRE(file->arrays().size() == 1);
      CHECK(file->arrays()[0].type == one.type);
      CHECK(file->arrays()[0].name.empty());
      CHECK(file->arrays()[0].shape == Shape{3});
      CHECK(values_of(*file) == one.values);
      for (const bool deflate : {false, true}) {
        const auto archive = open_array_file(
            folder.file("a.npz", zip({{"k/ü.npy", npy(descr, "(3, 1)", bytes), deflate, {}, {}}})),
            kData);
        CHECK(archive->find("k/ü") == 0);
        CHECK(archive->find("k/ü.npy") == -1);
        CHECK(archive->arrays()[0].shape == Shape{3, 1});
        CHECK(values_of(*archive) == one.values);
      }
    }
    const auto file = open_array_file(
        folder.file("a.safetensors", safetensors("{\"a\":{\"dtype\":\"" + one.safetensors +
                                                     "\",\"shape\":[3],\"data_offsets\":[0," +
                                                     std::to_string(one.little.size()) + "]}}",
                                                 one.little)),
        kData);
    CHECK(file->arrays()[0].type == one.type);
    CHECK(values_of(*file) == one.values);
  }
}

TEST_CASE("bfloat16 is read from safetensors") {
  const Folder folder;
  const auto file = open_array_file(
      folder.file("a", safetensors(R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})",
                                   bytes_of(std::vector<std::uint16_t>{0x3F80, 0xC020}))),
      kData);
  CHECK(values_of(*file) == Values{1, -2.5});
}

TEST_CASE("scalars and empty arrays are arrays") {
  const Folder folder;
  const auto scalar =
      open_npy(folder.file("s", npy("<f4", "()", bytes_of(Values{}) + "\0\0\x20\x41"s)), kData);
  CHECK(scalar->arrays()[0].shape == Shape{});
  CHECK(values_of(*scalar) == Values{10});
  for (const char* shape : {"(0,)", "(0, 3)", "(3, 0)", "(0L, 0)"}) {
    CAPTURE(shape);
    if (std::string(shape).find('L') != std::string::npos) {  // Python 2's long integers
      error_of(kData, [&] { open_npy(folder.file("e", npy("<f4", shape, "")), kData); });
      continue;
    }
    const auto file = open_npy(folder.file("e", npy("<f4", shape, "")), kData);
    CHECK(file->arrays()[0].shape.elements() == 0);
    CHECK(values_of(*file).empty());
    const auto archive =
        open_npz(folder.file("z", zip({{"x.npy", npy("<f4", shape, ""), true, {}, {}}})), kData);
    CHECK(values_of(*archive).empty());
  }
  const auto none = open_safetensors(folder.file("n", safetensors("{}", "")), kData);
  CHECK(none->arrays().empty());
  const auto empty = open_safetensors(
      folder.file("m", safetensors(R"({"b":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]},)"
                                   R"("a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})",
                                   "\x07")),
      kData);
  CHECK(values_of(*empty, 0).empty());
  CHECK(values_of(*empty, 1) == Values{7});
  CHECK(open_npz(folder.file("z", zip({})), kData)->arrays().empty());
}

TEST_CASE("versions, key orders and quotes of NumPy's header") {
  const Folder folder;
  const std::string data = bytes_of(std::vector<float>{1, 2});
  for (const int version : {1, 2, 3})
    CHECK(values_of(*open_npy(folder.file("v", npy("<f4", "(2,)", data, "False", version)),
                              kData)) == Values{1, 2});
  const auto with_header = [&](std::string head) {
    return folder.file("h", "\x93NUMPY\x01"s + '\0' + little(head.size(), 2) + head + data);
  };
  CHECK(values_of(*open_npy(with_header(R"({"shape":(2,),"fortran_order":False,"descr":"<f4"})"),
                            kData)) == Values{1, 2});
  CHECK(values_of(*open_npy(
            with_header("{'fortran_order': True, 'shape': (2, ), 'descr': 'f4', }\n"), kData)) ==
        Values{1, 2});
  CHECK_THAT(
      error_of(kData, [&] { open_npy(with_header("{'descr': '<f4', 'shape': (2,)}"), kData); }),
      Contains("lacks"));
  CHECK_THAT(
      error_of(kData,
               [&] {
                 open_npy(
                     with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}"),
                     kData);
               }),
      Contains("unknown key \"x\""));
}

TEST_CASE("parts are read at their place") {
  const Folder folder;
  std::vector<std::int32_t> values(600'000);  // more than two pieces of a conversion
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
  const std::string array = npy("<i4", "(600000,)", bytes_of(values));
  folder.file("a.npy", array);
  folder.file("a.npz", zip({{"a.npy", array, true, {}, {}}}));
  for (const char* name : {"a.npy", "a.npz"}) {
    const auto file = open_array_file(folder / name, kData);
    std::vector<float> part(599'990);
    file->read(0, 7, 599'990, part.data(), DType::float32);
    CHECK(part.front() == 7);
    CHECK(part[300'000] == 300'007);
    CHECK(part.back() == 599'996);
    file->read(0, 600'000, 0, part.data(), DType::float32);
    CHECK(part.front() == 7);
  }
}

TEST_CASE("conversions round to nearest, truncate to integers and keep float16 exact") {
  const auto to = [](const Values& values, DType type, auto element) {
    std::vector<decltype(element)> out(values.size());
    convert(FileType::float64, reinterpret_cast<const std::byte*>(values.data()), type, out.data(),
            static_cast<std::int64_t>(values.size()));
    return out;
  };
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(to({1.9, -1.9, 1e30, -1e30, std::nan("")}, DType::int32, std::int32_t{}) ==
        std::vector<std::int32_t>{1, -1, 2147483647, -2147483647 - 1, -2147483647 - 1});
  CHECK(to({255.9, -3, 300}, DType::uint8, std::uint8_t{}) ==
        std::vector<std::uint8_t>{255, 0, 255});
  CHECK(to({0x1p63, -0x1p63}, DType::int64, std::int64_t{}) ==
        std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::max(),
                                  std::numeric_limits<std::int64_t>::min()});
  CHECK(to({0, -0.0, 0.1, -7}, DType::boolean, std::uint8_t{}) ==
        std::vector<std::uint8_t>{0, 0, 1, 1});
  CHECK(to({1 + 0x1p-24, 1 + 0x1.8p-23, infinity}, DType::float32, float{}) ==
        std::vector<float>{1.0F, 1 + 0x1p-22F, std::numeric_limits<float>::infinity()});

  const std::vector<std::int32_t> odd{16777217, 16777219};  // halfway: to even
  std::vector<float> rounded(2);
  convert(FileType::int32, reinterpret_cast<const std::byte*>(odd.data()), DType::float32,
          rounded.data(), 2);
  CHECK(rounded == std::vector<float>{16777216, 16777220});

  std::vector<std::uint16_t> halves(0x7C00);  // all finite positive ones
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> floats(halves.size());
  convert(FileType::float16, reinterpret_cast<const std::byte*>(halves.data()), DType::float32,
          floats.data(), 0x7C00);
  std::vector<std::uint16_t> back(halves.size());
  convert(FileType::float32, reinterpret_cast<const std::byte*>(floats.data()), DType::float16,
          back.data(), 0x7C00);
  CHECK(back == halves);
  CHECK(floats[0x3C01] == 1 + 0x1p-10F);
}

TEST_CASE("arrays written as .npy are read back") {
  const Folder folder;
  const std::vector<float> values{1.5F, -2, 3, std::numeric_limits<float>::infinity()};
  for (const Shape& shape : {Shape{4}, Shape{2, 2}, Shape{4, 1, 1}}) {
    write_npy(folder / "a.npy", values, shape);
    const std::string bytes = read_bytes(folder / "a.npy");
    CHECK((bytes.size() - 16) % 64 == 0);  // the data start at a multiple of 64
    CHECK(bytes[bytes.size() - 17] == '\n');
    const auto file = open_npy(folder / "a.npy", kData);
    CHECK(file->arrays()[0].shape == shape);
    CHECK(values_of(*file) == Values(values.begin(), values.end()));
  }
  write_npy(folder / "s.npy", std::span(values).first(1), Shape{});
  CHECK(open_npy(folder / "s.npy", kData)->arrays()[0].shape == Shape{});
  CHECK(folder.names().size() == 2);  // no temporary file stays
  CHECK_THAT(error_of(Error::Kind::internal, [&] { write_npy(folder / "no/a.npy", values, {4}); }),
             Contains("no/a.npy") && Contains("No such file"));
}

TEST_CASE("the format is told by content, then by ending") {
  const Folder folder;
  const std::string array = npy("<f4", "(1,)", "\0\0\x80\x3F"s);
  CHECK(values_of(*open_array_file(folder.file("wrong.safetensors", array), kData)) == Values{1});
  CHECK(values_of(*open_array_file(folder.file("wrong.npy", zip({{"x.npy", array, {}, {}, {}}})),
                                   kData)) == Values{1});
  CHECK_THAT(error_of(kData, [&] { open_array_file(folder.file("a.npz", "hello, world"), kData); }),
             Contains("a.npz") && Contains("zip"));
  CHECK_THAT(error_of(kData, [&] { open_array_file(folder.file("a.npy", "hello, world"), kData); }),
             Contains("NUMPY") && Contains("12 bytes"));
  CHECK_THAT(error_of(kData, [&] { open_array_file(folder.file("a.npy", array), kData, "npz"); }),
             Contains("zip"));
}
