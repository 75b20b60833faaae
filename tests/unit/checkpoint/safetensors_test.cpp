// Are safetensors files written as others read them, and is every damage found before a value is
// used?
#include "checkpoint/safetensors.hpp"

#include "unit/checkpoint/fixture.hpp"

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

namespace colossal::test {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

SafeTensor entry(std::string name, at::ScalarType dtype, Shape shape) {
  return {.name = std::move(name), .dtype = dtype, .shape = std::move(shape)};
}

fs::path write(const fs::path& path, const std::vector<std::pair<std::string, at::Tensor>>& all) {
  std::vector<SafeTensor> entries;
  for (const auto& [name, values] : all) {
    entries.push_back(
        entry(name, values.scalar_type(), Shape(values.sizes().begin(), values.sizes().end())));
  }
  SafetensorsWriter writer(path, entries);
  for (const auto& [name, values] : all) {
    writer.write(values);
  }
  writer.commit();
  return path;
}

/// A file of this header and these bytes.
std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string text(sizeof length, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  return text + header + data;
}

/// The header of one tensor.
std::string one(const std::string& dtype, const std::string& shape, const std::string& range) {
  return fmt::format(
      R"({{"a":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape, range);
}

class BadFile {
 public:
  /// What opening a file of these bytes says.
  Failure open(const std::string& bytes) {
    const fs::path path = folder_.path() / "bad.safetensors";
    write_file(path, bytes);
    return failure_of([&] { SafetensorsFile file(path); });
  }

 private:
  TempDir folder_;
};

}  // namespace

TEST_CASE("every type and odd shapes come back", "[safetensors]") {
  const TempDir folder;
  const std::vector<Shape> shapes = {{}, {1}, {7}, {3, 5}, {2, 1, 3, 1}, {0}, {4, 0}};
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const at::ScalarType dtype : {at::kDouble,
                                     at::kFloat,
                                     at::kHalf,
                                     at::kBFloat16,
                                     at::kLong,
                                     at::kInt,
                                     at::kShort,
                                     at::kChar,
                                     at::kByte,
                                     at::kBool}) {
    for (const Shape& shape : shapes) {
      all.emplace_back(fmt::format("{}.{}", safetensors_word(dtype), all.size()),
                       counting(shape, dtype));
    }
  }
  const SafetensorsFile file(write(folder.path() / "w.safetensors", all));
  REQUIRE(file.tensors().size() == all.size());
  for (const auto& [name, values] : all) {
    INFO(name);
    const SafeTensor* const found = file.find(name);
    REQUIRE(found != nullptr);
    CHECK(found->dtype == values.scalar_type());
    CHECK(found->bytes == static_cast<std::int64_t>(values.nbytes()));
    CHECK(at::equal(file.read(*found), values));
  }
  CHECK(file.find("none") == nullptr);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"w.safetensors"});
}

TEST_CASE("bits survive, whatever number they are", "[safetensors]") {
  const TempDir folder;
  const at::Tensor odd = at::empty({6}, at::kFloat);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::array values = {
      nan, -nan, std::numeric_limits<float>::infinity(), -0.0F, 1e-44F, 3.4e38F};
  std::copy(values.begin(), values.end(), odd.mutable_data_ptr<float>());
  const at::Tensor half = odd.to(at::kBFloat16);
  const SafetensorsFile file(write(folder.path() / "w", {{"odd", odd}, {"half", half}}));
  CHECK(at::equal(file.read(*file.find("odd")).view(at::kInt), odd.view(at::kInt)));
  CHECK(at::equal(file.read(*file.find("half")).view(at::kShort), half.view(at::kShort)));
}

TEST_CASE("what is written is not what lies in memory but what the tensor means", "[safetensors]") {
  const TempDir folder;
  const at::Tensor matrix = counting({4, 6});
  const SafetensorsFile file(write(folder.path() / "w",
                                   {{"turned", matrix.t()},
                                    {"cut", matrix.narrow(1, 2, 3)},
                                    {"spread", matrix.select(0, 1).unsqueeze(0).expand({3, 6})}}));
  CHECK(at::equal(file.read(*file.find("turned")), matrix.t()));
  CHECK(at::equal(file.read(*file.find("cut")), matrix.narrow(1, 2, 3)));
  CHECK(at::equal(file.read(*file.find("spread")).select(0, 2), matrix.select(0, 1)));
}

TEST_CASE("the bytes are those of the format's description", "[safetensors]") {
  const TempDir folder;
  const std::string bytes = read_file(
      write(folder.path() / "w", {{"b", counting({2}, at::kByte, 65)}, {"a", counting({1})}}));
  std::uint64_t length = 0;
  REQUIRE(bytes.size() > sizeof length);
  std::memcpy(&length, bytes.data(), sizeof length);
  CHECK(length % 8 == 0);
  const Json header = Json::parse(bytes.substr(8, length));
  CHECK(header == Json::parse(R"({"__metadata__": {"format": "pt"},
      "b": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
      "a": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]}})"));
  CHECK(bytes.substr(8 + length) == std::string("AB\0\0\0\0", 6));
}

TEST_CASE("a file of no tensors is one", "[safetensors]") {
  const TempDir folder;
  CHECK(SafetensorsFile(write(folder.path() / "w", {})).tensors().empty());
  write_file(folder.path() / "bare", file_of("{}", ""));
  CHECK(SafetensorsFile(folder.path() / "bare").tensors().empty());
}

TEST_CASE("tensors come in the order of their bytes, empty ones where they stand",
          "[safetensors]") {
  const TempDir folder;
  write_file(folder.path() / "w",
             file_of(R"({"z":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
  "e":{"dtype":"F64","shape":[0,9],"data_offsets":[1,1]},
  "a":{"dtype":"BOOL","shape":[1,1],"data_offsets":[1,2]}})",
                     std::string("\7\1")));
  const SafetensorsFile file(folder.path() / "w");
  REQUIRE(file.tensors().size() == 3);
  CHECK(file.tensors()[0].name == "z");
  CHECK(file.tensors()[1].name == "e");
  CHECK(file.tensors()[2].name == "a");
  CHECK(file.read(*file.find("z")).item<int>() == 7);
  CHECK(file.read(*file.find("a")).item<bool>());
}

TEST_CASE("a file cut at any byte is refused", "[safetensors]") {
  const TempDir folder;
  const std::string whole =
      read_file(write(folder.path() / "w", {{"a", counting({3})}, {"b", counting({2, 2})}}));
  BadFile bad;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    INFO(length);
    const Failure failure = bad.open(whole.substr(0, length));
    REQUIRE(failure.id == "weights-damaged");
    REQUIRE(failure.exit_code == 5);
  }
  CHECK(bad.open(whole).id.empty());
  CHECK(contains(bad.open(whole + "x").text, "have 28 bytes, the file has 29"));
}

TEST_CASE("headers that are none", "[safetensors]") {
  BadFile bad;
  const auto refused = [&](const std::string& header, const std::string& why) {
    const Failure failure = bad.open(file_of(header, std::string(8, 'x')));
    INFO(header << "\n" << failure.text);
    CHECK(failure.id == "weights-damaged");
    CHECK(contains(failure.text, why));
    CHECK(contains(failure.text, "bad.safetensors"));
  };
  refused("", "cannot be read");
  refused("not json", "cannot be read");
  refused("[]", "no JSON object");
  refused("{\"a\": 1}", "cannot be read");
  refused("{\"a\":{\"shape\":[1],\"data_offsets\":[0,8]}}", "dtype");
  refused("{\"a\":{\"dtype\":\"F64\",\"data_offsets\":[0,8]}}", "shape");
  refused("{\"a\":{\"dtype\":\"F64\",\"shape\":[1]}}", "data_offsets");
  refused(one("F64", "[-1]", "[0,8]"), "has a size -1");
  refused(one("F64", "[1.5]", "[0,8]"), "has a size 1.5");
  refused(one("F64", "[1]", "[0]"), "lies at [0]");
  refused(one("F64", "[1]", "[0,8,9]"), "lies at [0,8,9]");
  refused(one("F64", "[1]", "{\"a\":0,\"b\":8}"), "lies at");
  refused(one("F64", "[1]", "[0,\"8\"]"), "lies at");
  refused(one("F64", "[1]", "[-8,0]"), "lies at");
  std::string huge = file_of("", "");
  huge[4] = 1;  // 2^32 bytes
  CHECK(contains(bad.open(huge).text, "more than the 100000000 that are allowed"));
}

TEST_CASE("ranges that do not fit shapes, each other or the file", "[safetensors]") {
  BadFile bad;
  const auto refused = [&](const std::string& header) {
    const Failure failure = bad.open(file_of(header, std::string(8, 'x')));
    INFO(header << "\n" << failure.text);
    CHECK(failure.id == "weights-damaged");
  };
  refused(one("F64", "[2]", "[0,8]"));  // another size than the type and the shape say
  refused(one("F32", "[1]", "[0,8]"));
  refused(one("F32", "[2]", "[8,0]"));                     // backwards
  refused(one("F64", "[2]", "[0,16]"));                    // beyond the file
  refused(one("F32", "[1]", "[4,8]"));                     // a hole at the beginning
  refused(one("F32", "[1]", "[0,4]"));                     // and one at the end
  refused(one("U8", "[4294967296,4294967296]", "[0,0]"));  // 2^64 bytes are not none
  refused(one("F64", "[4611686018427387904]", "[0,0]"));   // nor are 2^65
  refused(one("U8", "[18446744073709551615]", "[0,8]"));   // more than can be counted
  refused(one("U8", "[8]", "[18446744073709551608,0]"));   // wraps to 8
  refused(one("U8", "[0]", "[9223372036854775808,9223372036854775808]"));
  refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
              "b":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})");  // overlap
  refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
              "b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})");  // the same bytes
}

TEST_CASE("types that nobody can compute with are named", "[safetensors]") {
  BadFile bad;
  const Failure unknown = bad.open(file_of(one("F4", "[2]", "[0,1]"), "x"));
  CHECK(unknown.id == "weights-dtype");
  CHECK(contains(unknown.text, "'a' has the unknown type F4"));
  const TempDir folder;
  write_file(folder.path() / "w", file_of(one("F8_E4M3", "[2]", "[0,2]"), "xx"));
  const SafetensorsFile file(folder.path() / "w");  // it may be a tensor that is not wanted
  const Failure unreadable = failure_of([&] { (void)file.read(file.tensors().front()); });
  CHECK(unreadable.id == "weights-dtype");
  CHECK(safetensors_word(file.tensors().front().dtype) == "?");
  CHECK(safetensors_word(at::kComplexFloat) == "?");
  CHECK(safetensors_word(at::kBFloat16) == "BF16");
}

TEST_CASE("a file that cannot be opened, and one that shrinks", "[safetensors]") {
  const TempDir folder;
  const Failure none = failure_of([&] { SafetensorsFile file(folder.path() / "none"); });
  CHECK(none.id == "file-not-found");
  CHECK(none.exit_code == 4);
  write_file(folder.path() / "file", "");
  CHECK(failure_of([&] { SafetensorsFile file(folder.path() / "file" / "in"); }).id ==
        "file-not-found");
  const Failure directory = failure_of([&] { SafetensorsFile file(folder.path()); });
  CHECK(directory.id == "data-unreadable");
  CHECK(contains(directory.text, "directory"));
  const SafetensorsFile file(write(folder.path() / "w", {{"a", counting({100})}}));
  fs::resize_file(folder.path() / "w", 200);
  const Failure shrunk = failure_of([&] { (void)file.read(file.tensors().front()); });
  CHECK(shrunk.id == "weights-damaged");
  CHECK(contains(shrunk.text, "became shorter"));
}

TEST_CASE("only what was announced can be written, and all of it must be", "[safetensors]") {
  const TempDir folder;
  const fs::path path = folder.path() / "w";
  const std::vector<SafeTensor> two = {entry("a", at::kFloat, {2}), entry("b", at::kHalf, {})};
  {
    SafetensorsWriter writer(path, two);
    const auto refused = [&](const at::Tensor& values) {
      return failure_of([&] { writer.write(values); }).id == "weights-order";
    };
    CHECK(refused(counting({3})));
    CHECK(refused(counting({2, 1})));
    CHECK(refused(counting({2}, at::kDouble)));
    writer.write(counting({2}));
    CHECK(failure_of([&] { writer.commit(); }).id == "weights-order");
    writer.write(counting({}, at::kHalf));
    CHECK(refused(counting({2})));
  }
  CHECK(names_in(folder.path()).empty());
  const Failure nowhere =
      failure_of([&] { SafetensorsWriter writer(folder.path() / "no" / "w", two); });
  CHECK(nowhere.id == "output-write");
  CHECK(nowhere.exit_code == 9);
}

TEST_CASE("a tensor larger than the buffer goes to the disk whole", "[safetensors]") {
  const TempDir folder;
  const at::Tensor large = counting({700, 1001});  // 2.8 MB behind and before small ones
  const SafetensorsFile file(
      write(folder.path() / "w", {{"a", counting({3})}, {"b", large}, {"c", counting({5})}}));
  CHECK(at::equal(file.read(*file.find("a")), counting({3})));
  CHECK(at::equal(file.read(*file.find("b")), large));
  CHECK(at::equal(file.read(*file.find("c")), counting({5})));
}

}  // namespace colossal::test
