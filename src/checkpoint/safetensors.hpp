// How do weights travel between programs? One file of named tensors, as Python's safetensors has
// it.
#pragma once

#include "core/output_file.hpp"
#include "core/system.hpp"
#include "core/types.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// One entry of a file's header.
struct SafeTensor {
  std::string name;
  at::ScalarType dtype = at::kFloat;  ///< Undefined: stored in a type that LibTorch cannot compute
  Shape shape;
  std::int64_t bytes = 0;   ///< of its values
  std::int64_t offset = 0;  ///< of its first byte behind the header
};

/// "F32", "BF16", ... as in the header; "?" for a type that no header names.
[[nodiscard]] std::string_view safetensors_word(at::ScalarType dtype) noexcept;

/// A file that lies on disk, its header read and checked. Errors of all its functions: data
/// "file-not-found", "data-unreadable"; checkpoint "weights-damaged" (not such a file, truncated, a
/// header of more than 100 MB, parts that overlap or leave holes), "weights-dtype" (a type
/// that is unknown or, by read(), cannot be computed with).
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::filesystem::path path);

  /// All entries in the order of their bytes.
  [[nodiscard]] std::span<const SafeTensor> tensors() const noexcept { return tensors_; }
  /// The entry of that name; null if there is none.
  [[nodiscard]] const SafeTensor* find(std::string_view name) const noexcept;
  /// The values of one of tensors(), in new memory.
  [[nodiscard]] at::Tensor read(const SafeTensor& tensor) const;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void read_bytes(std::span<std::byte> into, std::int64_t at) const;

  std::filesystem::path path_;
  Descriptor file_;
  std::int64_t data_begin_ = 0;
  std::vector<SafeTensor> tensors_;
};

/// A file in the making: one tensor after the other, so that no two need be in memory. Without
/// commit() nothing stays behind.
class SafetensorsWriter {
 public:
  /// Names, types and shapes of everything that will be written, in that order. Errors of all its
  /// functions: environment "output-write"; internal "weights-order".
  SafetensorsWriter(const std::filesystem::path& path, std::vector<SafeTensor> tensors);

  /// The next tensor, of the announced type and shape.
  void write(const at::Tensor& values);
  /// Gives the file its name, replacing what has it; every tensor must have been written.
  void commit();

 private:
  OutputFile file_;
  std::vector<SafeTensor> tensors_;
  std::size_t next_ = 0;
};

}  // namespace colossal
