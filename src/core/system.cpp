// How are descriptors closed, files read and hosts named?
#include "core/system.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace colossal {

Descriptor::~Descriptor() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  Descriptor old(std::exchange(fd_, other.release()));
  return *this;
}

int Descriptor::release() noexcept {
  return std::exchange(fd_, -1);
}

namespace {

/// All bytes of an open file, or nothing and why.
std::optional<std::string> read_all(int source, std::error_code& error) {
  constexpr std::size_t kPiece = 65536;
  std::string text;
  ssize_t count = source < 0 ? -1 : 1;
  while (count > 0) {
    const std::size_t size = text.size();
    text.resize(size + kPiece);
    do {
      count = ::read(source, text.data() + size, kPiece);
    } while (count < 0 && errno == EINTR);
    text.resize(size + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
  error = count < 0 ? std::error_code(errno, std::generic_category()) : std::error_code();
  return count < 0 ? std::nullopt : std::optional(std::move(text));
}

/// A copy of standard input that can be opened again and again; closed until it was read.
struct StdinCopy {
  std::optional<std::string> text;
  Descriptor file;
  std::atomic<bool> is_read{false};
};

/// Process-wide, as the stream is: what has been read is gone for the next one who asks.
StdinCopy& stdin_copy() {
  static StdinCopy copy;
  return copy;
}

bool take_stdin() {
  StdinCopy& copy = stdin_copy();
  std::error_code ignored;
  copy.text = read_all(STDIN_FILENO, ignored);
  copy.file = Descriptor(::memfd_create("stdin", MFD_CLOEXEC));
  const std::string text = copy.text.value_or("");
  copy.is_read = copy.file.get() >= 0 &&
                 ::write(copy.file.get(), text.data(), text.size()) == std::ssize(text);
  return true;
}

}  // namespace

std::optional<std::string> read_file(const std::filesystem::path& file, std::error_code& error) {
  const Descriptor source(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  return read_all(source.get(), error);
}

const std::optional<std::string>& stdin_text() {
  static const bool once = take_stdin();
  static_cast<void>(once);
  return stdin_copy().text;
}

std::string stdin_of_children() {
  const StdinCopy& copy = stdin_copy();
  return copy.is_read ? "/proc/self/fd/" + std::to_string(copy.file.get()) : "/dev/null";
}

std::string read_text(const std::filesystem::path& file) {
  std::error_code ignored;
  return read_file(file, ignored).value_or("");
}

std::string program_command() {
  std::error_code error;
  std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (self.filename() == "colossal-train-engine") {
    self.replace_filename("colossal-train");
  }
  const std::filesystem::path near = std::filesystem::proximate(self, error);
  if (error) {
    return "colossal-train";
  }
  return near.string().starts_with("..") ? self.string()
         : near.has_parent_path()        ? near.string()
                                         : "./" + near.string();  // a bare name is searched in PATH
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace colossal
