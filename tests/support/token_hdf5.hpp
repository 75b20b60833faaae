// How do tests make HDF5 files of token ids? With the library, in every way that a file can be
// right or wrong.
#pragma once

#include "core/detail/hdf5.hpp"
#include "support/catch.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace colossal::test {

/// A file of ids as it is to be written.
struct TokenHdf5 {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> documents = {};  ///< doc_offsets; none: no such dataset
  hid_t type = H5T_STD_U16LE;                ///< of `tokens`
  hsize_t chunk = 0;                         ///< ids a chunk; 0: contiguous
  bool deflate = false;
  int dims = 1;
  std::string name = "tokens";
  std::int64_t version = 1;                ///< attribute; 0: none
  hsize_t versions = 1;                    ///< how often that attribute holds it
  std::string format = "colossal-tokens";  ///< attribute; empty: none
  bool variable = false;                   ///< the length of that text
  bool filled = true;                      ///< false: the dataset is made, and never written
};

inline void write_dataset(hid_t file,
                          const std::string& name,
                          const std::vector<std::int64_t>& values,
                          const TokenHdf5& form) {
  const std::vector<hsize_t> lengths = form.dims == 2 ? std::vector<hsize_t>{values.size() / 2, 2}
                                                      : std::vector<hsize_t>{values.size()};
  const H5Space space(H5Screate_simple(form.dims, lengths.data(), nullptr));
  const H5Properties layout(H5Pcreate(H5P_DATASET_CREATE));
  if (form.chunk > 0) {
    REQUIRE(H5Pset_chunk(layout.id(), 1, &form.chunk) >= 0);
  }
  if (form.deflate) {
    REQUIRE(H5Pset_deflate(layout.id(), 4) >= 0);
  }
  const H5Dataset dataset(
      H5Dcreate2(file, name.c_str(), form.type, space.id(), H5P_DEFAULT, layout.id(), H5P_DEFAULT));
  REQUIRE(dataset.valid());
  if (form.filled) {
    REQUIRE(H5Dwrite(
                dataset.id(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
  }
}

inline void write_attributes(hid_t file, const TokenHdf5& form) {
  if (form.version > 0) {
    const H5Space space(form.versions == 1 ? H5Screate(H5S_SCALAR)
                                           : H5Screate_simple(1, &form.versions, nullptr));
    const Handle<&H5Aclose> attribute(
        H5Acreate2(file, "version", H5T_STD_I64LE, space.id(), H5P_DEFAULT, H5P_DEFAULT));
    const std::vector<std::int64_t> values(form.versions, form.version);
    REQUIRE(H5Awrite(attribute.id(), H5T_NATIVE_INT64, values.data()) >= 0);
  }
  if (!form.format.empty()) {
    const H5Space scalar(H5Screate(H5S_SCALAR));
    const H5Type text(H5Tcopy(H5T_C_S1));
    REQUIRE(H5Tset_size(text.id(), form.variable ? H5T_VARIABLE : form.format.size()) >= 0);
    const Handle<&H5Aclose> attribute(
        H5Acreate2(file, "format", text.id(), scalar.id(), H5P_DEFAULT, H5P_DEFAULT));
    const char* const chars = form.format.c_str();
    const void* const data = form.variable ? static_cast<const void*>(&chars) : chars;
    REQUIRE(H5Awrite(attribute.id(), text.id(), data) >= 0);
  }
}

/// Writes it and returns the path.
inline std::filesystem::path write_hdf5(const std::filesystem::path& path, const TokenHdf5& form) {
  prepare_hdf5();
  const Handle<&H5Fclose> file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  REQUIRE(file.valid());
  write_dataset(file.id(), form.name, form.ids, form);
  if (!form.documents.empty()) {
    write_dataset(file.id(), "doc_offsets", form.documents, {.ids = {}, .type = H5T_STD_I64LE});
  }
  write_attributes(file.id(), form);
  return path;
}

}  // namespace colossal::test
