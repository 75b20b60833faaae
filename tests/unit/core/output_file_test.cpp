// Does a file appear only when it is whole, whatever happens meanwhile?
#include "core/output_file.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <vector>

namespace colossal::test {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(const fs::path& path) {
  return read_text(path);
}

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

/// Id and text of the error that `body` throws.
std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.exit_code() == 9);
    return std::string(error.id()) + ": " + error.what();
  }
  return "";
}

/// No file of this process may become longer, while it lives.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit now = before_;
    now.rlim_cur = bytes;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &now) == 0);
    std::signal(SIGXFSZ, SIG_IGN);  // a write fails then instead
  }
  ~FileLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_ = {};
};

}  // namespace

TEST_CASE("pieces of any size come out in order", "[output-file]") {
  const TempDir folder;
  const fs::path path = folder.path() / "file";
  std::string expected;
  {
    OutputFile file(path);
    // Around the size of the buffer, 1 MiB, from both sides and many times.
    for (const std::size_t size : {0UL,
                                   1UL,
                                   7UL,
                                   1048575UL,
                                   1048576UL,
                                   1048577UL,
                                   3UL,
                                   4000001UL,
                                   1000000UL,
                                   1000000UL,
                                   48575UL,
                                   1UL,
                                   0UL}) {
      const std::string piece(size, static_cast<char>('a' + size % 26));
      file.write(bytes_of(piece));
      expected += piece;
    }
    file.write_value(std::uint16_t{0x4241});
    expected += "AB";
    file.finish();
    CHECK_FALSE(fs::exists(path));
    file.commit();
    CHECK(text_of(path) == expected);
  }
  CHECK(text_of(path) == expected);
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("a file of nothing is a file", "[output-file]") {
  const TempDir folder;
  OutputFile file(folder.path() / "empty");
  file.finish();
  file.commit();
  CHECK(fs::file_size(folder.path() / "empty") == 0);
}

TEST_CASE("without commit the old file stays and nothing else does", "[output-file]") {
  const TempDir folder;
  const fs::path path = folder.path() / "file";
  {
    OutputFile first(path);
    first.write(bytes_of("old"));
    first.finish();
    first.commit();
  }
  for (const bool finished : {false, true}) {
    OutputFile second(path);
    second.write(bytes_of(std::string(2'000'000, 'x')));
    if (finished) {
      second.finish();
    }
    CHECK(text_of(path) == "old");
  }
  CHECK(text_of(path) == "old");
  CHECK(files_in(folder.path()) == 1);
  OutputFile third(path);
  third.write(bytes_of("new"));
  third.finish();
  third.commit();
  CHECK(text_of(path) == "new");
}

TEST_CASE("everybody may read what was written", "[output-file]") {
  const TempDir folder;
  const mode_t before = ::umask(022);
  OutputFile file(folder.path() / "file");
  file.finish();
  file.commit();
  ::umask(before);
  struct stat info = {};
  REQUIRE(::stat((folder.path() / "file").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777U) == 0644U);
}

TEST_CASE("a full disk is told by the write that meets it", "[output-file]") {
  const TempDir folder;
  const fs::path path = folder.path() / "file";
  {
    const FileLimit limit(100'000);
    const std::string large(3'000'000, 'x');
    OutputFile at_once(path);
    const std::string told = error_of([&] { at_once.write(bytes_of(large)); });
    CHECK(told.starts_with("output-write"));
    CHECK(told.find("file.tmp") != std::string::npos);
    CHECK(told.find("File too large") != std::string::npos);
  }
  {
    const FileLimit limit(100'000);
    OutputFile buffered(path);
    buffered.write(bytes_of(std::string(500'000, 'x')));  // still in memory
    CHECK(error_of([&] { buffered.finish(); }).starts_with("output-write"));
  }
  CHECK(files_in(folder.path()) == 0);
}

TEST_CASE("places where no file can be say why", "[output-file]") {
  const TempDir folder;
  CHECK(error_of([&] {
          OutputFile file(folder.path() / "none" / "file");
        }).find("No such file or directory") != std::string::npos);
  fs::create_directory(folder.path() / "folder.tmp");
  CHECK(error_of([&] { OutputFile file(folder.path() / "folder"); }).find("directory") !=
        std::string::npos);
  // A folder in the place of the file: found when it would be replaced.
  fs::create_directories(folder.path() / "taken" / "in it");
  OutputFile file(folder.path() / "taken");
  file.finish();
  CHECK(error_of([&] { file.commit(); }).find("renamed") != std::string::npos);
  CHECK(fs::is_directory(folder.path() / "taken"));
}

TEST_CASE("two writers of one name: the second is refused, later it is not", "[output-file]") {
  const TempDir folder;
  const fs::path path = folder.path() / "file";
  {
    OutputFile first(path);
    CHECK(error_of([&] { OutputFile second(path); }).find("does another process write it?") !=
          std::string::npos);
    first.write(bytes_of("first"));
    first.finish();
    first.commit();
  }
  OutputFile second(path);
  second.finish();
  second.commit();
  CHECK(text_of(path).empty());
}

TEST_CASE("a name without a folder is in the working folder", "[output-file]") {
  const TempDir folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  {
    OutputFile file("here");
    file.write(bytes_of("text"));
    file.finish();
    file.commit();
  }
  fs::current_path(before);
  CHECK(text_of(folder.path() / "here") == "text");
}

}  // namespace colossal::test
