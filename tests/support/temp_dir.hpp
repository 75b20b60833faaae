// Where may a test write? A fresh folder that vanishes with the object.
#pragma once

#include <filesystem>
#include <string>

namespace colossal::test {

/// A new empty folder under the system's temporary folder, removed with everything in it by the
/// destructor.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace colossal::test
