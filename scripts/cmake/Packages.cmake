# Where the small third-party packages come from: the distribution's packages (README lists them).
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(Catch2 REQUIRED)

# yaml-cpp is linked statically: its soname differs between Debian 12 (0.7) and Ubuntu 24.04 (0.8).
find_library(COLOSSAL_YAML_CPP NAMES libyaml-cpp.a REQUIRED)
find_path(COLOSSAL_YAML_CPP_INCLUDE yaml-cpp/yaml.h REQUIRED)
add_library(colossal_yaml INTERFACE)
target_link_libraries(colossal_yaml INTERFACE ${COLOSSAL_YAML_CPP})
target_include_directories(colossal_yaml SYSTEM INTERFACE ${COLOSSAL_YAML_CPP_INCLUDE})

add_library(colossal_hdf5 INTERFACE)
# Only the library itself: FindHDF5 also lists what libhdf5.so was linked with.
list(GET HDF5_C_LIBRARIES 0 _hdf5)
target_link_libraries(colossal_hdf5 INTERFACE ${_hdf5})
target_include_directories(colossal_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})

# Unicode's classes for tokenizers. Linked statically: 330 KB of tables, no initialisation when the program starts.
find_library(COLOSSAL_UTF8PROC NAMES libutf8proc.a REQUIRED)
find_path(COLOSSAL_UTF8PROC_INCLUDE utf8proc.h REQUIRED)
add_library(colossal_utf8proc INTERFACE)
target_link_libraries(colossal_utf8proc INTERFACE ${COLOSSAL_UTF8PROC})
target_include_directories(colossal_utf8proc SYSTEM INTERFACE ${COLOSSAL_UTF8PROC_INCLUDE})

# Asynchronous disk access; without it NVMe tiers use threads. Linked statically: 60 KB of thin calls into the kernel.
find_library(COLOSSAL_URING NAMES liburing.a)
find_path(COLOSSAL_URING_INCLUDE liburing.h)
add_library(colossal_uring INTERFACE)
if(COLOSSAL_URING AND COLOSSAL_URING_INCLUDE)
  target_link_libraries(colossal_uring INTERFACE ${COLOSSAL_URING})
  target_include_directories(colossal_uring SYSTEM INTERFACE ${COLOSSAL_URING_INCLUDE})
  target_compile_definitions(colossal_uring INTERFACE COLOSSAL_URING)
endif()
