// Are the files byte for byte those of Megatron-LM, and is nothing left of a file that was not
// finished?
#include "data/megatron_writer.hpp"

#include "core/output_file.hpp"
#include "data_helpers.hpp"
#include "support/temp_dir.hpp"

#include <iterator>
#include <unistd.h>

namespace colossal::test {
namespace {

std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return text;
}

std::size_t num_files(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

}  // namespace

TEST_CASE("three documents give the index of the specification", "[prepare]") {
  const TempDir folder;
  MegatronWriter writer(folder.path() / "a.bin", 65'499);
  writer.add(std::vector<TokenId>{1, 2});
  writer.add(std::vector<TokenId>{3, 4, 5});
  writer.end_document();
  writer.add(std::vector<TokenId>{6, 7, 65'498});
  writer.end_document();
  writer.end_document();
  writer.finish();
  CHECK(hex(read_all(folder.path() / "a.bin")) == "0100020003000400050006000700daff");
  CHECK(hex(read_all(folder.path() / "a.idx")) ==
        "4d4d49444944580000"  // magic
        "0100000000000000"    // version
        "08"                  // uint16
        "0300000000000000"    // sequences
        "0400000000000000"    // documents + 1
        "050000000300000000000000"
        "00000000000000000a000000000000001000000000000000"
        "0000000000000000010000000000000002000000000000000300000000000000");
  CHECK(num_files(folder.path()) == 2);
}

TEST_CASE("what a killed process left is overwritten, what a living one writes is not",
          "[prepare]") {
  const TempDir folder;
  std::ofstream(folder.path() / "a.bin.tmp") << "a much longer half of a file";
  {
    MegatronWriter writer(folder.path() / "a", 300);
    CHECK(error_of([&] { MegatronWriter(folder.path() / "a", 300); }).id() == "output-write");
    writer.add(std::vector<TokenId>{1});
    writer.end_document();
    writer.finish();
  }
  CHECK(hex(read_all(folder.path() / "a.bin")) == "0100");
  CHECK(num_files(folder.path()) == 2);
}

TEST_CASE("a file that another writer commits between opening and locking is left alone",
          "[prepare]") {
  const TempDir folder;
  const std::filesystem::path path = folder.path() / "a.bin";
  const std::filesystem::path temporary = folder.path() / "a.bin.tmp";
  std::ofstream(temporary) << "whole";
  int calls = 0;
  const Descriptor file = open_locked(temporary, [&] {
    if (++calls == 1) {
      std::filesystem::rename(temporary, path);
    }
  });
  CHECK(calls == 2);
  REQUIRE(::ftruncate(file.get(), 0) == 0);
  CHECK(read_all(path) == "whole");
  CHECK(std::filesystem::exists(temporary));
  const Error error = error_of([&] { static_cast<void>(open_locked(temporary)); });
  CHECK(error.id() == "output-write");
  const Error endless = error_of([&] {
    static_cast<void>(open_locked(folder.path() / "b",
                                  [&] { std::filesystem::rename(folder.path() / "b", path); }));
  });
  CHECK(endless.id() == "output-write");
}

TEST_CASE("a wide vocabulary is written as int32", "[prepare]") {
  const TempDir folder;
  MegatronWriter writer(folder.path() / "wide", 65'500);
  CHECK(writer.type() == detail::TokenType::i32);
  writer.add(std::vector<TokenId>{65'499});
  writer.end_document();
  writer.finish();
  CHECK(hex(read_all(folder.path() / "wide.bin")) == "dbff0000");
  CHECK(read_all(folder.path() / "wide.idx")[17] == 4);
}

TEST_CASE("without finish() nothing is left and old files stay", "[prepare]") {
  const TempDir folder;
  write_file(folder.path(), "a.bin", "old");
  write_file(folder.path(), "a.idx", "old");
  {
    MegatronWriter writer(folder.path() / "a.idx", 10);
    writer.add(std::vector<TokenId>(2'000'000, 1));
    CHECK(num_files(folder.path()) == 4);
  }
  CHECK(num_files(folder.path()) == 2);
  CHECK(read_all(folder.path() / "a.bin") == "old");
}

TEST_CASE("a folder that does not exist is an error of the environment", "[prepare]") {
  const Error error = error_of([] { MegatronWriter("/nonexistent/a", 10); });
  CHECK(error.exit_code() == 9);
  CHECK(error.id() == "output-write");
  CHECK(std::string(error.what()).find("/nonexistent/a.bin") != std::string::npos);
}

}  // namespace colossal::test
