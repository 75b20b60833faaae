// How is a fixture read? With HDF5's C interface, ids closed before anything can throw.
#include "support/golden.hpp"

#include <ATen/ops/empty.h>
#include <hdf5.h>

#include <stdexcept>

namespace colossal::test {

Golden::Golden(const std::filesystem::path& path)
    : path_(path.string()), file_(H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)) {
  require(file_ >= 0, "the file");
}

Golden::~Golden() {
  H5Fclose(file_);
}

at::Tensor Golden::tensor(const std::string& name) const {
  const hid_t set = H5Dopen2(file_, name.c_str(), H5P_DEFAULT);
  require(set >= 0, name);
  const hid_t space = H5Dget_space(set);
  const hid_t type = H5Dget_type(set);
  std::vector<hsize_t> dims(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space)));
  H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  const bool real = H5Tget_class(type) == H5T_FLOAT;
  const bool wide = H5Tget_size(type) == 8;
  const at::ScalarType dtype = !real ? at::kLong : wide ? at::kDouble : at::kFloat;
  at::Tensor values =
      at::empty(std::vector<std::int64_t>(dims.begin(), dims.end()), at::dtype(dtype));
  const hid_t memory = !real ? H5T_NATIVE_INT64 : wide ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT;
  const herr_t status =
      H5Dread(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.mutable_data_ptr());
  H5Tclose(type);
  H5Sclose(space);
  H5Dclose(set);
  require(status >= 0, name);
  return values;
}

std::vector<std::string> Golden::names(const std::string& group) const {
  const hid_t id = H5Gopen2(file_, group.c_str(), H5P_DEFAULT);
  require(id >= 0, group);
  H5G_info_t info;
  H5Gget_info(id, &info);
  std::vector<std::string> result;
  for (hsize_t i = 0; i < info.nlinks; ++i) {
    std::string name(256, '\0');
    const ssize_t length = H5Lget_name_by_idx(
        id, ".", H5_INDEX_NAME, H5_ITER_INC, i, name.data(), name.size(), H5P_DEFAULT);
    name.resize(static_cast<std::size_t>(length));
    result.push_back(std::move(name));
  }
  H5Gclose(id);
  return result;
}

double Golden::number(const std::string& group, const std::string& name) const {
  double value = 0;
  with_attribute(group, name, [&](Id id) { return H5Aread(id, H5T_NATIVE_DOUBLE, &value); });
  return value;
}

std::int64_t Golden::integer(const std::string& group, const std::string& name) const {
  return static_cast<std::int64_t>(number(group, name));
}

std::string Golden::text(const std::string& group, const std::string& name) const {
  std::string value;
  with_attribute(group, name, [&](Id id) {
    const hid_t type = H5Aget_type(id);
    value.resize(H5Tget_size(type));
    const herr_t status = H5Aread(id, type, value.data());
    H5Tclose(type);
    return status;
  });
  return value;
}

void Golden::require(bool ok, const std::string& what) const {
  if (!ok) {
    throw std::runtime_error("golden fixture " + path_ + ": cannot read " + what);
  }
}

void Golden::with_attribute(const std::string& group,
                            const std::string& name,
                            const std::function<int(Id)>& read) const {
  const hid_t id = H5Aopen_by_name(file_, group.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
  require(id >= 0, group + "@" + name);
  const herr_t status = read(id);
  H5Aclose(id);
  require(status >= 0, group + "@" + name);
}

}  // namespace colossal::test
