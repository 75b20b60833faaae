// How does a file reach the disk for good, and what is said when it does not?
#include "checkpoint/detail/durable.hpp"

#include "core/error.hpp"
#include "core/system.hpp"
#include "core/text.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace colossal::detail {
namespace {

namespace fs = std::filesystem;

Descriptor open_file(const fs::path& path, int flags) {
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC, 0644));
  if (file.get() < 0) {
    fail_write(path, errno, "");
  }
  return file;
}

void write_all(const fs::path& path, int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) {
      fail_write(path, errno, "");
    }
    text.remove_prefix(written > 0 ? static_cast<std::size_t>(written) : 0);
  }
}

std::string free_space(const fs::path& file) {
  std::error_code error;
  const fs::space_info space = fs::space(file.parent_path(), error);
  return error ? "" : fmt::format(" ({} free)", human_bytes(static_cast<double>(space.available)));
}

/// Two renames; a crash between them leaves no folder at `to`, so this is only for file systems
/// without exchange.
void swap_by_renames(const fs::path& from, const fs::path& to) {
  const fs::path aside = fs::path(from).concat("-old");
  if (std::rename(to.c_str(), aside.c_str()) != 0 || std::rename(from.c_str(), to.c_str()) != 0 ||
      std::rename(aside.c_str(), from.c_str()) != 0) {
    fail_write(to, errno, "");
  }
}

}  // namespace

void fail_write(const fs::path& file, int error_number, std::string_view text) {
  switch (error_number) {
    case ENOSPC:
      fail(ErrorKind::checkpoint,
           "checkpoint-write",
           "cannot write {}: no space left on its volume{}; free space there or lower "
           "checkpoint.keep_last",
           file.string(),
           free_space(file));
    case EDQUOT:
      fail(ErrorKind::checkpoint,
           "checkpoint-write",
           "cannot write {}: the disk quota of this user or group is used up (the volume itself is "
           "not full{}); delete "
           "files or ask for more quota",
           file.string(),
           free_space(file));
    case 0:
      fail(ErrorKind::checkpoint, "checkpoint-write", "cannot write {}: {}", file.string(), text);
    default:
      fail(ErrorKind::checkpoint,
           "checkpoint-write",
           "cannot write {}: {}",
           file.string(),
           std::generic_category().message(error_number));
  }
}

void sync_to_disk(const fs::path& path) {
  const Descriptor file = open_file(path, O_RDONLY);
  if (::fsync(file.get()) != 0) {
    fail_write(path, errno, "");
  }
}

void write_text(const fs::path& path, std::string_view text) {
  const fs::path fresh = fs::path(path).concat(".new");
  {
    const Descriptor file = open_file(fresh, O_WRONLY | O_CREAT | O_TRUNC);
    write_all(path, file.get(), text);
    if (::fsync(file.get()) != 0) {
      fail_write(path, errno, "");
    }
  }
  if (std::rename(fresh.c_str(), path.c_str()) != 0) {
    fail_write(path, errno, "");
  }
}

void move_into_place(const fs::path& from, const fs::path& to) {
  if (!fs::exists(to)) {
    if (std::rename(from.c_str(), to.c_str()) != 0) {
      fail_write(to, errno, "");
    }
    return;
  }
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) {
      fail_write(to, errno, "");
    }
    swap_by_renames(from, to);
  }
}

void empty_file(const fs::path& path) noexcept {
  std::error_code ignored;
  fs::resize_file(path, 0, ignored);
}

bool remove_folder(const fs::path& path) noexcept {
  std::error_code error;
  fs::remove_all(path, error);
  return !error;
}

}  // namespace colossal::detail
