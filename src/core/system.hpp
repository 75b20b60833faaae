// What do several folders ask of the operating system? Descriptors that close themselves, the text
// of a file, the host's name.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

namespace colossal {

/// An open file descriptor, closed with the object; -1 is none.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  /// The descriptor itself, for system calls.
  [[nodiscard]] int get() const noexcept { return fd_; }
  /// Hands the descriptor to the caller, who closes it.
  [[nodiscard]] int release() noexcept;

 private:
  int fd_;
};

/// All bytes of a file, or nothing and why if it cannot be opened or read to its end. What can be
/// read only once (a pipe, an open descriptor such as /dev/stdin) is kept: this process and the
/// ranks that it starts get the same text again.
[[nodiscard]] std::optional<std::string> read_file(const std::filesystem::path& file,
                                                   std::error_code& error);

/// Content of a file; empty if it cannot be read.
[[nodiscard]] std::string read_text(const std::filesystem::path& file);

/// Everything that standard input holds, read at the first call; nothing if it cannot be read.
[[nodiscard]] const std::optional<std::string>& stdin_text();

/// The file that child processes should open as their standard input: the text once stdin_text()
/// has been asked for, else /dev/null.
[[nodiscard]] std::string stdin_of_children();

/// The variable, and its value, by which child processes find what read_file() has kept; an empty
/// value if that is nothing.
struct KeptFiles {
  static constexpr const char* kVariable = "COLOSSAL_KEPT_FILES";
  std::string value;
};
/// What read_file() has kept so far, for child processes.
[[nodiscard]] KeptFiles kept_files();

/// Whether a name stands for an open descriptor (/dev/stdin, /dev/fd/63), not for a place on disk:
/// nothing lies beside it.
[[nodiscard]] bool names_descriptor(const std::filesystem::path& file);

/// The folder from which relative names in a file count; empty, the working directory, for an open
/// descriptor.
[[nodiscard]] std::filesystem::path folder_of(const std::filesystem::path& file);

/// This program as a command that works from the working directory, whatever PATH says; the program
/// that users start, where a second one beside it runs (apps/README.md).
[[nodiscard]] std::string program_command();

/// Name of this host; "unknown" if the system does not tell.
[[nodiscard]] std::string host_name();

}  // namespace colossal
