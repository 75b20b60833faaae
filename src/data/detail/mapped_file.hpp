// How are the bytes of a data file reached? Mapped read-only into memory: no copy, shared by all
// ranks of a machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace colossal::detail {

/// A whole file mapped read-only. Safe for concurrent reads; the file must not shrink meanwhile.
class MappedFile {
 public:
  /// Errors: data "file-not-found", "data-unreadable" (no permission, a directory, ...),
  /// "data-empty" (0 bytes).
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::uint8_t> bytes() const noexcept { return bytes_; }

 private:
  std::span<const std::uint8_t> bytes_;
};

/// Identity of a content: its size and checksum.
[[nodiscard]] std::string identity_of(std::span<const std::uint8_t> bytes);

}  // namespace colossal::detail
