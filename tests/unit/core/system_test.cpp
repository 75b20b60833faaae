// Are descriptors closed once, and files read whole?
#include "core/system.hpp"

#include "support/catch.hpp"
#include "support/temp_dir.hpp"

#include <fcntl.h>
#include <fstream>
#include <unistd.h>
#include <utility>

namespace colossal {
namespace {

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) != -1;
}

TEST_CASE("a descriptor is closed with its last owner", "[system]") {
  int number = -1;
  {
    Descriptor first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = first.get();
    REQUIRE(is_open(number));
    Descriptor second(std::move(first));
    CHECK(second.get() == number);
    Descriptor third;
    CHECK(third.get() == -1);
    third = std::move(second);
    CHECK(third.get() == number);
    CHECK(is_open(number));
  }
  CHECK_FALSE(is_open(number));
}

TEST_CASE("assignment closes what was held before, at once", "[system]") {
  Descriptor held(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int number = held.get();
  Descriptor none;
  held = std::move(none);
  CHECK(held.get() == -1);
  CHECK_FALSE(is_open(number));
}

TEST_CASE("a released descriptor stays open", "[system]") {
  int number = -1;
  {
    Descriptor owner(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = owner.release();
    CHECK(owner.get() == -1);
  }
  CHECK(is_open(number));
  ::close(number);
}

TEST_CASE("a file is read with all its bytes, a missing one is empty", "[system]") {
  const test::TempDir folder;
  const std::string bytes("a\0b\r\n\xff", 6);
  std::ofstream(folder.path() / "file", std::ios::binary) << bytes;
  CHECK(read_text(folder.path() / "file") == bytes);
  CHECK(read_text(folder.path() / "none").empty());
}

TEST_CASE("what cannot be opened or read says why", "[system]") {
  const test::TempDir folder;
  std::error_code error = std::make_error_code(std::errc::io_error);
  std::ofstream(folder.path() / "empty").close();
  CHECK(read_file(folder.path() / "empty", error) == "");
  CHECK_FALSE(error);
  const std::string large(200'001, 'x');
  std::ofstream(folder.path() / "large") << large;
  CHECK(read_file(folder.path() / "large", error) == large);
  CHECK_FALSE(error);
  CHECK_FALSE(read_file(folder.path() / "none", error).has_value());
  CHECK(error == std::errc::no_such_file_or_directory);
  CHECK_FALSE(read_file(folder.path(), error).has_value());  // it opens, and cannot be read
  CHECK(error == std::errc::is_a_directory);
  CHECK_FALSE(read_file("/proc/self/mem", error).has_value());
  CHECK(error == std::errc::io_error);
  CHECK(read_text("/proc/self/mem").empty());
}

TEST_CASE("the program names itself so that a shell here finds it", "[system]") {
  namespace fs = std::filesystem;
  const fs::path self = fs::read_symlink("/proc/self/exe");
  const fs::path before = fs::current_path();
  const test::TempDir elsewhere;
  fs::current_path(self.parent_path());
  CHECK(program_command() == "./" + self.filename().string());  // a bare name would be searched
  fs::current_path(self.parent_path().parent_path());
  CHECK(program_command() ==
        self.parent_path().filename().string() + "/" + self.filename().string());
  fs::current_path(elsewhere.path());
  CHECK(program_command() == self.string());
  fs::current_path(before);
}

TEST_CASE("the host has a name", "[system]") {
  CHECK_FALSE(host_name().empty());
  CHECK(host_name().find('\0') == std::string::npos);
}

}  // namespace
}  // namespace colossal
