// Do errors, hashes and registries keep their promises?
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/registry.hpp"
#include "support/catch.hpp"

#include <cstring>
#include <span>
#include <string>

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
