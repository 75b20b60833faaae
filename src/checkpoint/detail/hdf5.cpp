// How is the HDF5 C library called so that nothing leaks and every failure becomes an Error?
#include "checkpoint/detail/hdf5.hpp"

#include "checkpoint/detail/durable.hpp"
#include "checkpoint/detail/manifest.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

namespace colossal::detail {
namespace {

struct DtypeName {
  at::ScalarType dtype;
  std::string_view name;
};

constexpr std::array<DtypeName, 5> kDtypes{{{at::kDouble, "float64"},
                                            {at::kFloat, "float32"},
                                            {at::kBFloat16, "bfloat16"},
                                            {at::kHalf, "float16"},
                                            {at::kLong, "int64"}}};

/// The failure of the last call.
struct LastFailure {
  std::string text = hdf5_failure();
  int error_number = 0;
};

LastFailure last_failure() {
  LastFailure failure;
  // The file driver writes "..., errno = 28, error message = ..." into its text: there is no other
  // way to the number.
  constexpr std::string_view kMark = "errno = ";
  const std::size_t at = failure.text.find(kMark);
  if (at != std::string::npos) {
    const char* begin = failure.text.data() + at + kMark.size();
    std::from_chars(begin, failure.text.data() + failure.text.size(), failure.error_number);
  }
  return failure;
}

/// A 2-byte float from a 4-byte one.
H5Type small_float(std::size_t exponent_bits, std::size_t exponent_bias) {
  H5Type type(H5Tcopy(H5T_IEEE_F32LE));
  const std::size_t mantissa_bits = 15 - exponent_bits;
  const bool ok =
      H5Tset_fields(type.id(), 15, mantissa_bits, exponent_bits, 0, mantissa_bits) >= 0 &&
      H5Tset_size(type.id(), 2) >= 0 && H5Tset_ebias(type.id(), exponent_bias) >= 0;
  check(ok,
        ErrorKind::internal,
        "hdf5-type",
        "HDF5 refuses a float with {} exponent bits",
        exponent_bits);
  return type;
}

/// Strong: closing the file closes what is still open in it. V110 groups and links are smaller and
/// faster to make.
H5Properties access_properties() {
  prepare_hdf5();
  H5Properties properties(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_fclose_degree(properties.id(), H5F_CLOSE_STRONG);
  H5Pset_libver_bounds(properties.id(), H5F_LIBVER_V110, H5F_LIBVER_V110);
  return properties;
}

}  // namespace

H5File::H5File(std::filesystem::path path, H5Access access)
    : path_(std::move(path)), access_(access) {
  // Lives until the result is checked: every library call, also a close, forgets the failure before
  // it.
  const H5Properties properties = access_properties();
  if (access == H5Access::create) {
    id_ = H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, properties.id());
    require(id_ >= 0, "create the file");
  } else {
    id_ = H5Fopen(path_.c_str(), H5F_ACC_RDONLY, properties.id());
    require(id_ >= 0, "open the file");
  }
}

H5File::H5File(H5File&& other) noexcept
    : path_(std::move(other.path_)),
      access_(other.access_),
      id_(std::exchange(other.id_, H5I_INVALID_HID)) {}

H5File::~H5File() {
  if (id_ < 0) {
    return;
  }
  H5Fclose(id_);
  if (access_ == H5Access::create) {
    empty_file(path_);
  }
}

void H5File::require(bool ok, std::string_view action) const {
  if (ok) {
    return;
  }
  const LastFailure failure = last_failure();
  if (access_ == H5Access::create) {
    fail_write(path_, failure.error_number, failure.text);
  }
  require_readable(path_, std::error_code(failure.error_number, std::generic_category()));
  fail(ErrorKind::checkpoint,
       "checkpoint-incomplete",
       "{} is damaged: cannot {}: {}",
       path_.string(),
       action,
       failure.text);
}

void H5File::close() {
  const hid_t id = std::exchange(id_, H5I_INVALID_HID);
  if (H5Fclose(id) < 0) {
    const LastFailure failure = last_failure();
    if (access_ == H5Access::create) {
      empty_file(path_);
      fail_write(path_, failure.error_number, failure.text);
    }
  }
}

H5Type h5_type(at::ScalarType dtype) {
  prepare_hdf5();
  switch (dtype) {
    case at::kDouble:
      return H5Type(H5Tcopy(H5T_IEEE_F64LE));
    case at::kFloat:
      return H5Type(H5Tcopy(H5T_IEEE_F32LE));
    case at::kBFloat16:
      return small_float(8, 127);
    case at::kHalf:
      return small_float(5, 15);
    default:
      return H5Type(H5Tcopy(H5T_STD_I64LE));
  }
}

bool is_storable(at::ScalarType dtype) noexcept {
  return std::ranges::any_of(kDtypes, [&](const DtypeName& entry) { return entry.dtype == dtype; });
}

std::string_view dtype_name(at::ScalarType dtype) noexcept {
  const auto it = std::ranges::find(kDtypes, dtype, &DtypeName::dtype);
  return it == kDtypes.end() ? std::string_view("unsupported") : it->name;
}

at::ScalarType dtype_of(std::string_view name) noexcept {
  const auto it = std::ranges::find(kDtypes, name, &DtypeName::name);
  return it == kDtypes.end() ? at::ScalarType::Undefined : it->dtype;
}

std::vector<hsize_t> h5_dims(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

H5Space h5_space(const Shape& shape) {
  prepare_hdf5();
  if (shape.empty()) {
    return H5Space(H5Screate(H5S_SCALAR));
  }
  const std::vector<hsize_t> dims = h5_dims(shape);
  return H5Space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr));
}

H5Properties h5_make_groups() {
  prepare_hdf5();
  H5Properties properties(H5Pcreate(H5P_LINK_CREATE));
  H5Pset_create_intermediate_group(properties.id(), 1);
  return properties;
}

}  // namespace colossal::detail
