// Do records reach a file whole or not at all, and does a full disk end nothing?
#include "train/append_file.hpp"

#include "core/log.hpp"
#include "core/system.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

#include <csignal>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>

namespace colossal::test {
namespace {

/// A disk that is full after `bytes` of any file, while this lives.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

}  // namespace

TEST_CASE("records are added behind what is there, in folders made for them", "[append_file]") {
  const TempDir folder;
  const std::filesystem::path path = folder.path() / "a" / "b" / "log";
  {
    AppendFile file(path);
    CHECK_FALSE(std::filesystem::exists(path));  // nothing before the first record
    file.append("one\n");
    CHECK(read_text(path) == "one\n");
    file.append("two\n");
  }
  AppendFile(path).append("three\n");
  CHECK(read_text(path) == "one\ntwo\nthree\n");
}

TEST_CASE("a pipe that nobody reads does not stop the run", "[append_file]") {
  const TempDir folder;
  const std::filesystem::path path = folder.path() / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  log::configure({.level = log::Level::error, .rank = 0, .folder = folder.path()});
  AppendFile(path).append("lost\n");
  log::configure({});
  CHECK(std::filesystem::is_fifo(path));
}

TEST_CASE("a record that does not fit leaves nothing, later ones go on", "[append_file]") {
  const TempDir folder;
  AppendFile file(folder.path() / "log");
  file.append(std::string(600, 'a'));
  {
    log::configure({.level = log::Level::info, .rank = 0, .folder = {}});
    const SmallDisk disk(1000);
    file.append(std::string(600, 'b'));  // 400 bytes of it fit
    CHECK(read_text(file.path()) == std::string(600, 'a'));
    file.append("c");
  }
  file.append("d");
  CHECK(read_text(file.path()) == std::string(600, 'a') + "cd");
}

TEST_CASE("a full device and a folder in the way do not throw", "[append_file]") {
  const TempDir folder;
  log::configure({.level = log::Level::info, .rank = 0, .folder = folder.path() / "logs"});
  AppendFile("/dev/full").append("lost");
  AppendFile(folder.path()).append("lost");
  log::flush();
  const std::string log = read_text(folder.path() / "logs" / "train.log");
  log::configure({.level = log::Level::info, .rank = 0, .folder = {}});
  CHECK(log.find("/dev/full: a record is lost: No space left on device") != std::string::npos);
  CHECK(log.find("a record is lost: Is a directory") != std::string::npos);
}

}  // namespace colossal::test
