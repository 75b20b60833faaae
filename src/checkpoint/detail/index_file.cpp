// What do foreign readers open? index.h5: every tensor whole, under its canonical path, as a view
// into the rank files.
#include "checkpoint/detail/index_file.hpp"

#include "checkpoint/detail/durable.hpp"
#include "checkpoint/detail/hdf5.hpp"

#include <cstdint>
#include <vector>

namespace colossal::detail {
namespace {

namespace fs = std::filesystem;

/// The sign-free quiet NaN of the type, in the low bytes (little-endian); the least number for
/// int64, which has no NaN.
std::uint64_t missing_value(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 0x7FF8'0000'0000'0000;
    case at::kFloat:
      return 0x7FC0'0000;
    case at::kBFloat16:
      return 0x7FC0;
    case at::kHalf:
      return 0x7E00;
    default:
      return 0x8000'0000'0000'0000;
  }
}

class IndexWriter {
 public:
  IndexWriter(const fs::path& path, const Manifest& manifest)
      : manifest_(manifest), file_(path, H5Access::create), groups_(h5_make_groups()) {}

  void write(const StoredTensor& tensor) const {
    if (tensor.global.empty()) {
      link(tensor);
    } else {
      map(tensor);
    }
  }

  void close() { file_.close(); }

 private:
  [[nodiscard]] const char* file_name(const StoredBox& box) const {
    return manifest_.files[static_cast<std::size_t>(box.file)].name.c_str();
  }

  /// Virtual datasets need at least one dim.
  void link(const StoredTensor& tensor) const {
    const StoredBox& box = tensor.boxes.front();
    const herr_t made = H5Lcreate_external(file_name(box),
                                           box.dataset.c_str(),
                                           file_.id(),
                                           tensor.name.c_str(),
                                           groups_.id(),
                                           H5P_DEFAULT);
    file_.require(made >= 0, "link a scalar");
  }

  void map(const StoredTensor& tensor) const {
    const H5Type type = h5_type(tensor.dtype);
    const H5Space whole = h5_space(tensor.global);
    const H5Properties layout(H5Pcreate(H5P_DATASET_CREATE));
    const std::uint64_t missing = missing_value(tensor.dtype);
    H5Pset_fill_value(layout.id(), type.id(), &missing);
    for (const StoredBox& box : tensor.boxes) {
      const H5Space source = h5_space(box.box.extent);
      const std::vector<hsize_t> offset = h5_dims(box.box.offset);
      const std::vector<hsize_t> extent = h5_dims(box.box.extent);
      H5Sselect_hyperslab(
          whole.id(), H5S_SELECT_SET, offset.data(), nullptr, extent.data(), nullptr);
      const herr_t mapped =
          H5Pset_virtual(layout.id(), whole.id(), file_name(box), box.dataset.c_str(), source.id());
      file_.require(mapped >= 0, "map a box");
    }
    H5Dataset dataset(H5Dcreate2(file_.id(),
                                 tensor.name.c_str(),
                                 type.id(),
                                 whole.id(),
                                 groups_.id(),
                                 layout.id(),
                                 H5P_DEFAULT));
    file_.require(dataset.valid(), "create a virtual dataset");
    file_.require(dataset.close(), "flush a virtual dataset");
  }

  const Manifest& manifest_;
  H5File file_;
  H5Properties groups_;
};

}  // namespace

StoredFile write_index(const fs::path& folder, const Manifest& manifest) {
  const fs::path path = folder / kIndexName;
  IndexWriter writer(path, manifest);
  for (const StoredTensor& tensor : manifest.tensors) {
    writer.write(tensor);
  }
  writer.close();
  sync_to_disk(path);
  return {std::string(kIndexName), static_cast<std::int64_t>(fs::file_size(path))};
}

}  // namespace colossal::detail
