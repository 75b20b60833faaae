// What can go wrong between a path and its bytes? Each cause has its own error.
#include "data/detail/mapped_file.hpp"

#include "config/suggest.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/system.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace colossal::detail {
namespace {

std::string reason(int code) {
  return std::generic_category().message(code);
}

std::string missing_advice(const std::filesystem::path& path) {
  const auto near = nearest_file(path);
  return near ? fmt::format("did you mean '{}'?", *near)
              : "check the name (in a configuration it is relative to that file)";
}

/// What stands in the place of a file, and what to do about it.
std::string no_file(const std::filesystem::path& path, mode_t mode) {
  if (S_ISDIR(mode)) {
    return fmt::format(
        "'{}' is a directory, not a file\n  fix   name the files in it, '{}' for all",
        path.string(),
        (path / "*").string());
  }
  return fmt::format(
      "'{}' is a {}, not a file: data are read again and again, at any place\n  fix   write what "
      "it "
      "gives into a file, and name that",
      path.string(),
      S_ISFIFO(mode)   ? "pipe"
      : S_ISSOCK(mode) ? "socket"
                       : "device");
}

/// Never waits: a pipe without a writer opens at once, to be refused by its kind.
int open_for_reading(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor >= 0) {
    return descriptor;
  }
  const int code = errno;
  check(code != ENOENT && code != ENOTDIR,
        ErrorKind::data,
        "file-not-found",
        "data file '{}' does not exist; {}",
        path.string(),
        missing_advice(path));
  fail(ErrorKind::data,
       "data-unreadable",
       "data file '{}' cannot be opened: {}\n  fix   give this user the right to read it, or name "
       "another file",
       path.string(),
       reason(code));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const Descriptor file(open_for_reading(path));
  struct stat info = {};
  check(
      ::fstat(file.get(), &info) == 0,
      ErrorKind::data,
      "data-unreadable",
      "data file '{}' cannot be examined: {}\n  fix   repair its file system, or name another file",
      path.string(),
      reason(errno));
  check(
      S_ISREG(info.st_mode), ErrorKind::data, "data-unreadable", "{}", no_file(path, info.st_mode));
  check(info.st_size > 0,
        ErrorKind::data,
        "data-empty",
        "data file '{}' is empty (0 bytes)\n  fix   write it anew, or take it out of the list",
        path.string());
  const auto num_bytes = static_cast<std::size_t>(info.st_size);
  void* const address = ::mmap(nullptr, num_bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  check(
      address != MAP_FAILED,
      ErrorKind::data,
      "data-unreadable",
      "data file '{}' ({} bytes) cannot be mapped: {}\n  fix   raise `ulimit -v`, or keep the file "
      "on a file system that can map files",
      path.string(),
      num_bytes,
      reason(errno));
  bytes_ = {static_cast<const std::uint8_t*>(address), num_bytes};
  device_ = info.st_dev;
  inode_ = info.st_ino;
}

void MappedFile::require_whole() const {
  struct stat now = {};
  const bool here = ::stat(path_.c_str(), &now) == 0 && now.st_dev == device_ &&
                    now.st_ino == inode_;  // one that was renamed or removed stays mapped as it was
  const auto num_bytes = here ? static_cast<std::size_t>(now.st_size) : bytes_.size();
  check(
      num_bytes >= bytes_.size(),
      ErrorKind::data,
      "data-unreadable",
      "data file '{}' has shrunk from {} to {} bytes while it was in use\n  fix   restore it, and "
      "start again; put a new file in its place by renaming, never by writing into it",
      path_.string(),
      bytes_.size(),
      num_bytes);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_(std::exchange(other.bytes_, {})),
      device_(other.device_),
      inode_(other.inode_) {}

std::string identity_of(std::span<const std::uint8_t> bytes) {
  return fmt::format("{}:{:08x}", bytes.size(), crc32c(std::as_bytes(bytes)));
}

}  // namespace colossal::detail
