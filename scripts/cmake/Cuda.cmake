# What does a build for GPUs need besides LibTorch? nvcc, the CUDA half of the wheel, and the headers of NCCL and cuDNN.
# Included by every preset; without COLOSSAL_CUDA it does nothing.
if(NOT COLOSSAL_CUDA)
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(_nvcc nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
  if(NOT _nvcc)
    message(FATAL_ERROR "nvcc was not found: install the CUDA toolkit, set CUDA_HOME or CUDACXX, or build the preset cpu")
  endif()
  set(CMAKE_CUDA_COMPILER ${_nvcc})
endif()
# The runtime that LibTorch uses: a second copy would keep state of its own.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
enable_language(CUDA)
# CMake 3.25 does not know that nvcc of CUDA 13 has C++20, and asks for what C++ files have.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
find_package(CUDAToolkit REQUIRED)
string(REGEX MATCH "cuda[^\n]*= '([0-9]+)" _ "${_torch_version}")
if(NOT CUDAToolkit_VERSION_MAJOR EQUAL CMAKE_MATCH_1)
  message(FATAL_ERROR "nvcc is of CUDA ${CUDAToolkit_VERSION}, torch of '${TORCH_DIR}' of CUDA ${CMAKE_MATCH_1}: their first "
                      "numbers must agree")
endif()
if(COLOSSAL_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
# -lineinfo costs nothing and is what profilers read.
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3 -lineinfo")
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -lineinfo")

foreach(_library torch_cuda c10_cuda)
  if(NOT EXISTS ${TORCH_DIR}/lib/lib${_library}.so)
    message(FATAL_ERROR "the torch of '${TORCH_DIR}' has no CUDA: install the 2.11.0 wheel of PyPI, or build the preset cpu")
  endif()
endforeach()

# The wheels that torch came with hold the very versions it was built with; a system's own come second.
get_filename_component(_packages ${TORCH_DIR} DIRECTORY)
find_path(COLOSSAL_NCCL_INCLUDE nccl.h HINTS ${_packages}/nvidia/nccl/include ${CUDAToolkit_INCLUDE_DIRS} REQUIRED
          NO_DEFAULT_PATH)
find_path(COLOSSAL_CUDNN_INCLUDE cudnn.h HINTS ${_packages}/nvidia/cudnn/include ${CUDAToolkit_INCLUDE_DIRS}
                                               /usr/include REQUIRED NO_DEFAULT_PATH)
# Headers of PyPI's nvidia-cudnn-frontend; without them gradients of attention are copied into place.
find_path(COLOSSAL_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${_packages}/include NO_DEFAULT_PATH)
set(COLOSSAL_CUDA_INCLUDES ${CUDAToolkit_INCLUDE_DIRS} ${COLOSSAL_NCCL_INCLUDE} ${COLOSSAL_CUDNN_INCLUDE})
list(REMOVE_DUPLICATES COLOSSAL_CUDA_INCLUDES)

# libcublas, libcudnn, libnvrtc (called by the headers of cuDNN's frontend) and libcudart, which our own code calls, from where torch takes them.
function(_find_beside_torch variable name)
  file(GLOB found ${_packages}/nvidia/*/lib/${name}.so.*)
  if(found)
    list(GET found 0 found)
  else()
    find_library(found NAMES ${name} HINTS ${CUDAToolkit_LIBRARY_DIR} REQUIRED NO_CACHE)
  endif()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()
_find_beside_torch(_cudart libcudart)
_find_beside_torch(_cublas_lt libcublasLt)
_find_beside_torch(_cudnn libcudnn)
_find_beside_torch(_nvrtc libnvrtc)

add_library(torch::cuda INTERFACE IMPORTED)
# Nothing names a symbol of torch_cuda: it registers itself when it is loaded, so it must not be dropped as unneeded.
target_link_options(
  torch::cuda INTERFACE
  "LINKER:--push-state,--no-as-needed,${TORCH_DIR}/lib/libtorch_cuda.so,${TORCH_DIR}/lib/libc10_cuda.so,--pop-state")
target_link_libraries(torch::cuda INTERFACE torch::cpu ${_cublas_lt} ${_cudnn} ${_nvrtc} ${_cudart})
message(STATUS "CUDA ${CUDAToolkit_VERSION} for sm_${CMAKE_CUDA_ARCHITECTURES}, NCCL of ${COLOSSAL_NCCL_INCLUDE}, cuDNN frontend: "
               "${COLOSSAL_CUDNN_FRONTEND_INCLUDE}")
