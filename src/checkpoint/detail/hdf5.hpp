// How is the HDF5 C library called so that nothing leaks and every failure becomes an Error?
#pragma once

#include "core/detail/hdf5.hpp"
#include "core/types.hpp"

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::detail {

/// What an open file is for; decides the id of its errors.
enum class H5Access : std::uint8_t { read, create };

/// An open HDF5 file. A created file that is not close()d is worthless: its destructor empties it,
/// so that a full disk gets its space back even if the library cannot let go of the file.
class H5File {
 public:
  /// Errors: checkpoint "checkpoint-write" (create), "checkpoint-incomplete" (read), naming file
  /// and cause.
  H5File(std::filesystem::path path, H5Access access);
  H5File(H5File&& other) noexcept;
  H5File& operator=(H5File&&) = delete;
  H5File(const H5File&) = delete;
  H5File& operator=(const H5File&) = delete;
  ~H5File();

  [[nodiscard]] hid_t id() const noexcept { return id_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Throws the error of the last failed library call on this file, if not `ok`; `action`: "write
  /// dataset x".
  void require(bool ok, std::string_view action) const;
  /// Flushes and closes. Errors: as the constructor.
  void close();

 private:
  std::filesystem::path path_;
  H5Access access_;
  hid_t id_ = H5I_INVALID_HID;
};

/// The stored type: little-endian IEEE, bfloat16 as a 2-byte float with 8 exponent bits.
/// Precondition: is_storable(dtype).
[[nodiscard]] H5Type h5_type(at::ScalarType dtype);

/// True for the five types a checkpoint can hold.
[[nodiscard]] bool is_storable(at::ScalarType dtype) noexcept;

/// "float32", "bfloat16", ... as in the manifest.
[[nodiscard]] std::string_view dtype_name(at::ScalarType dtype) noexcept;

/// The type of that name; Undefined for an unknown one.
[[nodiscard]] at::ScalarType dtype_of(std::string_view name) noexcept;

/// A dataspace of this shape; scalar for no dims.
[[nodiscard]] H5Space h5_space(const Shape& shape);

/// Shape as the library wants it.
[[nodiscard]] std::vector<hsize_t> h5_dims(const Shape& shape);

/// Link creation list that makes missing groups of a path.
[[nodiscard]] H5Properties h5_make_groups();

}  // namespace colossal::detail
