// Which HDF5 library does this process use?
#pragma once

#include <string>

namespace colossal {

/// Version and build options of the HDF5 library that is loaded now.
struct Hdf5Info {
  std::string version;        ///< "1.10.8"
  bool thread_safe = false;   ///< calls from several threads are allowed
  bool deflate = false;       ///< can write and read compressed datasets
  bool same_as_built = true;  ///< its version is that of the headers this program was built with
  std::string built_version;  ///< of the headers
};

/// Asks the library.
[[nodiscard]] Hdf5Info hdf5_info();

}  // namespace colossal
