// How is a folder for a test made and removed?
#include "support/temp_dir.hpp"

#include <random>
#include <system_error>

namespace fs = std::filesystem;

namespace colossal::test {

TempDir::TempDir()
    : path_(fs::temp_directory_path() / ("colossal-" + std::to_string(std::random_device{}()))) {
  fs::create_directories(path_);
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace colossal::test
