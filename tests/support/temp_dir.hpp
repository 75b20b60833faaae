// Where may a test write? A fresh folder that vanishes with the object.
#pragma once

#include <filesystem>
#include <random>
#include <string>

namespace colossal::test {

/// A new empty folder under the system's temporary folder, removed with everything in it by the
/// destructor.
class TempDir {
 public:
  TempDir()
      : path_(std::filesystem::temp_directory_path() /
              ("colossal-" + std::to_string(std::random_device{}()))) {
    std::filesystem::create_directories(path_);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace colossal::test
