// What can go wrong between the first byte and the name? Each cause is reported by the system's
// words.
#include "data/detail/output_file.hpp"

#include "core/error.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace colossal::detail {
namespace {

constexpr std::size_t kBufferBytes = 1U << 20U;
constexpr int kReadableByAll = 0644;

}  // namespace

OutputFile::OutputFile(std::filesystem::path path)
    : path_(std::move(path)), temporary_(fmt::format("{}.tmp-{}", path_.string(), ::getpid())) {
  descriptor_ =
      ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kReadableByAll);
  if (descriptor_ < 0) {
    failed("created");
  }
  buffer_.reserve(kBufferBytes);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
  }
}

void OutputFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) {
    flush();
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void OutputFile::flush() {
  std::span<const std::byte> rest = buffer_;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      failed("written");
    }
    rest = rest.subspan(static_cast<std::size_t>(written));
  }
  buffer_.clear();
}

void OutputFile::finish() {
  flush();
  if (::fsync(descriptor_) != 0) {
    failed("written");
  }
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    failed("closed");
  }
}

void OutputFile::commit() {
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    failed("renamed");
  }
  temporary_.clear();
}

void OutputFile::failed(const char* what) const {
  const int code = errno;
  fail(ErrorKind::environment,
       "output-write",
       "'{}' cannot be {}: {}\n  fix   choose a folder that exists, is writable and has room",
       temporary_.string(),
       what,
       std::generic_category().message(code));
}

}  // namespace colossal::detail
