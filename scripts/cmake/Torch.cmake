# Where LibTorch comes from: the torch wheel of the project's virtual environment, or -DTORCH_DIR / $TORCH_DIR.
# find_package(Torch) is not used: in a CUDA wheel it demands a CUDA toolkit even for CPU builds.
if(NOT TORCH_DIR)
  if(DEFINED ENV{TORCH_DIR} AND NOT "$ENV{TORCH_DIR}" STREQUAL "")
    set(TORCH_DIR $ENV{TORCH_DIR})
  else()
    file(GLOB TORCH_DIR ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  endif()
endif()
set(TORCH_DIR "${TORCH_DIR}" CACHE PATH "Folder of the torch package: holds include/ and lib/")
if(NOT EXISTS ${TORCH_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "LibTorch not found in '${TORCH_DIR}'. Run scripts/test.sh or scripts/train.sh, which install torch "
                      "2.11.0 into .venv, or pass -DTORCH_DIR=<site-packages>/torch")
endif()
file(READ ${TORCH_DIR}/version.py _torch_version)
string(REGEX MATCH "__version__ = '([0-9.]+)" _ "${_torch_version}")
if(NOT CMAKE_MATCH_1 STREQUAL "2.11.0")
  message(FATAL_ERROR "torch ${CMAKE_MATCH_1} found in ${TORCH_DIR}, 2.11.0 is required (c10d's C++ interface is not stable)")
endif()

add_library(torch::cpu INTERFACE IMPORTED)
# -idirafter, never -I or -isystem: torch bundles fmt 12 headers, which must not hide the system's fmt 9.
# For C++ alone: nvcc's files include no header of torch.
target_compile_options(
  torch::cpu INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${TORCH_DIR}/include>"
                       "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${TORCH_DIR}/include/torch/csrc/api/include>")
target_link_libraries(torch::cpu INTERFACE ${TORCH_DIR}/lib/libtorch_cpu.so ${TORCH_DIR}/lib/libc10.so)
# libtorch_cpu.so of a CUDA wheel needs the CUDA runtime and CUPTI wheels beside it; its own RUNPATH finds them.
target_link_options(torch::cpu INTERFACE -Wl,--allow-shlib-undefined)
# Torch's own libgomp: two OpenMP runtimes in one process oversubscribe the cores.
file(GLOB _torch_gomp ${TORCH_DIR}/lib/libgomp*.so* ${TORCH_DIR}/../torch.libs/libgomp*.so*)
if(_torch_gomp)
  list(GET _torch_gomp 0 COLOSSAL_TORCH_GOMP)
endif()
