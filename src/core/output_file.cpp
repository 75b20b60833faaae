// What can go wrong between the first byte and the name? Each cause is reported by the system's
// words.
#include "core/output_file.hpp"

#include "core/error.hpp"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace colossal {
namespace {

constexpr std::size_t kBufferBytes = 1U << 20U;
constexpr int kReadableByAll = 0644;
constexpr int kMostAttempts = 100;

[[noreturn]] void failed(const char* what, const std::filesystem::path& file) {
  const int code = errno;
  fail(ErrorKind::environment,
       "output-write",
       "'{}' cannot be {}: {}\n  fix   choose a folder that exists, is writable and has room",
       file.string(),
       what,
       std::generic_category().message(code));
}

/// Is this name still that of the open file?
bool is_named(const Descriptor& file, const std::filesystem::path& name) {
  struct stat open = {};
  struct stat named = {};
  if (::fstat(file.get(), &open) != 0) {
    failed("examined", name);
  }
  return ::stat(name.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

}  // namespace

Descriptor open_locked(const std::filesystem::path& name, const std::function<void()>& opened) {
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    Descriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, kReadableByAll));
    if (file.get() < 0) {
      failed("created", name);
    }
    if (opened) {
      opened();
    }
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      failed("locked (does another process write it?)", name);
    }
    // Meanwhile another writer may have given the file its final name: then it is not ours to
    // empty.
    if (is_named(file, name)) {
      return file;
    }
  }
  errno = EBUSY;
  failed("locked (is its folder used by very many writers?)", name);
}

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)) {
  const std::string temporary = path_.string() + ".tmp";
  Descriptor file = open_locked(temporary);
  if (::ftruncate(file.get(), 0) != 0) {
    failed("emptied", temporary);
  }
  temporary_ = temporary;
  descriptor_ = std::move(file);
  buffer_.reserve(kBufferBytes);
}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
  }
}

void OutputFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) {
    flush();
  }
  if (bytes.size() > kBufferBytes) {
    write_through(bytes);  // a tensor of gigabytes needs no second copy
    return;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void OutputFile::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void OutputFile::write_through(std::span<const std::byte> rest) {
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      failed("written", temporary_);
    }
    rest = rest.subspan(static_cast<std::size_t>(written));
  }
}

void OutputFile::finish() {
  flush();
  if (::fsync(descriptor_.get()) != 0) {
    failed("written", temporary_);
  }
}

void OutputFile::commit() {
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    failed("renamed", temporary_);
  }
  temporary_.clear();
  // The name is on the disk when its folder is.
  const std::filesystem::path parent = path_.has_parent_path() ? path_.parent_path() : ".";
  const Descriptor folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 || (::fsync(folder.get()) != 0 && errno != EINVAL)) {  // EINVAL: cannot sync
    failed("synchronised", parent);
  }
}

}  // namespace colossal
