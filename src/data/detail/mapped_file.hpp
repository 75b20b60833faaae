// How are the bytes of a data file reached? Mapped read-only into memory: no copy, shared by all
// ranks of a machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <sys/types.h>

namespace colossal::detail {

/// A whole file mapped read-only. Safe for concurrent reads. A file that shrinks meanwhile ends the
/// process with SIGBUS at the first byte that is gone, unless require_whole() finds it before.
class MappedFile {
 public:
  /// Errors: data "file-not-found", "data-unreadable" (no permission, a directory, a pipe, ...),
  /// "data-empty" (0 bytes).
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::uint8_t> bytes() const noexcept { return bytes_; }
  /// To be asked before each read: one call of stat. Errors: data "data-unreadable" if the file has
  /// become shorter than what is mapped.
  void require_whole() const;

 private:
  std::filesystem::path path_;
  std::span<const std::uint8_t> bytes_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

/// Identity of a content: its size and checksum.
[[nodiscard]] std::string identity_of(std::span<const std::uint8_t> bytes);

}  // namespace colossal::detail
