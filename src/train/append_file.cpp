// How does a record reach its file whole or not at all?
#include "train/append_file.hpp"

#include "core/log.hpp"

#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace colossal {

AppendFile::AppendFile(std::filesystem::path path) : path_(std::move(path)) {}

void AppendFile::append(std::string_view record) {
  if (file_.get() < 0) {
    open();
    if (file_.get() < 0) {
      lose(errno);
      return;
    }
  }
  const off_t before = ::lseek(file_.get(), 0, SEEK_END);
  const ssize_t written = ::write(file_.get(), record.data(), record.size());
  if (written != static_cast<ssize_t>(record.size())) {
    lose(written < 0 ? errno : ENOSPC);  // a short write sets no errno
    static_cast<void>(::ftruncate(file_.get(), before));
  }
}

void AppendFile::open() {
  std::error_code ignored;  // a folder that cannot be made shows in open()
  std::filesystem::create_directories(path_.parent_path(), ignored);
  // Not blocking: a pipe that nobody reads must not stop the run.
  constexpr int kFlags = O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  file_ = Descriptor(::open(path_.c_str(), kFlags, 0644));
}

void AppendFile::lose(int error) const {
  log::warn(
      "[run] {}: a record is lost: {}", path_.string(), std::system_category().message(error));
}

}  // namespace colossal
