// How are descriptors closed, files read and hosts named?
#include "core/system.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <sstream>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

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

/// Puts a text where it can be opened again and again; -1 where the system has no such place.
Descriptor in_memory(const char* name, std::string_view text, unsigned flags) {
  Descriptor file(::memfd_create(name, flags));
  const bool whole =
      file.get() >= 0 && ::write(file.get(), text.data(), text.size()) == std::ssize(text);
  return whole ? std::move(file) : Descriptor();
}

bool take_stdin() {
  StdinCopy& copy = stdin_copy();
  std::error_code ignored;
  copy.text = read_all(STDIN_FILENO, ignored);
  copy.file = in_memory("stdin", copy.text.value_or(""), MFD_CLOEXEC);
  copy.is_read = copy.file.get() >= 0;
  return true;
}

std::string name_of_descriptor(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

/// Texts of what can be read only once, by name. Process-wide, as the pipes are.
class KeptTexts {
 public:
  /// With what the process that started this one has kept.
  KeptTexts() {
    const char* given = ::getenv(KeptFiles::kVariable);  // NOLINT(concurrency-mt-unsafe): not set
    std::istringstream entries(given == nullptr ? "" : given);
    for (std::string entry; std::getline(entries, entry);) {
      const std::size_t colon = entry.find(':');
      const int number = std::atoi(entry.c_str());  // NOLINT(cert-err34-c): written by this program
      const Descriptor file(::open(name_of_descriptor(number).c_str(), O_RDONLY | O_CLOEXEC));
      std::error_code error;
      if (auto text = read_all(file.get(), error); text && colon != std::string::npos) {
        texts_.emplace(entry.substr(colon + 1), std::move(*text));
      }
    }
  }

  [[nodiscard]] std::optional<std::string> find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = texts_.find(name);
    return found == texts_.end() ? std::nullopt : std::optional(found->second);
  }

  /// Children inherit the descriptor, so it is not closed when they start.
  void keep(const std::string& name, const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_.emplace(name, text);
    Descriptor& file = files_.emplace_back(in_memory("kept", text, 0));
    if (file.get() >= 0) {
      entries_ += std::to_string(file.get()) + ":" + name + "\n";
    }
  }

  [[nodiscard]] std::string entries() {
    const std::lock_guard lock(mutex_);
    return entries_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> texts_;
  std::vector<Descriptor> files_;
  std::string entries_;
};

KeptTexts& kept_texts() {
  static KeptTexts texts;
  return texts;
}

bool is_regular(int fd) {
  struct stat status{};
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

std::optional<std::string> read_file(const std::filesystem::path& file, std::error_code& error) {
  if (auto kept = kept_texts().find(file.string())) {
    error.clear();
    return kept;
  }
  const Descriptor source(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  auto text = read_all(source.get(), error);
  if (text && (names_descriptor(file) || !is_regular(source.get()))) {
    kept_texts().keep(file.string(), *text);
  }
  return text;
}

KeptFiles kept_files() {
  return {kept_texts().entries()};
}

bool names_descriptor(const std::filesystem::path& file) {
  const std::string name = file.lexically_normal().string();
  return name == "/dev/stdin" || name.starts_with("/dev/fd/") || name.starts_with("/proc/self/fd/");
}

std::filesystem::path folder_of(const std::filesystem::path& file) {
  return names_descriptor(file) ? std::filesystem::path() : file.parent_path();
}

const std::optional<std::string>& stdin_text() {
  static const bool once = take_stdin();
  static_cast<void>(once);
  return stdin_copy().text;
}

std::string stdin_of_children() {
  const StdinCopy& copy = stdin_copy();
  return copy.is_read ? name_of_descriptor(copy.file.get()) : "/dev/null";
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
