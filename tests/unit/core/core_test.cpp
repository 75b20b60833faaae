// Do errors, hashes and registries keep their promises?
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/registry.hpp"
#include "support/catch.hpp"

#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <thread>

namespace colossal {
namespace {

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

struct Animal {
  virtual ~Animal() = default;
  virtual int legs() const = 0;
};
struct Spider : Animal {
  int legs() const override { return 8; }
};
struct Bird : Animal {
  int legs() const override { return 2; }
};

Registry<Animal> zoo() {
  return {"zoo.animal",
          {{"spider", [] { return std::make_unique<Spider>(); }},
           {"bird", [] { return std::make_unique<Bird>(); }}}};
}

TEST_CASE("an error carries kind, id, place and contexts", "[core]") {
  try {
    const ErrorContext outer("loading run");
    const ErrorContext inner("reading blocks.3");
    fail(ErrorKind::checkpoint, "checkpoint-shape", "shape {} is not {}", 3, 4);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::checkpoint);
    CHECK(error.exit_code() == 5);
    CHECK(error.id() == "checkpoint-shape");
    CHECK(std::string(error.what()) ==
          "shape 3 is not 4\n  while reading blocks.3\n  while loading run");
    CHECK(std::string(error.where().file_name()).find("core_test.cpp") != std::string::npos);
    return;
  }
  FAIL("no exception");
}

TEST_CASE("contexts end with their scope", "[core]") {
  {
    const ErrorContext gone("gone");
  }
  CHECK_THROWS_WITH(fail(ErrorKind::usage, "x", "plain"), "plain");
}

TEST_CASE("check passes true and throws false", "[core]") {
  CHECK_NOTHROW(check(true, ErrorKind::data, "x", "never"));
  CHECK_THROWS_AS(check(false, ErrorKind::data, "x", "always"), Error);
}

TEST_CASE("every kind has its exit code and name", "[core]") {
  CHECK(static_cast<int>(ErrorKind::usage) == 2);
  CHECK(static_cast<int>(ErrorKind::environment) == 9);
  CHECK(name(ErrorKind::comm) == "comm");
  CHECK(name(ErrorKind::numerics) == "numerics");
  std::set<std::string_view> names;
  for (int code = 1; code <= 9; ++code) {
    names.insert(name(static_cast<ErrorKind>(code)));
  }
  CHECK(names.size() == 9);
}

TEST_CASE("contexts of one thread are not those of another", "[core]") {
  const ErrorContext here("writing step 7");
  std::string elsewhere;
  std::thread([&] {
    const ErrorContext there("reading sample 3");
    elsewhere = Error(ErrorKind::data, "x", "cut", std::source_location::current()).what();
  }).join();
  CHECK(elsewhere == "cut\n  while reading sample 3");
  CHECK_THROWS_WITH(fail(ErrorKind::data, "x", "full"), "full\n  while writing step 7");
}

TEST_CASE("hashes equal their published test vectors", "[core]") {
  CHECK(splitmix64(0) == 0xe220a8397b1dcdafULL);
  CHECK(fnv1a64("") == 0xcbf29ce484222325ULL);
  CHECK(fnv1a64("foobar") == 0x85944171f73967e8ULL);
  CHECK(crc32c(bytes("123456789")) == 0xe3069283U);
  CHECK(crc32c(bytes(std::string(32, '\0'))) == 0x8a9136aaU);
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST_CASE("SHA-256 is right on both sides of every block boundary", "[core]") {
  // Python: hashlib.sha256(b"a" * length).hexdigest()
  const std::map<std::size_t, std::string> expected = {
      {1, "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"},
      {55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
      {56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
      {57, "f13b2d724659eb3bf47f2dd6af1accc87b81f09f59f2b75e5c0bed6589dfe8c6"},
      {63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
      {64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
      {65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"},
      {119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb"},
      {120, "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c"},
      {128, "6836cf13bac400e9105071cd6af47084dfacad4e5e302c94bfed24e013afb73e"},
      {1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};
  for (const auto& [length, digest] : expected) {
    INFO(length);
    CHECK(sha256(std::string(length, 'a')) == digest);
  }
}

TEST_CASE("a CRC continues over pieces of any size", "[core]") {
  std::string text;
  for (int i = 0; i < 100; ++i) {
    text += static_cast<char>('a' + i % 26);
  }
  const std::uint32_t whole = crc32c(bytes(text));
  for (std::size_t cut = 0; cut <= text.size(); cut += 7) {
    const std::uint32_t first = crc32c(bytes(text.substr(0, cut)));
    CHECK(crc32c(bytes(text.substr(cut)), first) == whole);
  }
}

TEST_CASE("a CRC by instruction and by tables are the same at every length and place", "[core]") {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += static_cast<char>(i * i + 7 * i);
  }
  CHECK(detail::crc32c_by_tables(bytes("123456789")) == 0xe3069283U);
  const auto all = bytes(text);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t length = 0; begin + length <= all.size(); ++length) {
      const auto part = all.subspan(begin, length);
      REQUIRE(crc32c(part, 17) == detail::crc32c_by_tables(part, 17));
    }
  }
}

TEST_CASE("a registry makes by name and lists names when asked for another", "[core]") {
  CHECK(zoo().make("spider")->legs() == 8);
  CHECK(zoo().names().size() == 2);
  CHECK_THROWS_WITH(zoo().make("cat"),
                    "zoo.animal = 'cat' is not known; choose one of: spider, bird");
}

}  // namespace
}  // namespace colossal
