// What did PyTorch compute? Reads the fixtures that scripts/golden/*.py record (HDF5).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace colossal::test {

/// One fixture, open for reading. Paths are those inside the file: "default/weights/norm.bias".
/// Whatever is missing throws std::runtime_error naming it, which fails the test.
class Golden {
 public:
  explicit Golden(const std::filesystem::path& path);
  ~Golden();
  Golden(const Golden&) = delete;
  Golden& operator=(const Golden&) = delete;

  /// A dataset as fp32, fp64 or int64, as stored.
  [[nodiscard]] at::Tensor tensor(const std::string& name) const;
  /// Names of what a group holds, in alphabetical order.
  [[nodiscard]] std::vector<std::string> names(const std::string& group) const;
  /// A numeric attribute of a group.
  [[nodiscard]] double number(const std::string& group, const std::string& name) const;
  /// The same, as an integer.
  [[nodiscard]] std::int64_t integer(const std::string& group, const std::string& name) const;
  /// A fixed-length text attribute of a group.
  [[nodiscard]] std::string text(const std::string& group, const std::string& name) const;

 private:
  using Id = std::int64_t;  // hid_t of HDF5 1.10 and later

  void require(bool ok, const std::string& what) const;
  void with_attribute(const std::string& group,
                      const std::string& name,
                      const std::function<int(Id)>& read) const;

  std::string path_;
  Id file_;
};

}  // namespace colossal::test
