// What does the HDF5 library say about itself?
#include "checkpoint/hdf5_info.hpp"

#include "checkpoint/detail/hdf5.hpp"

#include <fmt/format.h>

namespace colossal {

Hdf5Info hdf5_info() {
  prepare_hdf5();
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  hbool_t thread_safe = 0;
  H5get_libversion(&major, &minor, &release);  // cannot fail
  H5is_library_threadsafe(&thread_safe);
  return {.version = fmt::format("{}.{}.{}", major, minor, release),
          .thread_safe = thread_safe != 0,
          .deflate = H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0,
          .same_as_built =
              major == H5_VERS_MAJOR && minor == H5_VERS_MINOR && release == H5_VERS_RELEASE,
          .built_version = fmt::format("{}.{}.{}", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE)};
}

}  // namespace colossal
