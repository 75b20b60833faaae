// How does a file appear only when it is whole? Written under another name and renamed at the end.
#pragma once

#include "core/system.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

namespace colossal {

/// Opens the file of this name for writing, makes it if need be, and locks it. What is returned is
/// locked and still has that name: other writers rename what they have locked. `opened` is called
/// between opening and locking; a test is the other writer there. Errors: environment
/// "output-write", also if another process holds the lock.
[[nodiscard]] Descriptor open_locked(const std::filesystem::path& name,
                                     const std::function<void()>& opened = {});

/// A file in the making. Without commit() nothing stays behind.
class OutputFile {
 public:
  /// Opens and locks PATH.tmp; what a killed process left there is overwritten. Errors: environment
  /// "output-write", also if another process writes it.
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Appends bytes, buffered. Errors: environment "output-write" (disk full, ...).
  void write(std::span<const std::byte> bytes);
  /// Appends a number or struct as it lies in memory.
  template <class T>
  void write_value(const T& value) {
    write(std::as_bytes(std::span(&value, 1)));
  }
  /// Writes everything to the disk. Errors: environment "output-write".
  void finish();
  /// Gives the finished file its name, replacing what has it, and the name to the disk. Errors:
  /// environment "output-write".
  void commit();

 private:
  void flush();
  void write_through(std::span<const std::byte> rest);

  std::filesystem::path path_;
  std::filesystem::path temporary_;  ///< empty: nothing of ours is left
  Descriptor descriptor_;            ///< open as long as the object: its lock covers the renaming
  std::vector<std::byte> buffer_;
};

}  // namespace colossal
