// How does a log of records grow while a run goes on?
#pragma once

#include "core/system.hpp"

#include <filesystem>
#include <string_view>

namespace colossal {

/// A file that grows by whole records. Each record is one write call, so that a reader never sees
/// half of one; a record that cannot be written (full disk) is lost with a warning, leaves nothing
/// behind and does not end the run.
class AppendFile {
 public:
  /// Opened by the first append(); created then if need be, folder included.
  explicit AppendFile(std::filesystem::path path);

  /// Where the records go.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Adds the bytes of one record. Never throws for a failing file system.
  void append(std::string_view record);

 private:
  void open();
  void lose(int error) const;

  std::filesystem::path path_;
  Descriptor file_;
};

}  // namespace colossal
