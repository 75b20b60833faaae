// How does a file reach the disk for good, and what is said when it does not?
#pragma once

#include <filesystem>
#include <string_view>

namespace colossal::detail {

/// Throws checkpoint "checkpoint-write" naming `file`, the cause (errno if not 0, else `text`) and
/// the fix.
[[noreturn]] void fail_write(const std::filesystem::path& file,
                             int error_number,
                             std::string_view text);

/// Flushes one file or folder to the device. Errors: as fail_write().
void sync_to_disk(const std::filesystem::path& path);

/// Writes `text` into a new file beside `path`, flushes it and renames it over `path`. Errors: as
/// fail_write().
void write_text(const std::filesystem::path& path, std::string_view text);

/// Puts folder `from` at `to`. If `to` exists the two are exchanged in one step where the file
/// system can (Linux renameat2), so that a complete folder is at `to` at all times; the old one is
/// then at `from`. Errors: as fail_write().
void move_into_place(const std::filesystem::path& from, const std::filesystem::path& to);

/// Makes a file 0 bytes long; says nothing if it cannot.
void empty_file(const std::filesystem::path& path) noexcept;

/// Removes a folder with all its files; false if something is left.
bool remove_folder(const std::filesystem::path& path) noexcept;

}  // namespace colossal::detail
