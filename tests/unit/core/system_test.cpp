// Are descriptors closed once, and files read whole?
#include "core/system.hpp"

#include "support/catch.hpp"
#include "support/temp_dir.hpp"

#include <array>
#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>
#include <thread>
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

TEST_CASE("what can be read only once is read once, and kept for who asks again", "[system]") {
  const test::TempDir folder;
  const auto pipe = folder.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::thread writer([&] { std::ofstream(pipe) << "a: 1\n"; });
  std::error_code error;
  CHECK(read_file(pipe, error) == "a: 1\n");
  writer.join();
  CHECK(read_file(pipe, error) == "a: 1\n");  // nobody writes any more: this would wait for ever
  CHECK(read_text(pipe) == "a: 1\n");
  CHECK(kept_files().value.find(":" + pipe.string() + "\n") != std::string::npos);
  std::ofstream(folder.path() / "file") << "1";
  CHECK(read_text(folder.path() / "file") == "1");
  std::ofstream(folder.path() / "file") << "2";
  CHECK(read_text(folder.path() / "file") == "2");  // a file on disk may change
}

TEST_CASE("children find the kept texts by their descriptors", "[system]") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  REQUIRE(::write(ends[1], "b: 2\n", 5) == 5);
  ::close(ends[1]);
  const std::string name = "/dev/fd/" + std::to_string(ends[0]);
  CHECK(read_text(name) == "b: 2\n");
  ::close(ends[0]);
  const std::string entries = kept_files().value;
  const std::size_t at = entries.find(":" + name + "\n");
  REQUIRE(at != std::string::npos);
  const std::size_t begin = at == 0 ? 0 : entries.rfind('\n', at - 1) + 1;
  const std::string number = entries.substr(begin, at - begin);
  CHECK(::fcntl(std::stoi(number), F_GETFD) == 0);  // inherited: not closed on exec
  const std::string copy = "/proc/self/fd/" + number;
  CHECK(read_text(copy) == "b: 2\n");
}

TEST_CASE("nothing lies beside an open descriptor", "[system]") {
  for (const char* name : {"/dev/stdin", "/dev/fd/63", "/proc/self/fd/0", "/dev//stdin"}) {
    INFO(name);
    CHECK(names_descriptor(name));
    CHECK(folder_of(name).empty());
  }
  for (const char* name : {"/dev/shm/a.yaml", "/dev/stdin2/a", "a.yaml", "/proc/self/fdinfo/0"}) {
    INFO(name);
    CHECK_FALSE(names_descriptor(name));
    CHECK(folder_of(name) == std::filesystem::path(name).parent_path());
  }
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
